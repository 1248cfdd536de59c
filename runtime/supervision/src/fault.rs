//! Why something ended, sorted by what has to follow.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io;

use crate::Path;

/// What a failure calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Something went wrong that a fresh start may cure. Counted.
    Failed,
    /// The machine is short of something (descriptors, memory, buffers). Never counted, never climbs: it is
    /// tried again with backoff for as long as it takes.
    Exhausted,
    /// No restart can cure it (a wrong configuration, a missing program). It climbs to the root at once.
    Final,
    /// Our own mistake, such as a panic. Counted.
    Bug,
}

impl Class {
    /// Sorts a Linux error number: `ENOMEM`, `ENFILE`, `EMFILE` and `ENOBUFS` are want, all others failures.
    pub const fn of_errno(errno: i32) -> Self {
        match errno {
            ENOMEM | ENFILE | EMFILE | ENOBUFS => Self::Exhausted,
            _ => Self::Failed,
        }
    }

    /// The word for records and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Exhausted => "exhausted",
            Self::Final => "final",
            Self::Bug => "bug",
        }
    }
}

// errno(3), the same numbers on every Linux architecture that Rust's standard library supports but MIPS and SPARC.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

/// A failure of a child, with its class.
///
/// Made from any error by `?`. Its class is then [`Class::Exhausted`] if an [`io::Error`] that tells of want is
/// among its causes and [`Class::Failed`] otherwise.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    class: Class,
    what: Cow<'static, str>,
}

impl Fault {
    /// A failure of this class; `what` is a bare verb phrase with the place in it.
    pub fn new(class: Class, what: impl Into<Cow<'static, str>>) -> Self {
        Self {
            class,
            what: what.into(),
        }
    }

    /// Something a fresh start may cure.
    pub fn failed(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Class::Failed, what)
    }

    /// Want of a resource.
    pub fn exhausted(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Class::Exhausted, what)
    }

    /// What no restart can cure.
    pub fn last(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Class::Final, what)
    }

    /// Our own mistake.
    pub fn bug(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Class::Bug, what)
    }

    /// The same failure with the step it happened in before it: `bind resolver: address in use`.
    #[must_use]
    pub fn during(self, step: impl fmt::Display) -> Self {
        Self {
            class: self.class,
            what: format!("{step}: {}", self.what).into(),
        }
    }

    /// The same failure in another class.
    #[must_use]
    pub fn classed(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// What it calls for.
    pub const fn class(&self) -> Class {
        self.class
    }
}

// Not an `Error` itself, so that this cannot overlap with the conversion of a `Fault` into itself.
impl<E: Error + 'static> From<E> for Fault {
    fn from(error: E) -> Self {
        let mut what = error.to_string();
        let mut class = Class::Failed;
        let mut link: Option<&(dyn Error + 'static)> = Some(&error);
        let mut first = true;
        while let Some(cause) = link {
            if !first {
                what = format!("{what}: {cause}");
            }
            if tells_of_want(cause) {
                class = Class::Exhausted;
            }
            first = false;
            link = cause.source();
        }
        Self::new(class, what)
    }
}

fn tells_of_want(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| {
        error.kind() == io::ErrorKind::OutOfMemory
            || error
                .raw_os_error()
                .is_some_and(|errno| Class::of_errno(errno) == Class::Exhausted)
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.what)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.what, self.class.as_str())
    }
}

/// Why a child is no longer there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It had nothing left to do, or was told to stop.
    Ended,
    /// It failed.
    Fault(Fault),
    /// It did not answer within its deadline.
    Stuck,
    /// Its start took longer than it may.
    StartTooLong,
    /// Something other than its supervisor killed it.
    Killed,
    /// It outlived its kill: it holds a thread that only the end of the process can take back.
    Wedged,
    /// A supervisor needed more restarts than it may make, or one that cannot help.
    GaveUp {
        /// The child whose failure was one too many.
        child: Path,
        /// What that child failed with.
        because: Box<Reason>,
    },
}

impl Reason {
    /// What it calls for.
    pub fn class(&self) -> Class {
        match self {
            Self::Fault(fault) => fault.class(),
            Self::GaveUp { because, .. } => match because.class() {
                Class::Final => Class::Final,
                Class::Failed | Class::Exhausted | Class::Bug => Class::Failed,
            },
            Self::Wedged => Class::Final,
            Self::Ended | Self::Stuck | Self::StartTooLong | Self::Killed => Class::Failed,
        }
    }

    /// The child at the bottom of it and what it failed with, through every supervisor that gave up over it.
    pub fn root_cause(&self) -> (Option<&Path>, &Self) {
        let (mut child, mut reason) = (None, self);
        while let Self::GaveUp {
            child: below,
            because,
        } = reason
        {
            (child, reason) = (Some(below), because);
        }
        (child, reason)
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => out.write_str("ended"),
            Self::Fault(fault) => write!(out, "{fault}"),
            Self::Stuck => out.write_str("did not answer within its deadline"),
            Self::StartTooLong => out.write_str("did not start within its deadline"),
            Self::Killed => out.write_str("was killed"),
            Self::Wedged => out.write_str("blocks a thread and cannot be killed"),
            Self::GaveUp { child, because } => write!(out, "gave up over {child}: {because}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("open the log")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn want_is_found_among_the_causes_of_an_error() {
        for errno in [ENOMEM, ENFILE, EMFILE, ENOBUFS] {
            let fault = Fault::from(Outer(io::Error::from_raw_os_error(errno)));
            assert_eq!(fault.class(), Class::Exhausted, "errno {errno}");
            assert!(fault.to_string().starts_with("open the log: "), "{fault}");
        }
        let refused = Fault::from(Outer(io::Error::from_raw_os_error(111)));
        assert_eq!(refused.class(), Class::Failed);
    }

    #[test]
    fn what_no_restart_cures_stays_so_on_its_way_up() {
        let reason = Reason::GaveUp {
            child: Path::new("a/b"),
            because: Box::new(Fault::last("open /etc/x: no such file").into()),
        };
        assert_eq!(reason.class(), Class::Final);
        let (child, cause) = reason.root_cause();
        assert_eq!(child, Some(&Path::new("a/b")));
        assert_eq!(cause.to_string(), "open /etc/x: no such file");
    }
}
