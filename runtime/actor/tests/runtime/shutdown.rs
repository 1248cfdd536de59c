//! Ordered shutdown.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Clock, End, Strategy, Supervisor, Tree, What};
use tokio::sync::Notify;

use crate::puppet::{Arguments, Log, Message, Puppet, Stage, child, life};

async fn three(farewell: Duration) -> (Stage, Vec<holdfast_actor::Address<Message>>) {
    let log = Log::default();
    let spec = Supervisor::new("root", Strategy::OneForOne)
        .child(child("a"))
        .supervisor(Supervisor::new("s", Strategy::OneForOne).child(child("b")))
        .child(child("c").shutdown(Duration::from_secs(2)));
    let mut tree = Tree::new(spec);
    let addresses = ["root/a", "root/s/b", "root/c"]
        .map(|path| tree.bind::<Puppet>(path, Arguments::new(&log).farewell(farewell)));
    let stage = Stage::set(tree, &log).await;
    stage.root.up().await.expect("all start");
    (stage, addresses.into())
}

#[tokio::test(start_paused = true)]
async fn children_stop_in_reverse_order_and_each_runs_its_stop_hook() {
    let (stage, _) = three(Duration::from_millis(100)).await;
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
    assert_eq!(
        stage.log.lines()[3..],
        [
            "c stopping",
            "c stop",
            "c dropped",
            "b stopping",
            "b stop",
            "b dropped",
            "a stopping",
            "a stop",
            "a dropped"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_is_slow_to_stop_is_killed_at_its_deadline() {
    let (stage, _) = three(Duration::from_secs(4)).await;
    let clock = Clock::tokio();
    let asked = clock.now();
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
    // c may take 2 s, the others 5.
    assert_eq!(stage.log.with("stop"), ["b stop", "a stop"]);
    assert_eq!(stage.log.with("dropped").len(), 3);
    let took = clock.now() - asked;
    assert!(took >= Duration::from_secs(10), "{took:?}");
    assert!(took < Duration::from_millis(10_100), "{took:?}");
    stage
        .until("root/c", 1, |what| *what == What::Overdue)
        .await;
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_over_a_message_is_killed_at_its_deadline() {
    let (stage, addresses) = three(Duration::ZERO).await;
    addresses[2]
        .send(Message::Hang(Arc::new(Notify::new())))
        .expect("room");
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
    assert_eq!(stage.log.with("stop"), ["b stop", "a stop"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_gets_in_while_a_child_waits_for_its_restart() {
    let (stage, addresses) = three(Duration::ZERO).await;
    addresses[0].send(Message::Panic).expect("room");
    stage.fell("root/a", 1).await;
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
    assert_eq!(stage.log.with("start").len(), 3, "nobody was started again");
}

#[tokio::test(start_paused = true)]
async fn a_tree_whose_owner_is_gone_shuts_down_in_order() {
    let (stage, addresses) = three(Duration::ZERO).await;
    let log = stage.log.clone();
    drop(stage);
    while log.with("dropped").len() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(log.with("stop"), ["c stop", "b stop", "a stop"]);
    assert!(addresses[0].handle().is_none());
}

#[tokio::test]
async fn everything_works_on_one_thread_with_real_time() {
    let (stage, addresses) = three(Duration::from_millis(1)).await;
    for address in &addresses {
        life(address).await;
    }
    let views = stage.root.view().await;
    let lines: Vec<_> = views.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "root up",
            "root/a up",
            "root/s up",
            "root/s/b up",
            "root/c up"
        ]
    );
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
    assert!(stage.root.view().await.is_empty());
}
