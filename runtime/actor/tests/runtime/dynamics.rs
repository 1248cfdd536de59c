//! Children that come and go.

use std::time::Duration;

use holdfast_actor::{Child, Dynamic, End, Fault, Reason, Refusal, Strategy, Supervisor, Tree};

use crate::puppet::{Arguments, Log, Message, Puppet, Stage, child, life, steady};

async fn sessions(most: usize) -> (Stage, Dynamic) {
    let log = Log::default();
    let spec = Supervisor::new("root", Strategy::RestForOne)
        .child(child("link"))
        .supervisor(Supervisor::dynamic("sessions", most));
    let mut tree = Tree::new(spec);
    tree.bind::<Puppet>("root/link", Arguments::new(&log));
    let sessions = tree.dynamic("root/sessions");
    let stage = Stage::set(tree, &log).await;
    stage.root.up().await.expect("all start");
    (stage, sessions)
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_added_is_up_and_can_be_asked() {
    let (stage, sessions) = sessions(2).await;
    let session = sessions
        .add::<Puppet>(Child::temporary("s1"), Arguments::new(&stage.log))
        .await
        .expect("there is room");
    life(&session).await;
    assert_eq!(session.path().as_str(), "root/sessions/s1");
}

#[tokio::test(start_paused = true)]
async fn one_too_many_and_one_twice_are_refused() {
    let (stage, sessions) = sessions(2).await;
    let add =
        |id: &'static str| sessions.add::<Puppet>(Child::temporary(id), Arguments::new(&stage.log));
    let first = add("s1").await.expect("there is room");
    assert_eq!(add("s1").await.expect_err("twice"), Refusal::Duplicate);
    add("s2").await.expect("there is room");
    assert_eq!(
        add("s3").await.expect_err("full"),
        Refusal::Full { most: 2 }
    );
    // One that was refused leaves nothing behind, and one that ended leaves room.
    life(&first).await;
    first.send(Message::End).expect("room");
    stage.fell("root/sessions/s1", 1).await;
    add("s3").await.expect("there is room again");
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_start_is_refused_with_its_fault() {
    let (stage, sessions) = sessions(2).await;
    let fault = || Fault::exhausted("open a pipe: too many open files");
    let refused = sessions
        .add::<Puppet>(
            Child::permanent("s1"),
            Arguments::new(&stage.log).opening(move |_| Err(fault())),
        )
        .await
        .expect_err("it does not start");
    assert_eq!(refused, Refusal::StartFailed(Reason::Fault(fault())));
    // Its name is free again.
    sessions
        .add::<Puppet>(Child::permanent("s1"), Arguments::new(&stage.log))
        .await
        .expect("there is room");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_removed_runs_its_stop_hook_and_its_name_is_free() {
    let (stage, sessions) = sessions(1).await;
    let session = sessions
        .add::<Puppet>(Child::permanent("s1"), Arguments::new(&stage.log))
        .await
        .expect("there is room");
    sessions.remove("s1");
    stage
        .until("root/sessions/s1", 1, |what| {
            *what == holdfast_actor::What::Stopped
        })
        .await;
    assert_eq!(stage.log.with("stop"), ["s1 stop"]);
    assert!(session.handle().is_none());
    sessions
        .add::<Puppet>(Child::permanent("s1"), Arguments::new(&stage.log))
        .await
        .expect("its place is free");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_was_up_is_restarted_at_its_address() {
    let (stage, sessions) = sessions(1).await;
    let permanent = Child::permanent("s1").backoff(steady(Duration::from_secs(1)));
    let session = sessions
        .add::<Puppet>(permanent, Arguments::new(&stage.log))
        .await
        .expect("there is room");
    let first = life(&session).await;
    session.send(Message::Panic).expect("room");
    stage.up("root/sessions/s1", 2).await;
    assert_ne!(life(&session).await, first);
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_has_ended_takes_no_more() {
    let (stage, sessions) = sessions(1).await;
    sessions
        .add::<Puppet>(Child::permanent("s1"), Arguments::new(&stage.log))
        .await
        .expect("there is room");
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
    assert_eq!(stage.log.with("stop"), ["s1 stop", "link stop"]);
    let refused = sessions
        .add::<Puppet>(Child::permanent("s2"), Arguments::new(&stage.log))
        .await
        .expect_err("it has ended");
    assert_eq!(refused, Refusal::Down);
}

#[tokio::test(start_paused = true)]
async fn five_hundred_come_and_go_and_leave_nothing() {
    let (stage, sessions) = sessions(8).await;
    for number in 0..500 {
        let id = format!("s{number}");
        let session = sessions
            .add::<Puppet>(Child::temporary(&id), Arguments::new(&stage.log))
            .await
            .expect("there is room");
        session.send(Message::End).expect("room");
        stage.fell(&format!("root/sessions/{id}"), 1).await;
    }
    assert_eq!(stage.root.view().await.len(), 3);
    assert_eq!(stage.log.with("dropped").len(), 500);
}
