//! One keeper in the foreground: takes a boundary that is building its fence, and serves its sandbox to one caller.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use holdfast_actor::{Change, End, Fault, Root, Tree};
use holdfast_wire::v1;

use crate::arrivals::Unbuilt;
use crate::egress::desk::Desk;
use crate::link::{Approach, Client};
use crate::sessions::{Launcher, NotStarted, Program, Session};
use crate::tree;
use crate::works::{Arguments, Held, Works};

/// A keeper at work.
pub struct Keeper {
    root: Arc<Root>,
    launcher: Launcher,
    desk: Arc<Desk>,
    standing: v1::Standing,
    held: Held,
}

impl Keeper {
    /// Waits until the fence at the other end of `approach` stands, attaches to its boundary and starts serving. If another
    /// keeper holds it, that one is fenced.
    pub async fn start(arguments: &Arguments, approach: Approach) -> Result<Self, Unbuilt> {
        let works = Works::take(arguments, FIRST_REVISION, approach).await?;
        let mut tree = Tree::new(tree::attended::keeper());
        let held = works.held();
        let launcher = Launcher {
            control: works.control.clone(),
            dialler: works.dialler.clone(),
            sessions: tree.dynamic("keeper/sessions"),
            link: held.link.clone(),
        };
        let (standing, desk, seed) = (works.standing.clone(), Arc::clone(&works.desk), works.seed);
        works.bind(&mut tree)?;
        let observer = |change: &Change| tracing::debug!(?change, "supervision");
        let root = tree::grow(tree, seed, observer).await?;
        Ok(Self {
            root: Arc::new(root),
            launcher,
            desk,
            standing,
            held,
        })
    }

    /// The boundary that this keeper holds.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// A connection of its own to the boundary.
    pub async fn dial(&self) -> Result<Client, Fault> {
        self.launcher.dialler.dial().await
    }

    /// How the fence was built, and what was measured.
    pub fn standing(&self) -> &v1::Standing {
        &self.standing
    }

    /// Starts a program in the sandbox.
    pub async fn launch(&self, program: Program) -> Result<Session, NotStarted> {
        self.launcher.launch(program).await
    }

    /// Waits until the keeper gives up, and says why.
    pub async fn ended(&self) -> End {
        self.root.ended().await
    }

    /// Ends every process of the sandbox and delivers what they have written, for [`FINISH`] at most; who has the keeper may let
    /// go of it before.
    pub fn finish(&self) -> BoxFuture<'static, ()> {
        let (mut control, desk) = (self.launcher.control.clone(), Arc::clone(&self.desk));
        Box::pin(async move {
            // A boundary that does not answer is ended by its owner in any case.
            let _ = tokio::time::timeout(PATIENCE, control.clear(v1::Nothing {})).await;
            desk.finish(FINISH).await;
        })
    }

    /// Begins to stop when it is called, whoever has the keeper.
    pub fn stop(&self) -> impl Fn() + Send + 'static {
        let root = Arc::clone(&self.root);
        move || root.request_shutdown()
    }

    /// Stops serving. What [`Keeper::finish`] has not delivered before is lost.
    pub async fn shutdown(self) {
        let _ = tokio::time::timeout(PATIENCE, self.root.shutdown()).await;
        self.desk.close().await;
    }
}

/// The number of a policy that never changes.
const FIRST_REVISION: u64 = 1;

/// How long the last bytes of a sandbox may take to their upstreams.
const FINISH: Duration = Duration::from_secs(10);

/// How long the parts may take to stop.
const PATIENCE: Duration = Duration::from_secs(5);
