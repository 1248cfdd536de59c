//! The ractor actor around each of ours.
//!
//! ```text
//!   Waiting ── post_start: start ──▶ Serving ── post_stop: stop ──▶ Left
//! ```
//!
//! The start happens in `post_start`, after the actor is linked to its warden: so it runs in the actor's own task, can be
//! killed, and its failure is reported like any other. ractor's `pre_start` would run in the warden.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use holdfast_clock::{Clock, Seed};
use holdfast_supervision::{Fault, Generation, Path};
use ractor::{ActorProcessingErr, ActorRef};

use crate::address::{Address, Seat};
use crate::life::Life;
use crate::mailbox::{Blow, Envelope, Mailbox, Prod};
use crate::warden::Order;
use crate::{Actor, Handle, Me};

/// Runs one life of an `A`.
pub(crate) struct Shell<A>(PhantomData<fn() -> A>);

/// What one life is begun with.
pub(crate) struct Boarding<A: Actor> {
    pub(crate) arguments: A::Arguments,
    pub(crate) address: Address<A::Message>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) post: Post,
}

/// Where one life stands.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) path: Path,
    pub(crate) generation: Generation,
    pub(crate) warden: ActorRef<Order>,
    pub(crate) clock: Clock,
    pub(crate) seed: Seed,
}

/// One life. Dropped in this order: the address is vacated, the tasks are told to end, the state goes, and last of all
/// the hold on the life.
pub(crate) struct Cabin<A: Actor> {
    seat: Option<Seat<A::Message>>,
    me: Owner<A::Message>,
    phase: Phase<A>,
    address: Address<A::Message>,
    _life: Arc<Life>,
}

enum Phase<A: Actor> {
    Waiting(A::Arguments),
    Serving(A::State),
    Left,
}

/// Ends the tasks with the life.
struct Owner<M: Send + 'static>(Me<M>);

impl<M: Send + 'static> Drop for Owner<M> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Carries a fault through ractor's idea of an error.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Fault);

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

impl std::error::Error for Failure {}

impl<A: Actor> Shell<A> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<A: Actor> ractor::Actor for Shell<A> {
    type Msg = Envelope<A::Message>;
    type State = Cabin<A>;
    type Arguments = Boarding<A>;

    async fn pre_start(
        &self,
        cell: ActorRef<Self::Msg>,
        boarding: Boarding<A>,
    ) -> Result<Cabin<A>, ActorProcessingErr> {
        let Boarding {
            arguments,
            address,
            mailbox,
            post,
        } = boarding;
        let life = Arc::new(Life::new(post.generation, post.warden));
        let handle = Handle::new(post.path, post.generation, cell.clone(), mailbox);
        let me = Me::new(handle, cell.get_cell(), &life, post.clock, post.seed);
        Ok(Cabin {
            seat: None,
            me: Owner(me),
            phase: Phase::Waiting(arguments),
            address,
            _life: life,
        })
    }

    async fn post_start(
        &self,
        _: ActorRef<Self::Msg>,
        cabin: &mut Cabin<A>,
    ) -> Result<(), ActorProcessingErr> {
        let Phase::Waiting(arguments) = std::mem::replace(&mut cabin.phase, Phase::Left) else {
            unreachable!("a life is started once");
        };
        let me = &cabin.me.0;
        let state = A::start(me, arguments).await.map_err(Failure)?;
        cabin.phase = Phase::Serving(state);
        cabin.seat = Some(cabin.address.take(me.handle().clone()));
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Self::Msg>,
        envelope: Envelope<A::Message>,
        cabin: &mut Cabin<A>,
    ) -> Result<(), ActorProcessingErr> {
        let me = &cabin.me.0;
        let message = match envelope {
            Envelope::Message(message, credit) => {
                drop(credit);
                message
            }
            Envelope::Note(message) => message,
            Envelope::Prod(Prod::Ping) => {
                me.beat();
                return Ok(());
            }
            Envelope::Prod(Prod::Strike(Blow::Panic)) => panic!("struck"),
            Envelope::Prod(Prod::Strike(Blow::Hang)) => std::future::pending().await,
        };
        if let Phase::Serving(state) = &mut cabin.phase {
            A::handle(me, message, state).await.map_err(Failure)?;
        }
        me.beat();
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Self::Msg>,
        cabin: &mut Cabin<A>,
    ) -> Result<(), ActorProcessingErr> {
        drop(cabin.seat.take());
        let phase = std::mem::replace(&mut cabin.phase, Phase::Left);
        let me = &cabin.me.0;
        if let Some(fault) = me.fault() {
            drop(phase);
            return Err(Failure(fault).into());
        }
        if let Phase::Serving(state) = phase {
            A::stop(me, state).await;
        }
        me.close();
        Ok(())
    }
}
