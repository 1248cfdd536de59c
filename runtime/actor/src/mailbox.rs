//! The bounded door of an actor.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_supervision::{Generation, Path};
use ractor::ActorRef;
use tokio::sync::oneshot;

/// Why a message did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// The mailbox holds as many messages as it may.
    #[error("deliver: the mailbox is full")]
    Full,
    /// This life of the actor is over, or nobody lives at the address.
    #[error("deliver: the actor is gone")]
    Gone,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The mailbox holds as many messages as it may.
    #[error("ask: the mailbox is full")]
    Full,
    /// The actor is gone, or let the question drop.
    #[error("ask: the actor is gone")]
    Gone,
    /// The deadline passed.
    #[error("ask: no answer before the deadline")]
    Late,
}

impl From<Undelivered> for Unanswered {
    fn from(undelivered: Undelivered) -> Self {
        match undelivered {
            Undelivered::Full => Self::Full,
            Undelivered::Gone => Self::Gone,
        }
    }
}

/// Reaches one life of one actor. Cheap to clone.
pub struct Handle<M> {
    pub(crate) path: Path,
    pub(crate) generation: Generation,
    cell: ActorRef<Envelope<M>>,
    mailbox: Arc<Mailbox>,
}

impl<M: Send + 'static> Handle<M> {
    pub(crate) fn new(
        path: Path,
        generation: Generation,
        cell: ActorRef<Envelope<M>>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        Self {
            path,
            generation,
            cell,
            mailbox,
        }
    }

    /// Leaves a message, without ever waiting.
    pub fn send(&self, message: M) -> Result<(), Undelivered> {
        let credit = Mailbox::admit(&self.mailbox).ok_or(Undelivered::Full)?;
        self.post(Envelope::Message(message, credit))
    }

    /// Asks a question: `question` makes the message, with the means to reply in it. Waits for the answer until the
    /// deadline.
    pub async fn ask<T: Send>(
        &self,
        question: impl FnOnce(Reply<T>) -> M + Send,
        deadline: Duration,
    ) -> Result<T, Unanswered> {
        let (reply, answer) = oneshot::channel();
        self.send(question(Reply(reply)))?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Unanswered::Gone),
            Err(_) => Err(Unanswered::Late),
        }
    }

    /// Which actor this is a life of.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which life it is.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.mailbox.depth.load(Ordering::Relaxed)
    }

    /// How many messages were refused because the mailbox was full.
    pub fn refused(&self) -> u64 {
        self.mailbox.refused.load(Ordering::Relaxed)
    }

    /// The actor's own messages to itself are few and take no room.
    pub(crate) fn note(&self, message: M) -> Result<(), Undelivered> {
        self.post(Envelope::Note(message))
    }

    pub(crate) fn beat(&self) {
        self.mailbox.beat();
    }

    pub(crate) fn prod(&self, prod: Prod) -> Result<(), Undelivered> {
        self.post(Envelope::Prod(prod))
    }

    fn post(&self, envelope: Envelope<M>) -> Result<(), Undelivered> {
        self.cell
            .send_message(envelope)
            .map_err(|_| Undelivered::Gone)
    }
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self {
            path: self.path.clone(),
            generation: self.generation,
            cell: self.cell.clone(),
            mailbox: Arc::clone(&self.mailbox),
        }
    }
}

impl<M> fmt::Debug for Handle<M> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.path, self.generation)
    }
}

/// The means to answer a question. Dropped without a word, the asker hears that the actor is gone.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// Answers. Whether the asker still waits is the asker's business.
    pub fn send(self, answer: T) {
        let _ = self.0.send(answer);
    }

    /// Whether the asker has given up.
    pub fn is_late(&self) -> bool {
        self.0.is_closed()
    }
}

/// What an actor's ractor mailbox holds.
pub(crate) enum Envelope<M> {
    Message(M, Credit),
    Note(M),
    Prod(Prod),
}

/// What the warden itself says to an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prod {
    /// Show that you live.
    Ping,
    /// Fail like this.
    Strike(Blow),
}

/// How an actor is made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// It panics.
    Panic,
    /// It deals with nothing any more, until it is replaced. Its tasks go on.
    Hang,
}

/// Counts what waits. ractor's own mailbox has no bound; this is ours.
#[derive(Debug)]
pub(crate) struct Mailbox {
    capacity: usize,
    depth: AtomicUsize,
    refused: AtomicU64,
    beats: AtomicU64,
}

impl Mailbox {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            depth: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            beats: AtomicU64::new(0),
        }
    }

    fn admit(this: &Arc<Self>) -> Option<Credit> {
        let room = this
            .depth
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |depth| {
                (depth < this.capacity).then_some(depth + 1)
            });
        if room.is_err() {
            this.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Credit(Arc::clone(this)))
    }

    /// Something was dealt with.
    fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// How much was dealt with so far.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

/// Room for one message; given back when the message is taken out or thrown away.
#[derive(Debug)]
pub(crate) struct Credit(Arc<Mailbox>);

impl Drop for Credit {
    fn drop(&mut self) {
        self.0.depth.fetch_sub(1, Ordering::AcqRel);
    }
}
