//! Actors that are made to fail, for those who want to see what follows.

use std::time::Duration;

use holdfast_actor::{Blow, Path, Reason, What};

use crate::puppet::{Stage, child, life};

#[tokio::test(start_paused = true)]
async fn one_that_is_struck_panics_and_is_replaced() {
    let (stage, address) = Stage::one(child("a")).await;
    let before = life(&address).await;

    assert!(
        stage
            .lookout
            .strike(&Path::new("root/a"), Blow::Panic)
            .await
    );

    let fall = stage.fell("root/a", 1).await;
    assert!(fall_reason(&fall.what).contains("struck"), "{fall:?}");
    stage.up("root/a", 2).await;
    assert_ne!(life(&address).await, before);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_made_to_hang_is_found_and_replaced() {
    let (stage, _) = Stage::one(child("a").ping(Duration::from_secs(2))).await;

    assert!(stage.lookout.strike(&Path::new("root/a"), Blow::Hang).await);

    stage.until("root/a", 1, |what| *what == What::Stuck).await;
    stage.up("root/a", 2).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_struck_where_nobody_stands() {
    let (stage, _) = Stage::one(child("a")).await;

    assert!(
        !stage
            .lookout
            .strike(&Path::new("root/b"), Blow::Panic)
            .await
    );
    assert_eq!(
        stage.lookout.view().await.len(),
        stage.root.view().await.len()
    );
}

fn fall_reason(what: &What) -> String {
    let What::Fell {
        reason: Reason::Fault(fault),
        ..
    } = what
    else {
        panic!("fell by no fault: {what:?}");
    };
    fault.to_string()
}
