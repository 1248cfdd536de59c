//! The shepherd of a herded session: a process between launcher and program to which everything falls that the session
//! leaves behind.
//!
//! ```text
//!  launcher ── shepherd ──┬── the program, in a session of its own
//!              (subreaper) └── whatever its descendants have left: double forks, sessions of their own
//! ```
//!
//! So the whole tree of a session can be found, and ended, by its shepherd's number. It does nothing but wait: it says which
//! process the program is and how that has ended, and ends when it has no child any more. It holds none of the session's
//! descriptors. What it costs, a process of a few pages, only herded sessions pay.
//!
//! All shepherds speak over one pipe ([`News`]): a word is written at once and never mixes with another, and hearing one costs
//! the same however many herds there are.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use holdfast_kernel::execute::close_all_but;
use holdfast_kernel::fork::{Ended, Forked, fork, leave, wait_any};
use holdfast_kernel::look::parent;
use holdfast_kernel::{Called, Error};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sched::CloneFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, pipe2, read, write};

/// A herd, as the launcher knows it.
#[derive(Debug)]
pub(super) struct Herd {
    pub(super) session: u64,
    /// The program, as soon as its shepherd has said which one it is.
    pub(super) program: Option<Pid>,
    /// Whether it is known that the program runs: nobody hears of its end before.
    pub(super) started: bool,
    /// Whether its time was up before its end was known.
    pub(super) overdue: bool,
    /// How the program has ended.
    ended: Option<Ended>,
    /// Whether that has been told.
    over: bool,
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) program: Ended,
    /// It was killed because its time was up.
    pub(super) timed_out: bool,
}

/// The pipe over which the shepherds tell.
#[derive(Debug)]
pub(super) struct News {
    pub(super) heard: OwnedFd,
    /// Every shepherd has a copy.
    pub(super) told: OwnedFd,
}

/// What a shepherd says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// This is the program.
    Program(Pid),
    /// The program has ended.
    Ended(Ended),
}

impl Herd {
    /// A herd of which nothing has been heard.
    pub(super) fn new(session: u64) -> Self {
        Self {
            session,
            program: None,
            started: false,
            overdue: false,
            ended: None,
            over: false,
        }
    }

    /// Its shepherd has said this.
    pub(super) fn hear(&mut self, word: Word) {
        match word {
            Word::Program(pid) => self.program = Some(pid),
            Word::Ended(ended) => self.ended = Some(ended),
        }
    }

    /// How the program has ended, once, if that can be told.
    pub(super) fn end(&mut self) -> Option<End> {
        let program = self.ended.filter(|_| self.started && !self.over)?;
        self.over = true;
        // One that ended by itself while it was about to be killed has its own status.
        let killed = program == Ended::Signalled(Signal::SIGKILL as i32);
        Some(End {
            program,
            timed_out: self.overdue && killed,
        })
    }

    /// Whether the program's end is known.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether the program's end has been told.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

impl News {
    /// No shepherd has it yet.
    pub(super) fn new() -> Result<Self, Error> {
        let (heard, told) = pipe2(OFlag::O_CLOEXEC).called("pipe2")?;
        fcntl(&heard, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).called("fcntl O_NONBLOCK")?;
        Ok(Self { heard, told })
    }

    /// The shepherds' words so far, each with who said it.
    pub(super) fn hear(&self) -> Vec<(Pid, Word)> {
        let (mut words, mut buffer) = (Vec::new(), [0; MOST_WORDS * WORD]);
        // There is little, and it is read without waiting; a word is written at once, so a read ends between two.
        while let Ok(length @ 1..) = read(&self.heard, &mut buffer) {
            let said = buffer[..length].as_chunks::<WORD>().0;
            words.extend(said.iter().filter_map(decode));
        }
        words
    }
}

impl AsFd for News {
    /// What is readable when there is news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }
}

fn encode(shepherd: Pid, word: Word) -> [u8; WORD] {
    let (kind, value) = match word {
        Word::Program(pid) => (PROGRAM, pid.as_raw()),
        Word::Ended(Ended::Exited(code)) => (CODE, code),
        Word::Ended(Ended::Signalled(signal)) => (SIGNAL, signal),
    };
    let mut bytes = [0; WORD];
    let numbers = [shepherd.as_raw(), kind, value];
    for (place, number) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
        *place = number.to_ne_bytes();
    }
    bytes
}

fn decode(bytes: &[u8; WORD]) -> Option<(Pid, Word)> {
    let mut numbers = bytes.as_chunks::<4>().0.iter();
    let mut number = || numbers.next().map(|number| i32::from_ne_bytes(*number));
    let (shepherd, kind, value) = (Pid::from_raw(number()?), number()?, number()?);
    let word = match kind {
        PROGRAM => Word::Program(Pid::from_raw(value)),
        CODE => Word::Ended(Ended::Exited(value)),
        SIGNAL => Word::Ended(Ended::Signalled(value)),
        _ => return None,
    };
    Some((shepherd, word))
}

