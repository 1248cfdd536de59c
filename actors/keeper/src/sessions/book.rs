//! Which sessions there are and were, and how they ended.
//!
//! ```text
//! enter ──> Running ── end ──> Past ── more than HISTORY ended since ──> forgotten
//!              └ attend, leave, blame
//! ```
//!
//! An end is entered once: whoever tells of it a second time is told how it is known already.

use std::collections::{BTreeMap, HashMap, VecDeque};

use holdfast_wire::v1;
use holdfast_wire::v1::exit::How;

/// Every session that runs, and the last that are over.
#[derive(Debug, Default)]
pub(crate) struct Book {
    running: BTreeMap<u64, Running>,
    past: VecDeque<Past>,
    /// Sessions by the ids that their clients chose for the requests.
    requests: HashMap<String, u64>,
    total: u64,
    failed: u64,
}

#[derive(Debug)]
struct Running {
    note: v1::SessionNote,
    blame: Option<Blame>,
    clients: u32,
}

#[derive(Debug)]
struct Past {
    session: u64,
    note: v1::SessionNote,
    ending: v1::Ending,
}

/// Who of the keeper may be the cause of a session's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// A client sent this signal.
    Client(i32),
    /// The sandbox is being stopped.
    Halt,
}

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Known {
    Running,
    Past(v1::Ending),
}

impl Book {
    /// Takes in what an earlier keeper left at the boundary. What it does not know the note of is no session of ours.
    pub(crate) fn adopt(
        attached: &v1::AttachReply,
        note: impl Fn(&[u8]) -> Option<v1::SessionNote>,
    ) -> Self {
        let mut book = Self::default();
        for state in &attached.sessions {
            let Some(note) = note(&state.note) else {
                continue;
            };
            book.enter(state.session, note);
            if let Some(exit) = &state.exit {
                book.end(state.session, exit.clone(), Some(state), state.ended_ms);
            }
        }
        book.total = book.total.max(attached.total);
        book
    }

    /// A session has started. False when it is known already.
    pub(crate) fn enter(&mut self, session: u64, note: v1::SessionNote) -> bool {
        if self.find(session).is_some() {
            return false;
        }
        if !note.request.is_empty() {
            self.requests.insert(note.request.clone(), session);
        }
        let running = Running {
            note,
            blame: None,
            clients: 0,
        };
        self.running.insert(session, running);
        self.total += 1;
        true
    }

    /// A session could not be started.
    pub(crate) fn fail(&mut self) {
        self.failed += 1;
    }

    /// What is known of `session`.
    pub(crate) fn find(&self, session: u64) -> Option<Known> {
        if self.running.contains_key(&session) {
            return Some(Known::Running);
        }
        let past = self
            .past
            .iter()
            .rev()
            .find(|past| past.session == session)?;
        Some(Known::Past(past.ending.clone()))
    }

    /// The session that was started for `request`.
    pub(crate) fn of_request(&self, request: &str) -> Option<u64> {
        self.requests.get(request).copied()
    }

    /// The sessions that run, oldest first, with what is noted about them.
    pub(crate) fn running(&self) -> impl Iterator<Item = (u64, &v1::SessionNote)> {
        self.running
            .iter()
            .map(|(id, running)| (*id, &running.note))
    }

    /// How many run.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// A client reads it from now on.
    pub(crate) fn attend(&mut self, session: u64) {
        if let Some(running) = self.running.get_mut(&session) {
            running.clients += 1;
        }
    }

    /// A client reads it no more.
    pub(crate) fn leave(&mut self, session: u64) {
        if let Some(running) = self.running.get_mut(&session) {
            running.clients = running.clients.saturating_sub(1);
        }
    }

    /// If it ends now, this was the cause. What was said about the sandbox's end holds.
    pub(crate) fn blame(&mut self, session: u64, blame: Blame) {
        if let Some(running) = self.running.get_mut(&session) {
            match running.blame {
                None | Some(Blame::Client(_)) => running.blame = Some(blame),
                Some(Blame::Halt) => {}
            }
        }
    }

