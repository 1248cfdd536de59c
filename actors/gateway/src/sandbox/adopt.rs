//! Between the registry and a life: what is written down of it, and how it is found again.

use std::io;

use holdfast_actor::{Me, Moment};
use holdfast_wire::v1;

use super::ground::Ground;
use super::{Arguments, Message, State};
use crate::life::{After, Alive, End, Found, Life, Restart, Stage, Why};
use crate::processes::Watched;
use crate::registry::row::{self, Kind, Process, Row};

/// Finds a sandbox as the last gateway left it.
pub(super) fn adopt(me: &Me<Message>, arguments: Arguments, row: Row) -> io::Result<State> {
    let (host, now) = (&arguments.host, me.now());
    let ground = Ground(host.places.sandbox_runtime(&row.id));
    let policy = match row.request().restart() {
        v1::RestartPolicy::Never => Restart::Never,
        v1::RestartPolicy::OnFailure => Restart::OnFailure,
        v1::RestartPolicy::Always => Restart::Always,
    };
    let mut life = Life::new(policy, me.seed(), now);
    (life.generation, life.epoch) = (row.generation, row.epoch);
    (life.restarts, life.keepers) = (row.restarts, row.keepers);
    let mut state = State {
        ground,
        life,
        last: None,
        stream: 0,
        cut_off: false,
        keeper: None,
        boundary: None,
        commands: Vec::new(),
        waiting: Vec::new(),
        timer: None,
        behind: None,
        stored: row.clone(),
        removed: false,
        arguments,
        row,
    };
    let why = Why::new(&state.row.reason, state.row.message.clone());
    let running = match state.row.stage() {
        Kind::Pending if state.row.generation == 0 => return Ok(state),
        Kind::Pending => {
            state.life.stage = Stage::Pending { at: now, why };
            return Ok(state);
        }
        Kind::Stopped => {
            state.life.stage = Stage::Stopped { why };
            return Ok(state);
        }
        Kind::Failed => {
            state.life.stage = Stage::Failed { why };
            return Ok(state);
        }
        Kind::Running => true,
        Kind::Ending => false,
    };
    let (alive, found) = state.found()?;
    let found = if running {
        found
    } else {
        Found::Ending(after(&state.row, why, now))
    };
    let (life, commands) = state.life.clone().adopted(alive, found, now);
    state.life = life;
    state.commands = commands;
    Ok(state)
}

fn after(row: &Row, why: Why, now: Moment) -> After {
    match row.after() {
        row::After::Stop => After::Stop(why),
        row::After::Fail => After::Fail(why),
        row::After::Begin => After::Begin { at: now, why },
        row::After::Delete => After::Delete,
    }
}

/// Whether there was a keeper of a generation of which none is found.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    /// None was started that did anything.
    No,
    /// One was being started when somebody looked.
    Perhaps,
    Yes,
}

impl Begun {
    /// `locked`: whether its spec was, before anybody looked for its processes.
    fn of(row: &Row, ground: &Ground, locked: bool) -> io::Result<Self> {
        Ok(if row.keeper.is_some() || row.boundary.is_some() {
            Self::Yes
        } else if ground.generation() != Some(row.generation) {
            Self::No
        } else if locked {
            Self::Perhaps
        } else if ground.keeper()?.is_some() || ground.has_words() {
            Self::Yes
        } else {
            Self::No
        })
    }
}

impl State {
    /// What is left of a generation that ran.
    fn found(&mut self) -> io::Result<(Alive, Found)> {
        let same_boot = self.is_same_boot();
        // In this order: a keeper that lets go of its spec in between has written itself down, and is found.
        let locked = same_boot && self.ground.is_locked()?;
        if same_boot {
            self.find()?;
        }
        let mut alive = Alive {
            keeper: self.keeper.is_some(),
            boundary: self.boundary.is_some(),
        };
        let mut end = None;
        if same_boot && alive == Alive::default() {
            match Begun::of(&self.row, &self.ground, locked)? {
                Begun::No => return Ok((alive, Found::Unbegun)),
                Begun::Perhaps => {
                    alive = Alive {
                        keeper: true,
                        boundary: true,
                    };
                }
                Begun::Yes => end = self.ended(),
            }
        }
        let gone = if same_boot {
            "the sandbox died while no gateway was there"
        } else {
            "the host was started anew"
        };
        let died = Found::Running {
            gone: Why::new("BoundaryLost", gone),
        };
        Ok((alive, end.map_or(died, Found::Over)))
    }

    /// How the sandbox ended while no gateway was there, if its keeper had the time to say so.
    fn ended(&mut self) -> Option<End> {
        let end = self.ground.end(None, false);
        if let Some(last) = self.ground.last() {
            self.row.main.clone_from(&last.main);
            self.last = Some(last);
        }
        (!matches!(end, End::Crashed { .. })).then_some(end)
    }

