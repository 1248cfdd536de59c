//! Obeys supervision on ractor: bounded mailboxes, generations, ordered shutdown.
//!
//! An [`Actor`] is written against this crate alone. A [`Tree`] binds actors to the places of a
//! `holdfast_supervision::Supervisor` and starts it; from then on one *warden* per tree asks
//! `holdfast_supervision::Tree` what follows each event, and obeys.
//!
//! ```text
//!   Root ── shutdown, ended ──▶ warden ── Start · Stop · Kill · Ping ──▶ shell of each actor
//!                                 ▲                                        │ start · handle · stop
//!                                 │ Started · Failed · Terminated          ▼
//!                                 └──────────── its last task ended ── the actor and its tasks
//! ```
//!
//! What holds for everything that runs here:
//!
//! - A full mailbox says [`Undelivered::Full`] at once; nobody ever waits to send.
//! - A [`Handle`] reaches one life of one actor. After that life it says [`Undelivered::Gone`], and never reaches
//!   a successor. An [`Address`] reaches whoever lives there now.
//! - A task belongs to an actor: it ends with it, and its failure or panic is the actor's.
//! - A life is over when the actor, its state and the last of its tasks are dropped. Only then is that reported to
//!   the tree, so a successor finds ports, files and locks free.
//! - Nobody waits downward: the warden tells and is told.
//!
//! One thing cannot be had inside a process: a handler that blocks its thread cannot be killed. It is given
//! ten seconds to come to a point where it waits; then the whole tree ends with `Reason::Wedged`, since only the end of the
//! process takes a thread back. Blocking calls therefore belong into [`Me::offload`].

mod actor;
mod address;
mod life;
mod mailbox;
mod me;
mod observer;
mod root;
mod shell;
mod tasks;
mod told;
mod tree;
mod warden;

pub use actor::Actor;
pub use address::Address;
pub use mailbox::{Blow, Handle, Reply, Unanswered, Undelivered};
pub use me::Me;
pub use observer::Observer;
pub use root::{Dynamic, Lookout, Root};
pub use tasks::Task;
pub use told::rows;
pub use tree::{Tree, Unfit};

pub use holdfast_clock::{Clock, Moment, Seed};
pub use holdfast_supervision::{
    Backoff, Change, Child, Class, End, Fault, Generation, Intensity, Next, Node, Path, Reason,
    Refusal, Restart, Strategy, Supervisor, View, What, assert_drawn, draw,
};
