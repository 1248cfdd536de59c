//! The five kinds of event, so that a level is never chosen by mood.

use tracing::Level;

/// What kind of event something is. The level follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A decision was taken. It goes to the audit stream, never to the log as an error.
    Policy,
    /// The target was gone before we got to it: everyday, counted by syscall and errno.
    Race,
    /// Something ran out; we wait and try again.
    Exhausted,
    /// A connection broke or a peer misbehaved.
    Transport,
    /// An operator must act.
    Fault,
}

impl Class {
    /// The level at which events of this class are logged.
    pub fn level(self) -> Level {
        match self {
            Self::Policy => Level::INFO,
            Self::Race => Level::DEBUG,
            Self::Exhausted | Self::Transport => Level::WARN,
            Self::Fault => Level::ERROR,
        }
    }
}

/// Logs that something ran out (WARN). Rate-limit it with [`crate::Limiter`].
#[macro_export]
macro_rules! exhausted {
    ($($arg:tt)+) => { $crate::__tracing::warn!(class = "exhausted", $($arg)+) };
}

/// Logs that a connection broke or a peer misbehaved (WARN). Rate-limit it with [`crate::Limiter`].
#[macro_export]
macro_rules! transport {
    ($($arg:tt)+) => { $crate::__tracing::warn!(class = "transport", $($arg)+) };
}

/// Logs that an operator must act (ERROR).
#[macro_export]
macro_rules! fault {
    ($($arg:tt)+) => { $crate::__tracing::error!(class = "fault", $($arg)+) };
}

/// Logs one harmless race (DEBUG). Count it with [`crate::Races`] too.
#[macro_export]
macro_rules! race {
    ($($arg:tt)+) => { $crate::__tracing::debug!(class = "race", $($arg)+) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fault_asks_an_operator_to_act() {
        let others = [
            Class::Policy,
            Class::Race,
            Class::Exhausted,
            Class::Transport,
        ];

        assert_eq!(Class::Fault.level(), Level::ERROR);
        assert!(others.iter().all(|class| class.level() > Level::ERROR));
    }
}
