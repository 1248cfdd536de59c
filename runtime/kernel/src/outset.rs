//! What this process was given when it began, before the standard library opened `/dev/null` in the place of what was not open.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether stdout was open. A closed one takes everything by now, and drops it.
pub fn had_stdout() -> bool {
    !CLOSED.load(Ordering::Relaxed)
}

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Run by the loader, before `main` and before the standard library's start.
// SAFETY: what the loader finds in this section it calls as a C function with arguments that need not be taken; this is one, and it
// needs nothing that only `main` or the standard library's start sets up: it makes one system call and stores one word.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: F_GETFD reads the flags of a number; one that is not open is an answer.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// This test program, once more: it tells by its status what it saw.
    #[test]
    fn a_closed_stdout_is_told_from_one_that_is_dev_null() {
        if std::env::args().any(|argument| argument == TELL) {
            std::process::exit(if had_stdout() { OPEN } else { SHUT });
        }
        let itself = std::env::current_exe().expect("a program");
        let told = |line: &str| {
            let name = "outset::tests::a_closed_stdout_is_told_from_one_that_is_dev_null";
            let mut command = Command::new("/bin/sh");
            command.args(["-c", line, "sh"]).arg(&itself);
            let command = command.args([name, "--exact", "--skip", TELL]);
            let status = command.stdin(Stdio::null()).status();
            status.expect("a shell").code()
        };

        assert_eq!(told("exec \"$@\" >&-"), Some(SHUT));
        assert_eq!(told("exec \"$@\" <>/dev/null >&0"), Some(OPEN));
    }

    const TELL: &str = "tell-what-was-seen";
    const OPEN: i32 = 40;
    const SHUT: i32 = 41;
}
