//! Bounded mailboxes and generations.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Fault, Unanswered, Undelivered};
use tokio::sync::Notify;

use crate::puppet::{Message, Stage, child, handle, life};

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_says_so_at_once_and_has_room_again_later() {
    // Given an actor that is busy.
    let (stage, address) = Stage::one(child("a")).await;
    let gate = Arc::new(Notify::new());
    address.send(Message::Hang(gate.clone())).expect("room");
    // It takes the first message out before it hangs over it.
    while handle(&address).waiting() > 0 {
        tokio::task::yield_now().await;
    }

    // When more comes than its mailbox holds.
    let sent: Vec<_> = (0..6)
        .map(|_| address.send(Message::Note("done")))
        .collect();

    // Then what is too much is refused, counted, and nothing else is lost.
    let full = Err(Undelivered::Full);
    assert_eq!(sent, [Ok(()), Ok(()), Ok(()), Ok(()), full, full]);
    assert_eq!(handle(&address).refused(), 2);
    gate.notify_one();
    while handle(&address).waiting() > 0 {
        tokio::task::yield_now().await;
    }
    life(&address).await;
    assert_eq!(stage.log.with("done").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_stale_handle_is_gone_and_never_reaches_the_successor() {
    let (stage, address) = Stage::one(child("a")).await;
    let old = handle(&address);
    let first = life(&address).await;

    address
        .send(Message::Fail(Fault::failed("reset by peer")))
        .expect("room");
    stage.up("root/a", 2).await;

    assert_eq!(old.send(Message::Note("stray")), Err(Undelivered::Gone));
    assert_eq!(
        old.ask(Message::Echo, Duration::from_secs(1)).await,
        Err(Unanswered::Gone)
    );
    assert_ne!(
        life(&address).await,
        first,
        "the address reaches the successor"
    );
    assert!(stage.log.with("stray").is_empty());
}

#[tokio::test(start_paused = true)]
async fn between_two_lives_nobody_is_at_the_address() {
    let (stage, address) = Stage::one(child("a")).await;
    address
        .send(Message::Fail(Fault::failed("reset by peer")))
        .expect("room");
    stage.fell("root/a", 1).await;
    assert_eq!(address.send(Message::Note("early")), Err(Undelivered::Gone));
    assert!(address.handle().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_question_has_a_deadline_and_dies_with_the_actor() {
    let (stage, address) = Stage::one(child("a").ping(Duration::from_mins(10))).await;
    let gate = Arc::new(Notify::new());
    address.send(Message::Hang(gate.clone())).expect("room");
    let late = address.ask(Message::Echo, Duration::from_secs(1)).await;
    assert_eq!(late, Err(Unanswered::Late));

    // A question that waits when the actor fails is answered by its end.
    address.send(Message::Panic).expect("room");
    let question = address.ask(Message::Echo, Duration::from_mins(1));
    gate.notify_one();
    assert_eq!(question.await, Err(Unanswered::Gone));
    stage.up("root/a", 2).await;
}

#[tokio::test(start_paused = true)]
async fn an_asker_who_gave_up_does_no_harm() {
    let (stage, address) = Stage::one(child("a")).await;
    let gate = Arc::new(Notify::new());
    address.send(Message::Hang(gate.clone())).expect("room");
    let given_up = address.ask(Message::Echo, Duration::from_millis(1)).await;
    assert_eq!(given_up, Err(Unanswered::Late));
    gate.notify_one();
    life(&address).await;
    assert_eq!(stage.count(|change| change.restarts > 0), 0);
}
