//! Reads the output of one session: an actor for each that runs.
//!
//! ```text
//!  Shelf ── start ──> Lent ──┬── its stream is at its end ──────────> gone, and told
//!    ▲                       └── the actor falls ──┬── once too often ──> gone, and told
//!    └─────────────────────────────────────────────┘
//! ```
//!
//! A fall costs no byte: what was read stands in the session's ring, and what was not waits in the pipe for the actor's next
//! life. Whoever lets go of a stream for good tells the session, in whatever way that happens, so that nobody waits for the rest
//! of it ([`Reader`]).

use std::sync::Arc;

use holdfast_actor::{Actor, Child, Dynamic, Fault, Me};
use parking_lot::Mutex;

use crate::sessions::Reader;

/// Reads one session's output.
pub(crate) struct Session;

/// What is read. It outlives the actor, for the next one to go on with.
#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<Shelved>);

#[derive(Debug, Default)]
struct Shelved {
    readers: Vec<Reader>,
    /// How many actors have had them.
    lives: u32,
}

impl Actor for Session {
    type Message = std::convert::Infallible;
    type Arguments = Arc<Shelf>;
    type State = ();

    async fn start(me: &Me<Self::Message>, shelf: Arc<Shelf>) -> Result<(), Fault> {
        let readers = shelf.lend().into_iter().map(Lent::read);
        let all = futures_util::future::join_all(readers);
        let this = me.clone();
        me.spawn(async move {
            all.await;
            this.end();
            Ok(())
        });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

/// Gives the session `id` an actor that reads its output.
pub(crate) async fn read(sessions: &Dynamic, id: u64, readers: Vec<Reader>) -> Result<(), Fault> {
    let child = Child::transient(&id.to_string());
    sessions
        .add::<Session>(child, Arc::new(Shelf::of(readers)))
        .await
        .map(drop)
        .map_err(|refusal| Fault::exhausted(refusal.to_string()))
}

impl Shelf {
    fn of(readers: Vec<Reader>) -> Self {
        Self(Mutex::new(Shelved { readers, lives: 0 }))
    }

    /// Everything that is here, for one life; nothing when there have been too many.
    fn lend(self: &Arc<Self>) -> Vec<Lent> {
        let readers = {
            let mut shelved = self.0.lock();
            shelved.lives += 1;
            let readers = std::mem::take(&mut shelved.readers);
            if shelved.lives > MOST_LIVES {
                drop(shelved);
                tracing::error!("a session's reader falls again and again: its output ends here");
                return Vec::new();
            }
            readers
        };
        let lent = |reader| Lent {
            reader: Some(reader),
            shelf: Arc::clone(self),
        };
        readers.into_iter().map(lent).collect()
    }
}

/// A reader that comes back to its shelf unless it has read everything.
struct Lent {
    reader: Option<Reader>,
    shelf: Arc<Shelf>,
}

impl Lent {
    async fn read(mut self) {
        if let Some(reader) = &mut self.reader {
            reader.run().await;
        }
        self.reader = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.shelf.0.lock().readers.extend(self.reader.take());
    }
}

/// How many lives one session's reader has: a session that fells it every time must not bring down those of all the others.
const MOST_LIVES: u32 = 3;
