//! What an actor is.

use std::future::Future;

use holdfast_supervision::Fault;

use crate::Me;

/// A part of the program with a mailbox and a state of its own, under a supervisor.
///
/// The implementing type is a name without fields. Methods are written as `async fn`.
///
/// - `start` makes the state. Until it returns, the actor is not up: what stands after it has not started.
/// - `handle` is called with one message at a time. It must not block its thread, and must be done within
///   half the child's ping deadline, or the actor is replaced; what takes longer is a task ([`Me::spawn`]).
/// - `stop` is called when the actor is told to stop or ends itself ([`Me::end`]), never after a failure, a panic or a
///   kill. What has to happen in any case belongs into the `Drop` of the state.
///
/// A failure or panic of either, and of any task of the actor, ends the actor; its supervisor decides what follows.
pub trait Actor: Send + Sync + Sized + 'static {
    /// What it can be told.
    type Message: Send + 'static;
    /// What it is born with. Kept by its parent and given again at every restart.
    type Arguments: Clone + Send + Sync + 'static;
    /// What it remembers. Lost at a restart.
    type State: Send + 'static;

    /// How many messages may wait for it; the next one is refused.
    const MAILBOX: usize = 1024;

    /// Makes the state.
    fn start(
        me: &Me<Self::Message>,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::State, Fault>> + Send;

    /// Deals with one message.
    fn handle(
        me: &Me<Self::Message>,
        message: Self::Message,
        state: &mut Self::State,
    ) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Leaves in good order, within the child's shutdown deadline. The actor's tasks still run meanwhile.
    fn stop(me: &Me<Self::Message>, state: Self::State) -> impl Future<Output = ()> + Send {
        let _ = me;
        async move { drop(state) }
    }
}
