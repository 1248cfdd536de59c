//! Deaths and what follows.

use std::time::Duration;

use holdfast_actor::{Class, End, Fault, Next, Reason, Strategy, Supervisor, Tree, What};

use crate::puppet::{Arguments, Log, Message, Puppet, Stage, child, life, steady};

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_death_and_is_followed_by_a_restart_after_the_backoff() {
    let (stage, address) = Stage::one(child("a")).await;
    let clock = holdfast_actor::Clock::tokio();

    address.send(Message::Panic).expect("room");
    let fall = stage.fell("root/a", 1).await;
    let moment = clock.now();

    let What::Fell { reason, next } = fall.what else {
        panic!("it fell");
    };
    assert_eq!(reason.class(), Class::Bug);
    assert_eq!(reason.to_string(), "panicked: a mistake of ours");
    let Next::Restart { at } = next else {
        panic!("it comes back");
    };
    stage.up("root/a", 2).await;
    assert!(clock.now() >= at && at - moment >= Duration::from_millis(999));
    life(&address).await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_the_dead_is_dropped_before_the_successor_starts() {
    let (stage, address) = Stage::one(child("a").backoff(steady(Duration::ZERO))).await;
    for round in 2..4 {
        address
            .send(Message::Fail(Fault::failed("reset by peer")))
            .expect("room");
        stage.up("root/a", round).await;
    }
    assert_eq!(
        stage.log.lines(),
        ["a start", "a dropped", "a start", "a dropped", "a start"],
        "and no stop hook runs after a failure"
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_tried_again_with_the_same_arguments() {
    let log = Log::default();
    let mut tree = Tree::new(Supervisor::new("root", Strategy::OneForOne).child(child("a")));
    let arguments = Arguments::new(&log).opening(|number| match number {
        1 => Err(Fault::failed("bind: address in use")),
        _ => Ok(()),
    });
    let address = tree.bind::<Puppet>("root/a", arguments);
    let stage = Stage::set(tree, &log).await;
    let fall = stage.fell("root/a", 1).await;
    assert!(
        matches!(&fall.what, What::Fell { reason, .. } if reason.to_string() == "bind: address in use")
    );
    stage.up("root/a", 1).await;
    life(&address).await;
}

#[tokio::test(start_paused = true)]
async fn want_of_a_resource_is_waited_out_and_never_ends_the_tree() {
    let log = Log::default();
    let spec = Supervisor::new("root", Strategy::OneForOne)
        .intensity(1, Duration::from_mins(1))
        .child(child("a"));
    let mut tree = Tree::new(spec);
    let arguments = Arguments::new(&log).opening(|number| {
        if number <= 50 {
            // EMFILE, as the kernel gives it.
            Err(std::io::Error::from_raw_os_error(24))?;
        }
        Ok(())
    });
    let address = tree.bind::<Puppet>("root/a", arguments);
    let stage = Stage::set(tree, &log).await;
    stage.up("root/a", 1).await;
    life(&address).await;
    assert_eq!(stage.log.with("start").len(), 51);
    // Nothing of the intensity is used up.
    address.send(Message::Panic).expect("room");
    stage.up("root/a", 2).await;
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_hangs_is_killed_and_tried_again() {
    let log = Log::default();
    let spec = Supervisor::new("root", Strategy::OneForOne)
        .child(child("a").start(Duration::from_secs(2)));
    let mut tree = Tree::new(spec);
    tree.bind::<Sleeper>("root/a", log.clone());
    let stage = Stage::set(tree, &log).await;
    let fall = stage.fell("root/a", 1).await;
    assert!(matches!(
        fall.what,
        What::Fell {
            reason: Reason::StartTooLong,
            ..
        }
    ));
    stage.up("root/a", 1).await;
}

/// Hangs in its first start.
struct Sleeper;

impl holdfast_actor::Actor for Sleeper {
    type Message = ();
    type Arguments = Log;
    type State = ();

    async fn start(me: &holdfast_actor::Me<()>, log: Log) -> Result<(), Fault> {
        log.note(me.path(), "start");
        if log.lines().len() == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn handle(_: &holdfast_actor::Me<()>, (): (), (): &mut ()) -> Result<(), Fault> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_stands_later_falls_with_what_stands_before_and_comes_back_in_order() {
    let log = Log::default();
    let spec = ["a", "b", "c"]
        .into_iter()
        .fold(Supervisor::new("root", Strategy::RestForOne), |spec, id| {
            spec.child(child(id))
        });
    let mut tree = Tree::new(spec);
    let addresses =
        ["a", "b", "c"].map(|id| tree.bind::<Puppet>(&format!("root/{id}"), Arguments::new(&log)));
    let stage = Stage::set(tree, &log).await;
    stage.root.up().await.expect("all start");
    addresses[1].send(Message::Panic).expect("room");
    stage.up("root/c", 2).await;
    assert_eq!(
        stage.log.lines(),
        [
            "a start",
            "b start",
            "c start",
            "b dropped",
            "c stopping",
            "c stop",
            "c dropped",
            "b start",
            "c start"
        ]
    );
}
