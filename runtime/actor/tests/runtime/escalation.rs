//! Giving up, and who hears of it.

use std::time::Duration;

use holdfast_actor::{Child, End, Fault, Reason, Strategy, Supervisor, Tree, Unfit, What};

use crate::puppet::{Arguments, Log, Message, Puppet, Stage, child, life, steady};

fn outside() -> Supervisor {
    Supervisor::new("root", Strategy::RestForOne)
        .child(child("link"))
        .supervisor(
            Supervisor::new("outside", Strategy::OneForOne)
                .intensity(1, Duration::from_mins(1))
                .backoff(steady(Duration::from_secs(1)))
                .child(child("uplink")),
        )
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_gives_up_is_restarted_by_its_parent_and_others_live_on() {
    let log = Log::default();
    let mut tree = Tree::new(outside());
    let link = tree.bind::<Puppet>("root/link", Arguments::new(&log));
    let uplink = tree.bind::<Puppet>("root/outside/uplink", Arguments::new(&log));
    let stage = Stage::set(tree, &log).await;
    stage.root.up().await.expect("all start");
    let first = life(&link).await;

    for up in 2..=3 {
        uplink.send(Message::Panic).expect("room");
        stage.up("root/outside/uplink", up).await;
    }

    stage
        .until("root/outside", 1, |what| {
            matches!(what, What::GaveUp { .. })
        })
        .await;
    stage.up("root/outside", 2).await;
    assert_eq!(life(&link).await, first);
    life(&uplink).await;
}

#[tokio::test(start_paused = true)]
async fn when_the_root_gives_up_all_is_stopped_in_order_and_the_reason_is_known() {
    let log = Log::default();
    let spec = Supervisor::new("root", Strategy::OneForOne)
        .child(child("a"))
        .child(child("b"))
        .child(child("c"));
    let mut tree = Tree::new(spec);
    let [_, b, _] =
        ["a", "b", "c"].map(|id| tree.bind::<Puppet>(&format!("root/{id}"), Arguments::new(&log)));
    let stage = Stage::set(tree, &log).await;
    stage.root.up().await.expect("all start");
    for up in 2..=4 {
        b.send(Message::Panic).expect("room");
        stage.up("root/b", up).await;
    }
    b.send(Message::Panic).expect("room");

    let End::GaveUp(reason) = stage.root.ended().await else {
        panic!("nobody asked for a shutdown");
    };
    assert_eq!(
        reason.to_string(),
        "gave up over root/b: panicked: a mistake of ours"
    );
    assert_eq!(log.with("stop"), ["c stop", "a stop"]);
}

#[tokio::test(start_paused = true)]
async fn what_no_restart_cures_ends_the_tree_after_one_try() {
    let log = Log::default();
    let mut tree = Tree::new(outside());
    tree.bind::<Puppet>("root/link", Arguments::new(&log));
    tree.bind::<Puppet>(
        "root/outside/uplink",
        Arguments::new(&log).opening(|_| Err(Fault::last("open /etc/uplink: no such file"))),
    );
    let stage = Stage::set(tree, &log).await;
    let end = stage.root.up().await.expect_err("it cannot come up");
    let End::GaveUp(reason) = end else {
        panic!("nobody asked for a shutdown");
    };
    let (child, cause) = reason.root_cause();
    assert_eq!(
        child.map(holdfast_actor::Path::as_str),
        Some("root/outside/uplink")
    );
    assert_eq!(
        cause,
        &Reason::Fault(Fault::last("open /etc/uplink: no such file"))
    );
    assert_eq!(log.with("start"), ["link start", "uplink start"]);
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_is_not_whole_is_not_started() {
    let start = |spec: Supervisor, paths: &'static [&'static str]| async move {
        let mut tree = Tree::new(spec);
        for path in paths {
            tree.bind::<Puppet>(path, Arguments::new(&Log::default()));
        }
        tree.start(
            holdfast_actor::Seed::new(1),
            |_: &holdfast_actor::Change| {},
        )
        .await
    };
    let one = || Supervisor::new("root", Strategy::OneForOne).child(Child::permanent("a"));
    assert!(
        matches!(start(one(), &[]).await, Err(Unfit::Unbound(path)) if path.as_str() == "root/a")
    );
    assert!(matches!(
        start(one(), &["root/a", "root/b"]).await,
        Err(Unfit::Stray(path)) if path.as_str() == "root/b"
    ));
    let flawed = one().child(Child::permanent("a"));
    assert!(matches!(
        start(flawed, &["root/a"]).await,
        Err(Unfit::Flawed(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_harms_nobody() {
    let mut tree = Tree::new(Supervisor::new("root", Strategy::OneForOne).child(child("a")));
    let address = tree.bind::<Puppet>("root/a", Arguments::new(&Log::default()));
    let root = tree
        .start(
            holdfast_actor::Seed::new(1),
            |change: &holdfast_actor::Change| {
                assert_ne!(change.what, What::Up, "a mistake of the observer");
            },
        )
        .await
        .expect("the tree is sound");
    root.up().await.expect("it starts");
    life(&address).await;
    assert_eq!(root.shutdown().await, End::ShutDown);
}
