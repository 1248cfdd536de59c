//! Results, on stdout and nowhere else.

use std::io::{self, StdoutLock, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use clap::ValueEnum;
use holdfast_kernel::outset;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tokio::time::sleep;

use crate::failure::{Failure, Kind};

/// How a result looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Words of others in a line of ours, as a terminal shows them and does not obey: what moves the cursor, colours, or turns the direction of
/// writing is written out.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_obeyed(character) && character != '\t' {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// The same for a text of several lines, whose ends stay.
pub(crate) fn harmless_lines(text: &str) -> String {
    text.lines().map(|line| harmless(line) + "\n").collect()
}

/// Whether a terminal does something for `character` instead of showing it.
pub(crate) fn is_obeyed(character: char) -> bool {
    let turns = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control()
}

/// Prints a result for people.
pub(crate) fn text(result: &str) -> Result<(), Failure> {
    written(result.as_bytes())
}

/// Writes a result to stdout as it is.
pub(crate) fn written(result: &[u8]) -> Result<(), Failure> {
    out()
        .and_then(|mut out| {
            out.write_all(result)?;
            out.flush()
        })
        .map_err(|error| Failure::output(&error))
}

/// Our stdout. One that is not open for writing, or was closed when we began, is an error here: the standard library takes everything for it, and drops it.
pub(crate) fn out() -> io::Result<StdoutLock<'static>> {
    let out = io::stdout().lock();
    let mode = fcntl(&out, FcntlArg::F_GETFL)? & libc::O_ACCMODE;
    if mode == libc::O_RDONLY || !outset::had_stdout() {
        return Err(Errno::EBADF.into());
    }
    Ok(out)
}

/// What `next` brings, as long as somebody reads the results: a pipe whose reader has left would only be noticed by the
/// next result, which may never come.
pub(crate) async fn while_read<T>(next: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        biased;
        next = next => Ok(next),
        () = unread() => Err(Failure::output(&io::ErrorKind::BrokenPipe.into())),
    }
}

/// Waits until nobody reads stdout any more. Never for anything but a pipe or a socket.
async fn unread() {
    let out = io::stdout();
    loop {
        let mut looked = [PollFd::new(out.as_fd(), PollFlags::empty())];
        if poll(&mut looked, PollTimeout::ZERO) == Ok(1)
            && looked[0]
                .revents()
                .is_some_and(|seen| seen.contains(PollFlags::POLLERR))
        {
            return;
        }
        sleep(LOOK).await;
    }
}

/// How soon it is noticed that a reader has left.
const LOOK: Duration = Duration::from_millis(250);

/// Prints a result as one JSON document on one line.
pub(crate) fn document(result: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(result)
        .map_err(|error| Failure::caused(Kind::Internal, "write the result as JSON", &error))?;
    text(&format!("{line}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out_and_the_rest_is_as_it_was() {
        assert_eq!(
            harmless("n\u{1b}[31m\n\u{9b}2J\u{202e}x"),
            "n\\u{1b}[31m\\n\\u{9b}2J\\u{202e}x"
        );
        let ordinary = "é ß 日本 \u{1f600} ‘x’ – \t…";
        assert_eq!(harmless(ordinary), ordinary);
    }
}
