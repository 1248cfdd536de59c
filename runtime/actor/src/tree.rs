//! A tree before it runs: which actor stands in which place.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use holdfast_clock::{Clock, Seed};
use holdfast_supervision::{Flaw, Node, Path, Strategy, Supervisor};
use ractor::{ActorCell, ActorRef, SpawnErr};

use crate::mailbox::{Mailbox, Prod};
use crate::root::{Dynamic, Lookout, Root};
use crate::shell::{Boarding, Post, Shell};
use crate::warden::{Order, Plan};
use crate::{Actor, Address, Handle, Observer};

/// A tree whose places are being filled.
///
/// Addresses can be had before the actors are there, so that each actor's arguments can hold those of others.
pub struct Tree {
    spec: Supervisor,
    parts: Parts,
    addresses: HashMap<Path, Box<dyn Any + Send>>,
    warden: Arc<OnceLock<ActorRef<Order>>>,
}

/// What is wrong with a tree that was to be started.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// The tree as it is written.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Flawed(Vec<Flaw>),
    /// A child without an actor.
    #[error("{0}: no actor is bound to this child")]
    Unbound(Path),
    /// An actor without a child.
    #[error("{0}: an actor is bound to a child that is not in the tree")]
    Stray(Path),
}

impl Tree {
    /// A tree of this shape, all places empty.
    pub fn new(spec: Supervisor) -> Self {
        Self {
            spec,
            parts: Parts::default(),
            addresses: HashMap::new(),
            warden: Arc::new(OnceLock::new()),
        }
    }

    /// Puts an actor in the place with this path (`keeper/outside/uplink`).
    pub fn bind<A: Actor>(&mut self, path: &str, arguments: A::Arguments) -> Address<A::Message> {
        let path = Path::new(path);
        let address = self.place(&path);
        let part = Part::<A> {
            arguments,
            address: address.clone(),
        };
        self.parts.0.insert(path, Box::new(part));
        address
    }

    /// The address of the place with this path, for an actor that is bound before or after.
    ///
    /// # Panics
    ///
    /// When the place was spoken of with another kind of message before.
    pub fn address<M: Send + 'static>(&mut self, path: &str) -> Address<M> {
        self.place(&Path::new(path))
    }

    /// The dynamic supervisor with this path, to add children to once the tree runs.
    pub fn dynamic(&self, path: &str) -> Dynamic {
        Dynamic::new(Path::new(path), Arc::clone(&self.warden))
    }

    /// Looks at the tree once it runs, from within or without.
    pub fn lookout(&self) -> Lookout {
        Lookout::new(Arc::clone(&self.warden))
    }

    /// Starts the tree on the present tokio runtime. It starts its children one after the other; see
    /// [`Root::up`].
    ///
    /// The clock is [`Clock::tokio`], so that a test that pauses the runtime's time pauses this.
    pub async fn start(self, seed: Seed, observer: impl Observer) -> Result<Root, Unfit> {
        let flaws = self.spec.flaws();
        if !flaws.is_empty() {
            return Err(Unfit::Flawed(flaws));
        }
        let mut places = Vec::new();
        leaves(&self.spec, &Path::new(&self.spec.id), &mut places);
        if let Some(path) = places.iter().find(|path| !self.parts.has(path)) {
            return Err(Unfit::Unbound(path.clone()));
        }
        if let Some(path) = self.parts.0.keys().find(|path| !places.contains(path)) {
            return Err(Unfit::Stray(path.clone()));
        }
        let plan = Plan {
            spec: self.spec,
            parts: self.parts,
            clock: Clock::tokio(),
            seed,
            observer: Box::new(observer),
        };
        Ok(Root::start(plan, &self.warden).await)
    }

    fn place<M: Send + 'static>(&mut self, path: &Path) -> Address<M> {
        let address = self
            .addresses
            .entry(path.clone())
            .or_insert_with(|| Box::new(Address::<M>::new(path.clone())))
            .downcast_ref::<Address<M>>();
        address
            .unwrap_or_else(|| panic!("{path}: spoken of with two kinds of message"))
            .clone()
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tree({})", self.spec.id)
    }
}

/// The paths of all children that do work.
fn leaves(spec: &Supervisor, path: &Path, places: &mut Vec<Path>) {
    if matches!(spec.strategy, Strategy::Dynamic { .. }) {
        return;
    }
    for node in &spec.children {
        let place = path.join(node.id());
        match node {
            Node::Child(_) => places.push(place),
            Node::Supervisor(spec) => leaves(spec, &place, places),
        }
    }
}

/// Which actor stands in which place.
#[derive(Default)]
pub(crate) struct Parts(HashMap<Path, Box<dyn Role>>);

impl Parts {
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&dyn Role> {
        self.0.get(path).map(AsRef::as_ref)
    }

    pub(crate) fn insert(&mut self, path: Path, role: Box<dyn Role>) {
        self.0.insert(path, role);
    }

    pub(crate) fn remove(&mut self, path: &Path) {
        self.0.remove(path);
    }
}

/// How the warden begins a life, whatever the actor.
pub(crate) trait Role: Send + Sync {
    fn hire(&self, post: Post) -> Hiring<'_>;
}

pub(crate) type Hiring<'a> = Pin<Box<dyn Future<Output = Result<Hired, SpawnErr>> + Send + 'a>>;

/// A life that has begun.
pub(crate) struct Hired {
    pub(crate) cell: ActorCell,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) prod: Box<dyn Fn(Prod) + Send + Sync>,
}

/// An actor and what it is born with.
pub(crate) struct Part<A: Actor> {
    pub(crate) arguments: A::Arguments,
    pub(crate) address: Address<A::Message>,
}

impl<A: Actor> Role for Part<A> {
    fn hire(&self, post: Post) -> Hiring<'_> {
        Box::pin(async move {
            let mailbox = Arc::new(Mailbox::new(A::MAILBOX));
            let (path, generation) = (post.path.clone(), post.generation);
            let warden = post.warden.get_cell();
            let boarding = Boarding::<A> {
                arguments: self.arguments.clone(),
                address: self.address.clone(),
                mailbox: Arc::clone(&mailbox),
                post,
            };
            let (cell, _) =
                ractor::Actor::spawn_linked(None, Shell::<A>::new(), boarding, warden).await?;
            let handle = Handle::new(path, generation, cell.clone(), Arc::clone(&mailbox));
            Ok(Hired {
                cell: cell.get_cell(),
                mailbox,
                prod: Box::new(move |prod| {
                    // One that is gone is reported by its end.
                    let _ = handle.prod(prod);
                }),
            })
        })
    }
}
