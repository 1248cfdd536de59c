//! What a kernel call answered when it did not do what was asked.

use std::io;

/// A kernel call that failed: its name and the errno.
#[derive(Debug, thiserror::Error)]
#[error("{call}")]
pub struct Error {
    call: &'static str,
    #[source]
    source: io::Error,
}

/// What a kernel call answers.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The error that `call` has just left in `errno`.
    pub fn last(call: &'static str) -> Self {
        Self {
            call,
            source: io::Error::last_os_error(),
        }
    }

    /// `call` failed with `errno`, a positive number of `errno(3)`.
    pub fn new(call: &'static str, errno: i32) -> Self {
        Self {
            call,
            source: io::Error::from_raw_os_error(errno),
        }
    }

    /// The name of the call.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The errno of `errno(3)`; 0 when the error did not come from the kernel.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }

    /// The call and what the kernel answered, in one line: for whoever passes it on as a text.
    pub fn told(&self) -> String {
        let answer = self.source.to_string();
        let (answer, _) = answer.split_once(" (os error ").unwrap_or((&answer, ""));
        format!("{}: {answer}", self.call)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::from_raw_os_error(error.errno())
    }
}

/// Names the call of an error that came without a name.
pub trait Called<T> {
    /// The same answer, its error named after `call`.
    fn called(self, call: &'static str) -> Result<T>;
}

impl<T> Called<T> for nix::Result<T> {
    fn called(self, call: &'static str) -> Result<T> {
        self.map_err(|errno| Error::new(call, errno as i32))
    }
}

impl<T> Called<T> for io::Result<T> {
    fn called(self, call: &'static str) -> Result<T> {
        self.map_err(|source| Error { call, source })
    }
}

/// The answer of a raw system call: -1 means that `errno` says why.
pub(crate) fn answered(call: &'static str, answer: libc::c_long) -> Result<libc::c_long> {
    if answer < 0 {
        Err(Error::last(call))
    } else {
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_the_call_and_the_kernels_answer() {
        let refused = Error::new("open /dev/null", libc::EMFILE);
        assert_eq!(refused.told(), "open /dev/null: Too many open files");
        assert_eq!(
            refused.to_string(),
            "open /dev/null",
            "its source says the rest"
        );
    }
}
