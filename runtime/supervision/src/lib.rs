//! Decides what follows a death: supervision trees as values.
//!
//! ```text
//!              events, in the past tense             commands, in the imperative
//!  the world ─────────────────────────────▶ Tree ─────────────────────────────▶ the world
//!             Started · Fell · Woke · Stuck  step   Start · Stop · Kill · Wake · Tell
//! ```
//!
//! Nothing here waits, starts or kills anything, reads a clock or knows what a child is: [`Tree::step`] is told what
//! happened and when, and answers what is to be done. Whoever obeys must report the end of whatever it started,
//! once, and wake the tree when it asked for it; then these hold:
//!
//! - No child runs twice: a successor is started only after the end of its predecessor was reported.
//! - Children start in the order in which they are written and stop in the reverse order.
//! - Restarts come after a delay between the least and the most of the child's [`Backoff`], never more of them
//!   in any window than the [`Intensity`] of their supervisor says; one that needs more gives up, which is a
//!   failure of a child of *its* parent.
//! - Want of a resource ([`Class::Exhausted`]) is never counted and never climbs: the child waits and tries
//!   again for as long as it takes.
//! - A tree that is going down starts nothing any more.
//! - A shutdown ends: every wait has a deadline, and after a deadline comes a kill.

mod drawing;
mod event;
mod fault;
mod flaw;
mod level;
mod path;
mod slot;
mod spec;
mod tree;
mod window;

pub use drawing::{assert_drawn, draw};
pub use event::{Change, Command, End, Event, Next, Refusal, Timer, What};
pub use fault::{Class, Fault, Reason};
pub use flaw::Flaw;
pub use path::{Generation, Path};
pub use spec::{Backoff, Child, Intensity, Node, Restart, Strategy, Supervisor};
pub use tree::{Tree, View};