    /// Looks for the processes that the registry knows of.
    fn find(&mut self) -> io::Result<()> {
        self.keeper = match self.row.keeper.clone() {
            Some(known) => self.arguments.host.processes.find(&known)?,
            None => self.find_keeper()?,
        };
        self.boundary = match self.row.boundary.clone() {
            Some(known) => self.arguments.host.processes.find(&known)?,
            None => self.find_boundary()?,
        };
        Ok(())
    }

    /// The keeper that has written itself down, if it lives.
    pub(super) fn find_keeper(&self) -> io::Result<Option<Watched>> {
        self.living(self.ground.keeper()?)
    }

    /// The boundary that nobody has told of: its keeper has not reported yet, or died before it could. It is written down before it
    /// begins, and one that is not ends without having done anything.
    pub(super) fn find_boundary(&self) -> io::Result<Option<Watched>> {
        self.living(self.ground.boundary()?)
    }

    fn living(&self, written: Option<Process>) -> io::Result<Option<Watched>> {
        match written.filter(|_| self.is_same_boot()) {
            Some(process) => self.arguments.host.processes.find(&process),
            None => Ok(None),
        }
    }

    /// Whether this generation was begun since the host was started: what is written of its processes holds.
    fn is_same_boot(&self) -> bool {
        self.row.boot == self.arguments.host.processes.boot()
    }

    /// Brings the row up to date with what has to be on disk now, and says whether that is not there yet.
    pub(super) fn note(&mut self) -> bool {
        let life = &self.life;
        let (stage, after, why) = match &life.stage {
            Stage::Pending { why, .. } => (Kind::Pending, row::After::Stop, Some(why)),
            Stage::Starting { .. }
            | Stage::Up { .. }
            | Stage::Adopting { .. }
            | Stage::Silent { .. }
            | Stage::KeeperDown { .. } => (Kind::Running, row::After::Stop, None),
            Stage::Ending { after, .. } => match after {
                After::Stop(why) => (Kind::Ending, row::After::Stop, Some(why)),
                After::Fail(why) => (Kind::Ending, row::After::Fail, Some(why)),
                After::Begin { why, .. } => (Kind::Ending, row::After::Begin, Some(why)),
                After::Delete => (Kind::Ending, row::After::Delete, None),
            },
            Stage::Stopped { why } => (Kind::Stopped, row::After::Stop, Some(why)),
            Stage::Failed { why } => (Kind::Failed, row::After::Stop, Some(why)),
            Stage::Deleting { .. } => (Kind::Ending, row::After::Delete, None),
        };
        let row = &mut self.row;
        (row.stage, row.after) = (stage.into(), after.into());
        let (reason, message) = why.map_or(("", ""), |why| (&*why.reason, &*why.message));
        reason.clone_into(&mut row.reason);
        message.clone_into(&mut row.message);
        (row.generation, row.epoch) = (life.generation, life.epoch);
        (row.restarts, row.keepers) = (life.restarts, life.keepers);
        row.keeper = Self::process(self.keeper.as_ref());
        row.boundary = Self::process(self.boundary.as_ref());
        !self.removed && self.row != self.stored
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use holdfast_wire::shared::{FAILED, KEEPER_PID};

    use super::*;

    #[test]
    fn a_generation_has_begun_when_a_keeper_was_given_what_it_needs_and_started() {
        let base = tempfile::tempdir().expect("a directory");
        let ground = Ground(base.path().join("01J"));
        let begun = |row: &Row| {
            let locked = ground.is_locked().expect("looked");
            Begun::of(row, &ground, locked).expect("read")
        };
        let mut row = Row {
            generation: 2,
            ..Row::default()
        };

        assert_eq!(begun(&row), Begun::No, "nothing is there");
        let prepare = |generation| {
            let spec = v1::Spec {
                generation,
                epoch: 1,
                ..v1::Spec::default()
            };
            ground.prepare(&spec).expect("prepared")
        };
        let _others = prepare(1);
        assert_eq!(begun(&row), Begun::No, "what is there is the last one's");
        let gateways = prepare(2);
        let keepers = gateways.try_clone().expect("a duplicate");
        assert_eq!(begun(&row), Begun::Perhaps, "about to be started");
        drop(gateways);
        assert_eq!(begun(&row), Begun::Perhaps, "started, and not written down");
        drop(keepers);
        assert_eq!(begun(&row), Begun::No, "it died before it did anything");
        fs::write(ground.0.join(KEEPER_PID), "7 7\n").expect("written");
        assert_eq!(begun(&row), Begun::Yes);
        fs::remove_file(ground.0.join(KEEPER_PID)).expect("removed");
        fs::write(ground.0.join(FAILED), []).expect("written");
        assert_eq!(begun(&row), Begun::Yes, "its word is there");

        fs::remove_dir_all(&ground.0).expect("removed");
        row.boundary = Some(Process { pid: 7, start: 7 });
        assert_eq!(begun(&row), Begun::Yes, "somebody removed its directory");
    }
}
