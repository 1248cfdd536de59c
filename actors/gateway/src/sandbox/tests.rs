use holdfast_actor::{Change, Child, Seed, Strategy, Supervisor, Tree};
use tokio::sync::mpsc;

use super::*;
use crate::directory::Directory;
use crate::places::Places;
use crate::processes::Processes;
use crate::registry::row::{After, Kind};
use crate::registry::store::Store;
use crate::registry::{Ledger, Registry};

/// A roster that takes nobody out, and tells when it was asked to.
struct Deaf;

impl Actor for Deaf {
    type Message = roster::Message;
    type Arguments = mpsc::UnboundedSender<()>;
    type State = mpsc::UnboundedSender<()>;

    async fn start(_: &Me<Self::Message>, gone: Self::State) -> Result<Self::State, Fault> {
        Ok(gone)
    }

    async fn handle(
        _: &Me<Self::Message>,
        _: Self::Message,
        gone: &mut Self::State,
    ) -> Result<(), Fault> {
        let _nobody_waits = gone.send(());
        Ok(())
    }
}

#[tokio::test]
async fn a_policy_for_a_sandbox_that_was_deleted_brings_nothing_back() {
    let base = tempfile::tempdir().expect("a directory");
    let store = Arc::new(Store::open(&base.path().join("registry.redb")).expect("made"));
    let row = Row {
        id: "one".to_owned(),
        stage: Kind::Ending.into(),
        after: After::Delete.into(),
        policy: 1,
        ..Row::default()
    };
    store.put(&row, Some(&Revision::default())).expect("put");
    let tree = Supervisor::new("gateway", Strategy::OneForOne)
        .child(Child::permanent("registry"))
        .supervisor(Supervisor::dynamic("sandboxes", 1))
        .child(Child::permanent("roster"));
    let mut tree = Tree::new(tree);
    let ledger = tree.bind::<Registry>("gateway/registry", Arc::clone(&store));
    let (tell, mut gone) = mpsc::unbounded_channel();
    let roster = tree.bind::<Deaf>("gateway/roster", tell);
    let host = Host {
        places: Arc::new(Places {
            state: base.path().join("state"),
            runtime: base.path().join("run"),
        }),
        directory: Directory::default(),
        ledger: Ledger::new(ledger),
        processes: Processes::new(&[]).expect("a host"),
        lookout: tree.lookout(),
        chaos: false,
    };
    let sandboxes = tree.dynamic("gateway/sandboxes");
    let root = tree
        .start(Seed::new(1), |_: &Change| {})
        .await
        .expect("fit");
    root.up().await.expect("up");
    let arguments = Arguments {
        host,
        id: row.id.clone(),
        posted: Arc::new(watch::Sender::new(Posted::default())),
        roster,
    };
    let sandbox = sandboxes
        .add::<Sandbox>(Child::transient("one"), arguments)
        .await
        .expect("added");
    gone.recv().await.expect("removed");

    let revise = |reply| Message::Revise(Revision::default(), reply);
    let answer = sandbox.ask(revise, Duration::from_secs(20)).await;

    assert!(
        matches!(answer, Ok(Err(Refused::Deleting(_)))),
        "{answer:?}"
    );
    assert_eq!(store.row("one"), Ok(None));
    root.shutdown().await;
}
