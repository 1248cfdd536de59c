//! A tree that runs, as its owner sees it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use holdfast_supervision::{Child, End, Fault, Path, Refusal, View};
use ractor::ActorRef;
use tokio::sync::{oneshot, watch};

use crate::mailbox::Blow;
use crate::tree::Part;
use crate::warden::{Order, Plan, Warden};
use crate::{Actor, Address};

/// A running tree. Shuts down in good order when dropped.
#[derive(Debug)]
pub struct Root {
    warden: ActorRef<Order>,
    stage: watch::Receiver<Stage>,
}

/// How far a tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Starting,
    Up,
    Over(End),
}

impl Root {
    pub(crate) async fn start(plan: Plan, known: &Arc<OnceLock<ActorRef<Order>>>) -> Self {
        let (tell, stage) = watch::channel(Stage::Starting);
        let known = Arc::clone(known);
        let warden = Warden::start(plan, tell).await;
        let _ = known.set(warden.clone());
        // Children may want to add others while they start, so the launch comes after that.
        let _ = warden.send_message(Order::Launch);
        Self { warden, stage }
    }

    /// Waits until every child is up for the first time, or says how the tree ended before that.
    pub async fn up(&self) -> Result<(), End> {
        let mut stage = self.stage.clone();
        let reached = stage
            .wait_for(|stage| match stage {
                Stage::Up | Stage::Over(_) => true,
                Stage::Starting => false,
            })
            .await;
        match reached.as_deref() {
            Ok(Stage::Over(end)) => Err(end.clone()),
            Ok(Stage::Up | Stage::Starting) => Ok(()),
            Err(_) => Err(broken()),
        }
    }

    /// Stops all children in reverse order, each within its deadline, and waits for that.
    pub async fn shutdown(&self) -> End {
        self.request_shutdown();
        self.ended().await
    }

    /// Asks for the shutdown without waiting for it.
    pub fn request_shutdown(&self) {
        // A warden that is gone has nothing left to stop.
        let _ = self.warden.send_message(Order::Shutdown);
    }

    /// Waits until the tree has ended, by a shutdown or because its root gave up. All children are down then.
    pub async fn ended(&self) -> End {
        let mut stage = self.stage.clone();
        let reached = stage
            .wait_for(|stage| matches!(stage, Stage::Over(_)))
            .await;
        match reached.as_deref() {
            Ok(Stage::Over(end)) => end.clone(),
            Ok(Stage::Up | Stage::Starting) | Err(_) => broken(),
        }
    }

    /// How all members are doing, in the order of the drawing; empty when the tree has ended.
    pub async fn view(&self) -> Vec<View> {
        view(&self.warden).await
    }
}

async fn view(warden: &ActorRef<Order>) -> Vec<View> {
    let (reply, answer) = oneshot::channel();
    match warden.send_message(Order::Look(reply)) {
        Ok(()) => answer.await.unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.request_shutdown();
    }
}

/// The warden itself is gone, and with it all it watched.
fn broken() -> End {
    End::GaveUp(Fault::bug("the warden of the tree is gone").into())
}

/// A place from which a tree is seen, for its members and others. Cheap to clone.
#[derive(Clone)]
pub struct Lookout(Arc<OnceLock<ActorRef<Order>>>);

impl Lookout {
    pub(crate) fn new(warden: Arc<OnceLock<ActorRef<Order>>>) -> Self {
        Self(warden)
    }

    /// How all members are doing, in the order of the drawing; empty before the tree has started and when it has ended.
    pub async fn view(&self) -> Vec<View> {
        match self.0.get() {
            Some(warden) => view(warden).await,
            None => Vec::new(),
        }
    }

    /// Makes an actor fail, for tests of what follows. False: nobody is at that place.
    pub async fn strike(&self, path: &Path, blow: Blow) -> bool {
        let Some(warden) = self.0.get() else {
            return false;
        };
        let (reply, answer) = oneshot::channel();
        let order = Order::Strike {
            path: path.clone(),
            blow,
            reply,
        };
        warden.send_message(order).is_ok() && answer.await.unwrap_or(false)
    }
}

impl fmt::Debug for Lookout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lookout")
    }
}

/// A dynamic supervisor of a tree. Cheap to clone.
#[derive(Clone)]
pub struct Dynamic {
    path: Path,
    warden: Arc<OnceLock<ActorRef<Order>>>,
}

impl Dynamic {
    pub(crate) fn new(path: Path, warden: Arc<OnceLock<ActorRef<Order>>>) -> Self {
        Self { path, warden }
    }

    /// Adds a child and waits until it is up. One that does not start the first time is not kept.
    pub async fn add<A: Actor>(
        &self,
        child: Child,
        arguments: A::Arguments,
    ) -> Result<Address<A::Message>, Refusal> {
        let address = Address::new(self.path.join(&child.id));
        let (reply, answer) = oneshot::channel();
        let order = Order::Add {
            parent: self.path.clone(),
            child,
            role: Box::new(Part::<A> {
                arguments,
                address: address.clone(),
            }),
            reply,
        };
        let warden = self.warden.get().ok_or(Refusal::Down)?;
        warden.send_message(order).map_err(|_| Refusal::Down)?;
        answer.await.map_err(|_| Refusal::Down)??;
        Ok(address)
    }

    /// Stops a child within its deadline and forgets it. Returns at once; one that is not there is left alone.
    pub fn remove(&self, id: &str) {
        if let Some(warden) = self.warden.get() {
            // A warden that is gone has removed everything.
            let _ = warden.send_message(Order::Remove(self.path.join(id)));
        }
    }

    /// Where it stands in its tree.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Dynamic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Dynamic({})", self.path)
    }
}
