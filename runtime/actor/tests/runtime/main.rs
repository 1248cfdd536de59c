//! Each sentence the crate says of itself, on a real runtime. Time is paused: what waits is woken in order, at once.

mod dynamics;
mod escalation;
mod mailbox;
mod puppet;
mod restarts;
mod shutdown;
mod strikes;
mod stuck;
mod tasks;
mod usage;
