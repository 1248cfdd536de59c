use holdfast_actor::{Change, Child, Root, Seed, Strategy, Supervisor, Tree};
use tokio::sync::mpsc;

use super::revise::Revised;
use super::*;
use crate::directory::Directory;
use crate::places::Places;
use crate::processes::Processes;
use crate::registry::row::{After, Kind};
use crate::registry::store::Store;
use crate::registry::{Ledger, Registry};
use crate::shortage::Shortage;

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

/// A sandbox on a registry of its own.
struct Scene {
    store: Arc<Store>,
    sandbox: Address<Message>,
    gone: mpsc::UnboundedReceiver<()>,
    root: Root,
    _base: tempfile::TempDir,
}

impl Scene {
    async fn new(row: Row) -> Self {
        let base = tempfile::tempdir().expect("a directory");
        let store = Arc::new(Store::open(&base.path().join("registry.redb")).expect("made"));
        store.put(&row, Some(&Revision::default())).expect("put");
        let tree = Supervisor::new("gateway", Strategy::OneForOne)
            .child(Child::permanent("registry"))
            .supervisor(Supervisor::dynamic("sandboxes", 1))
            .child(Child::permanent("roster"));
        let mut tree = Tree::new(tree);
        let ledger = tree.bind::<Registry>("gateway/registry", Arc::clone(&store));
        let (tell, gone) = mpsc::unbounded_channel();
        let roster = tree.bind::<Deaf>("gateway/roster", tell);
        let host = Host {
            places: Arc::new(Places {
                state: base.path().join("state"),
                runtime: base.path().join("run"),
            }),
            directory: Directory::default(),
            ledger: Ledger::new(ledger),
            processes: Processes::new(&[]).expect("a host"),
            shortage: Shortage::default(),
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
        let sandbox = sandboxes.add::<Sandbox>(Child::transient(&row.id), arguments);
        Self {
            store,
            sandbox: sandbox.await.expect("added"),
            gone,
            root,
            _base: base,
        }
    }

    async fn revise(&self) -> Result<Revising, Refused> {
        let revise = |reply| Message::Revise(Revision::default(), None, reply);
        let answer = self.sandbox.ask(revise, Duration::from_secs(20));
        answer.await.expect("answered")
    }
}

fn row(stage: Kind) -> Row {
    Row {
        id: "one".to_owned(),
        stage: stage.into(),
        after: After::Delete.into(),
        generation: 1,
        policy: 1,
        ..Row::default()
    }
}

#[tokio::test]
async fn a_policy_for_a_sandbox_that_was_deleted_brings_nothing_back() {
    let mut stage = Scene::new(row(Kind::Ending)).await;
    stage.gone.recv().await.expect("removed");

    let answer = stage.revise().await;

    assert!(matches!(answer, Err(Refused::Deleting(_))), "{answer:?}");
    assert_eq!(stage.store.row("one"), Ok(None));
    stage.root.shutdown().await;
}

#[tokio::test]
async fn a_refused_policy_gives_way_to_the_one_that_was_wanted_before_it() {
    let stage = Scene::new(row(Kind::Stopped)).await;
    let revised = |number| {
        Revising::Kept(Revised {
            number,
            before: number - 1,
            serves: false,
        })
    };
    assert_eq!(stage.revise().await.ok(), Some(revised(2)));
    assert_eq!(stage.revise().await.ok(), Some(revised(3)));

    let revert = |reply| Message::Revert(3, 2, reply);
    let reverted = stage.sandbox.ask(revert, Duration::from_secs(20));
    reverted.await.expect("answered");

    let row = stage.store.row("one").expect("read").expect("there");
    assert_eq!(row.policy, 2);
    assert_eq!(stage.store.revision("one", 3), Ok(None));
    assert_eq!(stage.revise().await.ok(), Some(revised(3)));
    stage.root.shutdown().await;
}