/// Becomes the shepherd of a process that goes on with `become_program`, which is the only one to return. What it learns
/// goes to `news`.
pub(super) fn shepherd(news: &OwnedFd) -> Result<(), Error> {
    nix::sys::prctl::set_child_subreaper(true).called("prctl PR_SET_CHILD_SUBREAPER")?;
    match fork(CloneFlags::empty())? {
        Forked::Child => Ok(()),
        Forked::Parent(program) => {
            let pid = program.pid.as_raw();
            drop(program);
            let kept = news.as_raw_fd();
            let done = close_all_but(&[0, 1, 2, kept]).and_then(|()| tend(pid, news));
            leave(i32::from(done.is_err()))
        }
    }
}

/// Waits for everything that falls to this process.
fn tend(program: i32, news: &OwnedFd) -> Result<(), Error> {
    let (own, program) = (getpid(), Pid::from_raw(program));
    let say = |word| write(news, &encode(own, word)).map(drop).called("write");
    say(Word::Program(program))?;
    while let Some((pid, ended)) = wait_any()? {
        if pid == program {
            say(Word::Ended(ended))?;
        }
    }
    Ok(())
}

/// Sends `signal` to every process below the shepherds. A process with a deadly signal makes no child any more, so looking
/// again until nobody new is there finds all.
pub(super) fn signal_all(shepherds: &[Pid], signal: Signal) {
    if shepherds.is_empty() {
        return;
    }
    let roots: Vec<i32> = shepherds.iter().map(|shepherd| shepherd.as_raw()).collect();
    let mut reached = HashSet::new();
    for _ in 0..ROUNDS {
        let mut fresh = below(&roots, &processes());
        fresh.retain(|pid| reached.insert(*pid));
        if fresh.is_empty() {
            return;
        }
        for pid in fresh {
            // One that has just ended is no error.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        if signal != Signal::SIGKILL {
            return;
        }
    }
}

/// Every process that runs below one of `roots`, given each one with its parent.
fn below(roots: &[i32], processes: &[(i32, i32)]) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in processes {
        children.entry(*parent).or_default().push(*pid);
    }
    let own = roots.iter().filter_map(|root| children.remove(root));
    let mut found: Vec<i32> = own.flatten().collect();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Every process of this namespace with its parent.
fn processes() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, parent(pid.unsigned_abs()).ok()?.cast_signed()))
        })
        .collect()
}

const CODE: i32 = 0;
const SIGNAL: i32 = 1;
const PROGRAM: i32 = 2;

/// The bytes of a word: who says it, what, and a number. Far less than what a pipe takes at once.
const WORD: usize = 12;

/// How many words are read at a time.
const MOST_WORDS: usize = 64;

/// How often new processes are looked for.
const ROUNDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_many_shepherds_come_over_one_pipe() {
        let news = News::new().expect("a pipe");
        let pid = Pid::from_raw;
        let mut said = Vec::new();
        for shepherd in 1..200 {
            for word in [
                Word::Program(pid(shepherd + 1)),
                Word::Ended(Ended::Exited(shepherd % 256)),
                Word::Ended(Ended::Signalled(9)),
            ] {
                write(&news.told, &encode(pid(shepherd), word)).expect("written");
                said.push((pid(shepherd), word));
            }
        }

        assert_eq!(news.hear(), said);
        assert!(news.hear().is_empty());
    }

    #[test]
    fn an_end_is_told_once_and_behind_the_beginning() {
        let mut herd = Herd::new(7);
        herd.hear(Word::Program(Pid::from_raw(5)));
        assert_eq!(herd.program, Some(Pid::from_raw(5)));
        herd.hear(Word::Ended(Ended::Exited(3)));

        assert_eq!(herd.end(), None, "nobody knows that it runs");
        herd.started = true;
        let end = herd.end().expect("told");
        assert_eq!((end.program, end.timed_out), (Ended::Exited(3), false));
        assert_eq!(herd.end(), None);
        assert!(herd.is_over());
    }

    #[test]
    fn only_who_was_killed_for_its_limit_has_timed_out() {
        let timed_out = |overdue, ended| {
            let mut herd = Herd::new(7);
            (herd.started, herd.overdue) = (true, overdue);
            herd.hear(Word::Ended(ended));
            herd.end().expect("told").timed_out
        };

        assert!(timed_out(true, Ended::Signalled(9)));
        assert!(!timed_out(false, Ended::Signalled(9)), "somebody else did");
        assert!(
            !timed_out(true, Ended::Exited(0)),
            "by itself, just in time"
        );
        assert!(!timed_out(true, Ended::Signalled(11)));
    }

    #[test]
    fn everything_below_is_found_and_nothing_beside() {
        let processes = [(1, 0), (5, 1), (6, 5), (9, 6), (7, 1), (8, 7), (4, 9)];

        let mut found = below(&[5], &processes);

        found.sort_unstable();
        assert_eq!(found, [4, 6, 9]);
        assert!(below(&[8], &processes).is_empty());
        let mut all = below(&[5, 7, 8], &processes);
        all.sort_unstable();
        assert_eq!(all, [4, 6, 8, 9]);
    }
}
