//! Stuck is dead.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use holdfast_actor::{Child, Clock, End, Reason, What};
use tokio::sync::Notify;

use crate::puppet::{Message, Stage, child, life, steady};

#[tokio::test(start_paused = true)]
async fn one_that_is_stuck_is_found_within_its_ping_deadline_and_replaced() {
    for phase in [0, 300, 700, 1100] {
        let ping = Duration::from_secs(4);
        let (stage, address) = Stage::one(child("a").ping(ping)).await;
        let clock = Clock::tokio();
        // Wherever it is in the round of pings.
        tokio::time::sleep(Duration::from_millis(phase)).await;
        let before = life(&address).await;
        let hung = clock.now();

        address
            .send(Message::Hang(Arc::new(Notify::new())))
            .expect("room");
        stage.until("root/a", 1, |what| *what == What::Stuck).await;

        let found = clock.now() - hung;
        assert!(found <= ping + Duration::from_millis(50), "{found:?}");
        let fall = stage.fell("root/a", 1).await;
        assert!(matches!(
            fall.what,
            What::Fell {
                reason: Reason::Stuck,
                ..
            }
        ));
        stage.up("root/a", 2).await;
        assert_ne!(life(&address).await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_thinks_for_half_its_deadline_is_left_alone() {
    let (stage, address) = Stage::one(child("a").ping(Duration::from_secs(4))).await;
    let before = life(&address).await;
    for _ in 0..20 {
        let gate = Arc::new(Notify::new());
        address.send(Message::Hang(gate.clone())).expect("room");
        tokio::time::sleep(Duration::from_millis(1990)).await;
        gate.notify_one();
        assert_eq!(life(&address).await, before);
    }
    assert_eq!(stage.count(|change| change.what == What::Stuck), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_nothing_to_do_is_left_alone() {
    let (stage, address) = Stage::one(child("a").ping(Duration::from_secs(1))).await;
    let before = life(&address).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(life(&address).await, before);
    assert_eq!(stage.count(|change| change.restarts > 0), 0);
}

/// A blocked thread cannot be taken from its handler. Its successor has to wait for it, and comes when it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_blocks_its_thread_is_replaced_when_it_lets_go_and_not_before() {
    let child = Child::permanent("a")
        .ping(Duration::from_millis(200))
        .backoff(steady(Duration::ZERO));
    let (stage, address) = Stage::one(child).await;
    let (open, gate) = mpsc::channel();
    let before = life(&address).await;

    address.send(Message::Block(gate)).expect("room");
    stage.until("root/a", 1, |what| *what == What::Stuck).await;
    assert_eq!(stage.log.with("start").len(), 1);
    assert_eq!(stage.log.with("dropped").len(), 0);

    open.send(()).expect("it waits");
    stage.up("root/a", 2).await;
    assert_ne!(life(&address).await, before);
    assert_eq!(
        stage.log.lines(),
        ["a start", "a dropped", "a start"],
        "one after the other"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_holds_a_thread_for_good_ends_the_tree() {
    let (stage, address) = Stage::one(child("a")).await;
    let (_open, gate) = mpsc::channel::<()>();
    let (begun, running) = tokio::sync::oneshot::channel();
    let work = move || {
        let _ = begun.send(());
        let _ = gate.recv();
    };
    address
        .send(Message::Offload(Box::new(work)))
        .expect("room");
    running.await.expect("it runs");

    address.send(Message::Panic).expect("room");
    stage
        .until("root/a", 1, |what| matches!(what, What::Dying { .. }))
        .await;
    assert!(
        address.handle().is_none(),
        "nobody is served by it any more"
    );
    // Time stands still beside a thread that works; it has to be pushed.
    tokio::time::advance(Duration::from_secs(11)).await;
    let End::GaveUp(reason) = stage.root.ended().await else {
        panic!("nobody asked for a shutdown");
    };
    assert_eq!(reason.root_cause().1, &Reason::Wedged);
}

/// A process that was stopped and goes on must not find stuck who was only busy when it was stopped.
#[tokio::test]
async fn nobody_is_stuck_because_the_whole_process_stood_still() {
    let ping = Duration::from_millis(400);
    let (stage, address) = Stage::one(child("a").ping(ping)).await;
    let before = life(&address).await;
    let gate = Arc::new(Notify::new());
    address.send(Message::Hang(gate.clone())).expect("room");
    // It is asked at the second look.
    tokio::time::sleep(ping * 5 / 8).await;

    // Nothing else runs on this thread: warden and actor stand still.
    std::thread::sleep(ping * 2);
    tokio::time::sleep(ping / 8).await;
    gate.notify_one();

    assert_eq!(life(&address).await, before);
    assert_eq!(stage.count(|change| change.what == What::Stuck), 0);
}