    /// A session has ended. Answers how, also when that is known already; `None` for one that was never entered or is
    /// forgotten.
    pub(crate) fn end(
        &mut self,
        session: u64,
        exit: v1::Exit,
        state: Option<&v1::SessionState>,
        now_ms: i64,
    ) -> Option<v1::Ending> {
        let Some(running) = self.running.remove(&session) else {
            return match self.find(session)? {
                Known::Past(ending) => Some(ending),
                Known::Running => None,
            };
        };
        if matches!(exit.how, Some(How::Unknown(_)) | None) {
            self.failed += 1;
        }
        let timed_out = state.is_some_and(|state| state.timed_out);
        let started = state.map_or(0, |state| state.started_ms);
        let ending = v1::Ending {
            reason: reason(timed_out, running.blame, &exit).to_owned(),
            exit: Some(exit),
            started_ms: if started == 0 {
                running.note.started_ms
            } else {
                started
            },
            ended_ms: state
                .map(|state| state.ended_ms)
                .filter(|ended| *ended != 0)
                .unwrap_or(now_ms),
            stdout_bytes: state.map_or(0, |state| state.stdout_bytes),
            stderr_bytes: state.map_or(0, |state| state.stderr_bytes),
            ..v1::Ending::default()
        };
        self.past.push_back(Past {
            session,
            note: running.note,
            ending: ending.clone(),
        });
        while self.past.len() > HISTORY {
            let forgotten = self.past.pop_front();
            if let Some(request) = forgotten.map(|past| past.note.request) {
                self.requests.remove(&request);
            }
        }
        Some(ending)
    }

    /// The boundary is gone, and with it every process: what runs has ended, and nobody knows how.
    pub(crate) fn lose(&mut self, why: &str, now_ms: i64) -> Vec<(u64, v1::Ending)> {
        let running: Vec<u64> = self.running.keys().copied().collect();
        let mut lost = Vec::new();
        for session in running {
            let exit = v1::Exit {
                how: Some(How::Unknown(why.to_owned())),
            };
            let ended = self
                .end(session, exit, None, now_ms)
                .map(|ending| v1::Ending {
                    reason: BOUNDARY_LOST.to_owned(),
                    ..ending
                });
            if let (Some(ending), Some(past)) = (ended, self.past.back_mut()) {
                past.ending = ending.clone();
                lost.push((session, ending));
            }
        }
        lost
    }

    /// How many there are.
    pub(crate) fn counts(&self) -> v1::SessionCounts {
        v1::SessionCounts {
            running: self.running.len() as u64,
            total: self.total,
            failed: self.failed,
        }
    }

    /// A row for each, those that are over first; `table` is what the boundary keeps.
    pub(crate) fn rows(&self, table: &[v1::SessionState]) -> Vec<v1::SessionRow> {
        let kept: HashMap<u64, &v1::SessionState> =
            table.iter().map(|state| (state.session, state)).collect();
        let row = |session: u64, note: &v1::SessionNote| {
            let kept = kept.get(&session);
            v1::SessionRow {
                session,
                kind: note.kind.clone(),
                arguments: note.arguments.clone(),
                terminal: note.terminal,
                started_ms: note.started_ms,
                ending: None,
                attended: false,
                from: kept.map_or(0, |state| state.from),
                to: kept.map_or(0, |state| state.to),
            }
        };
        let past = self.past.iter().map(|past| v1::SessionRow {
            ending: Some(past.ending.clone()),
            ..row(past.session, &past.note)
        });
        let running = self
            .running
            .iter()
            .map(|(session, running)| v1::SessionRow {
                attended: running.clients > 0,
                ..row(*session, &running.note)
            });
        past.chain(running).collect()
    }
}

/// Why a session ended that way. That its time was up is the launcher's word, who killed it for that.
fn reason(timed_out: bool, blame: Option<Blame>, exit: &v1::Exit) -> &'static str {
    if timed_out {
        return "Timeout";
    }
    let signal = match exit.how {
        Some(How::Signal(signal)) => Some(signal),
        Some(How::Code(_) | How::Unknown(_)) | None => None,
    };
    match (blame, signal) {
        (Some(Blame::Client(sent)), Some(signal)) if sent == signal => "Killed",
        (Some(Blame::Halt), Some(_)) => "Stopped",
        (Some(_) | None, Some(_) | None) => "",
    }
}

/// Every process died with the boundary.
pub(crate) const BOUNDARY_LOST: &str = "BoundaryLost";

/// How many sessions that are over are known.
const HISTORY: usize = 1024;

#[cfg(test)]
mod tests;
