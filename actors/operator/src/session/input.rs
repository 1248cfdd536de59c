//! Reads our input on a thread of its own, which never keeps us from ending.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::{mpsc, oneshot};

use super::terminal;

/// Passes `input` on until it ends or nobody wants it; then the sender is dropped. What is answered holds the error, from before that
/// on, if it could not be read to its end.
///
/// Where the session outlasts us, a terminal that was hung up has not ended its input: the sender is kept until we end, and what
/// the session hears of it is SIGHUP, if it is to hear of it at all.
pub(crate) fn pump(
    input: OwnedFd,
    sink: mpsc::Sender<Bytes>,
    outlasts: bool,
) -> io::Result<oneshot::Receiver<io::Error>> {
    let (tell, unread) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("stdin".into())
        .stack_size(STACK);
    thread
        .spawn(move || {
            let input = File::from(input);
            let stays = outlasts.then(|| input.try_clone().ok()).flatten();
            if let Err(error) = pass_on(input, &sink) {
                // Whoever has ended already does not want to know.
                let _untold = tell.send(error);
            }
            if stays.is_some_and(|input| is_hung_up(&input)) {
                std::mem::forget(sink);
            }
        })
        .map(|_detached| unread)
}

fn pass_on(mut input: File, sink: &mpsc::Sender<Bytes>) -> io::Result<()> {
    let _unstopped = terminal::never_stopped();
    let terminal = input.is_terminal();
    let mut buffer = vec![0; CHUNK];
    loop {
        if sink.is_closed() {
            return Ok(());
        }
        // In the background the terminal is somebody else's. Nothing tells us when that changes (a shell's `fg` sends a
        // running job no signal), so look again now and then.
        if terminal && !terminal::in_foreground(input.as_fd()) {
            thread::sleep(LOOK_AGAIN);
            continue;
        }
        match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                let chunk = Bytes::copy_from_slice(&buffer[..count]);
                if sink.blocking_send(chunk).is_err() {
                    return Ok(());
                }
            }
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EINTR) => {}
                Some(Errno::EAGAIN) => wait(&input),
                // It became the background between our look and our read.
                Some(Errno::EIO) if terminal && !terminal::in_foreground(input.as_fd()) => {}
                // Of a terminal that is gone it is the end; and what `nohup` gives is open for writing only: there is none.
                Some(Errno::EIO) if terminal => return Ok(()),
                Some(Errno::EBADF) => return Ok(()),
                Some(_) | None => return Err(error),
            },
        }
    }
}

fn is_hung_up(input: &File) -> bool {
    let mut looked = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let seen = poll(&mut looked, PollTimeout::ZERO);
    let hung_up = looked[0]
        .revents()
        .is_some_and(|events| events.contains(PollFlags::POLLHUP));
    // The end of a pipe is told in the same way, and means what it says. A terminal that is gone is none any more to
    // `isatty`, but still a character device.
    let is_device = input
        .metadata()
        .is_ok_and(|input| input.file_type().is_char_device());
    seen.is_ok() && hung_up && is_device
}

/// Waits until there is something to read: somebody has made our input non-blocking.
fn wait(input: &File) {
    let mut readable = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let _looked_at_by_the_next_read = poll(&mut readable, PollTimeout::NONE);
}

const CHUNK: usize = 64 * 1024;
const STACK: usize = 64 * 1024;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hung_up_terminal_is_told_from_an_input_that_ended() {
        let terminal = nix::pty::openpty(None, None).expect("a terminal");
        let slave = File::from(terminal.slave);
        assert!(!is_hung_up(&slave));

        drop(terminal.master);
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(writer);

        assert!(is_hung_up(&slave));
        assert!(!is_hung_up(&File::from(OwnedFd::from(reader))));
    }
}
