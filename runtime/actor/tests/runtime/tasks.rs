//! Tasks belong to an actor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_actor::{Class, End, Fault, What};

use crate::puppet::{Log, Message, Stage, child, handle, life, steady};

/// A task that never ends by itself and says when it is gone.
fn endless(log: &Log) -> Message {
    let log = log.clone();
    Message::Spawn(Box::new(move |me| {
        Box::pin(async move {
            let _gone = Gone(log, me.path().clone());
            std::future::pending::<Result<(), Fault>>().await
        })
    }))
}

struct Gone(Log, holdfast_actor::Path);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.note(&self.1, "task gone");
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_outlives_its_actor_however_it_ends() {
    let fail = || Message::Fail(Fault::failed("reset by peer"));
    let ends: [fn() -> Message; 3] = [fail, || Message::Panic, || Message::End];
    for end in ends {
        let (stage, address) = Stage::one(child("a").backoff(steady(Duration::ZERO))).await;
        for _ in 0..3 {
            address.send(endless(&stage.log)).expect("room");
        }
        life(&address).await;
        address.send(end()).expect("room");
        stage.up("root/a", 2).await;
        let lines = stage.log.lines();
        let second = lines.iter().rposition(|line| line == "a start");
        let gone = lines.iter().filter(|line| *line == "a task gone").count();
        let last = lines.iter().rposition(|line| line == "a task gone");
        assert_eq!(gone, 3);
        assert!(last < second, "the successor meets no task: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_task_outlives_a_killed_actor_or_a_shutdown() {
    let (stage, address) = Stage::one(child("a").ping(Duration::from_secs(1))).await;
    address.send(endless(&stage.log)).expect("room");
    let gate = Arc::new(tokio::sync::Notify::new());
    address.send(Message::Hang(gate)).expect("room");
    stage.up("root/a", 2).await;
    assert_eq!(stage.log.with("gone").len(), 1);

    address.send(endless(&stage.log)).expect("room");
    life(&address).await;
    assert_eq!(stage.root.shutdown().await, End::ShutDown);
    assert_eq!(stage.log.with("gone").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_task_that_is_at_work_on_another_thread_is_waited_for() {
    let (stage, address) = Stage::one(child("a").backoff(steady(Duration::ZERO))).await;
    let (begun, running) = std::sync::mpsc::channel();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let log = stage.log.clone();
    let job = Message::Spawn(Box::new(move |me| {
        Box::pin(async move {
            begun.send(()).expect("the test waits");
            // At work on a thread, where no abort reaches it.
            let _ = gate.recv();
            log.note(me.path(), "task done");
            Ok(())
        })
    }));
    address.send(job).expect("room");
    tokio::task::spawn_blocking(move || running.recv())
        .await
        .expect("it runs")
        .expect("the task says so");

    address.send(Message::Panic).expect("room");
    stage
        .until("root/a", 1, |what| matches!(what, What::Dying { .. }))
        .await;
    open.send(()).expect("it waits");
    stage.up("root/a", 2).await;
    assert_eq!(
        stage.log.lines(),
        ["a start", "a dropped", "a task done", "a start"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_task_is_the_failure_of_its_actor_with_its_class() {
    for class in [Class::Failed, Class::Exhausted] {
        let (stage, address) = Stage::one(child("a")).await;
        address
            .send(Message::Spawn(Box::new(move |_| {
                Box::pin(async move { Err(Fault::new(class, "accept: broken")) })
            })))
            .expect("room");
        let fall = stage.fell("root/a", 1).await;
        assert!(
            matches!(&fall.what, What::Fell { reason, .. } if reason.class() == class
                && reason.to_string() == "accept: broken"),
            "{fall:?}"
        );
        assert_eq!(stage.log.with("stop"), Vec::<String>::new(), "no stop hook");
        stage.up("root/a", 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_panic_of_a_task_is_a_bug_of_its_actor() {
    let (stage, address) = Stage::one(child("a")).await;
    address
        .send(Message::Spawn(Box::new(|_| {
            Box::pin(async { panic!("out of range") })
        })))
        .expect("room");
    let fall = stage.fell("root/a", 1).await;
    assert!(
        matches!(&fall.what, What::Fell { reason, .. } if reason.class() == Class::Bug
            && reason.to_string() == "task panicked: out of range"),
        "{fall:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_can_start_others_and_what_is_over_is_off_the_list() {
    let (stage, address) = Stage::one(child("a")).await;
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    address
        .send(Message::Spawn(Box::new(move |me| {
            Box::pin(async move {
                for _ in 0..100 {
                    let done = Arc::clone(&counted);
                    me.spawn(async move {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        done.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    });
                }
                assert_eq!(me.tasks(), 101);
                while me.tasks() > 1 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                me.end();
                Ok(())
            })
        })))
        .expect("room");
    stage.fell("root/a", 1).await;
    assert_eq!(done.load(Ordering::SeqCst), 100);
}

#[tokio::test(start_paused = true)]
async fn a_note_to_oneself_comes_later_and_not_to_the_successor() {
    let (stage, address) = Stage::one(child("a")).await;
    let delay = Duration::from_secs(3);
    address.send(Message::Later(delay, "soon")).expect("room");
    tokio::time::sleep(delay + Duration::from_millis(10)).await;
    life(&address).await;
    assert_eq!(stage.log.with("soon"), ["a soon"]);

    address.send(Message::Later(delay, "never")).expect("room");
    address.send(Message::Panic).expect("room");
    stage.up("root/a", 2).await;
    tokio::time::sleep(2 * delay).await;
    life(&address).await;
    assert!(stage.log.with("never").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_outlives_the_actor_can_start_nothing_for_it() {
    let (stage, address) = Stage::one(child("a")).await;
    let (tell, kept) = tokio::sync::oneshot::channel();
    address
        .send(Message::Spawn(Box::new(move |me| {
            Box::pin(async move {
                let _ = tell.send(me.clone());
                Ok(())
            })
        })))
        .expect("room");
    let me = kept.await.expect("it is sent");
    let old = handle(&address);
    address.send(Message::Panic).expect("room");
    stage.up("root/a", 2).await;
    let log = stage.log.clone();
    let path = me.path().clone();
    let task = me.spawn(async move {
        log.note(&path, "haunted");
        Ok(())
    });
    assert!(task.is_over());
    assert!(old.send(Message::End).is_err());
    life(&address).await;
    assert!(stage.log.with("haunted").is_empty());
}
