//! A whole tree: what happened goes in, what is to be done comes out.

use std::fmt;

use holdfast_clock::{Moment, Seed};

use crate::level::{Level, News, Outcome, Verdict};
use crate::slot::{Numbers, Past, Role, State, Ticket, Turn};
use crate::{Change, Command, End, Event, Path, Reason, Strategy, Supervisor, What};

/// A supervision tree at work.
///
/// ```
/// use holdfast_clock::{Moment, Seed};
/// use holdfast_supervision::{Child, Command, Event, Strategy, Supervisor, Tree};
///
/// let spec = Supervisor::new("root", Strategy::OneForOne).child(Child::permanent("only"));
/// let mut tree = Tree::new(&spec, Seed::new(1));
/// let commands = tree.step(Event::Launched, Moment::ORIGIN);
/// assert!(commands.iter().any(|command| matches!(command, Command::Start { .. })));
/// ```
#[derive(Debug)]
pub struct Tree {
    root: Level,
    numbers: Numbers,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Unborn,
    Alive,
    Over,
}

/// How one member of a tree is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which one.
    pub path: Path,
    /// Who falls with whom below it; nothing for one that does work.
    pub strategy: Option<Strategy>,
    /// `idle`, `starting`, `up`, `stopping`, `killing`, `waiting`, `lost` or `done`; `down` for a supervisor at rest.
    pub state: &'static str,
    /// How often it has been restarted.
    pub restarts: u32,
    /// What it fell with most recently.
    pub last: Option<Reason>,
    /// When it is tried again, if it waits for that.
    pub next: Option<Moment>,
}

impl Tree {
    /// A tree that has yet to be launched. The same seed gives the same delays.
    pub fn new(spec: &Supervisor, seed: Seed) -> Self {
        let path = Path::new(&spec.id);
        Self {
            root: Level::new(spec, path, seed.derive(&spec.id)),
            numbers: Numbers::default(),
            stage: Stage::Unborn,
        }
    }

    /// Takes in what happened and answers what is to be done, in that order.
    pub fn step(&mut self, event: Event, now: Moment) -> Vec<Command> {
        let mut turn = Turn {
            now,
            numbers: &mut self.numbers,
            commands: Vec::new(),
            wedged: None,
            ending: self.root.is_falling(),
        };
        let outcome = match (&self.stage, event) {
            (Stage::Over, Event::Wanted { parent, child }) => {
                turn.order(Command::Refuse {
                    path: parent.join(&child.id),
                    refusal: crate::Refusal::Down,
                });
                Outcome::Nothing
            }
            (Stage::Over, _) | (Stage::Alive, Event::Launched) => Outcome::Nothing,
            (Stage::Unborn, Event::Launched) => {
                self.stage = Stage::Alive;
                self.root.rise(0, &mut turn)
            }
            (_, Event::ShutdownRequested) => self.root.fall(&mut turn),
            (_, event) => {
                let (path, news) = sort(event);
                self.root.step(&path, news, &mut turn)
            }
        };
        let outcome = match turn.wedged.take() {
            Some(path) if !matches!(outcome, Outcome::Sank(_)) => {
                self.root.give_up(path, Reason::Wedged, &mut turn);
                self.root.settle(&mut turn)
            }
            Some(_) | None => outcome,
        };
        let mut commands = turn.commands;
        match outcome {
            Outcome::Nothing => {}
            Outcome::Rose => commands.push(self.tell(What::Up)),
            Outcome::Sank(verdict) => {
                self.stage = Stage::Over;
                commands.push(self.tell(What::Stopped));
                commands.push(Command::Finish(match verdict {
                    Verdict::Told => End::ShutDown,
                    Verdict::GaveUp(reason) => End::GaveUp(reason),
                }));
            }
        }
        commands
    }

    /// How all members are doing, in the order of the drawing.
    pub fn view(&self) -> Vec<View> {
        let mut views = vec![View {
            path: self.root.path.clone(),
            strategy: Some(self.root.strategy()),
            state: self.root.stage(),
            restarts: 0,
            last: None,
            next: None,
        }];
        look(&self.root, &mut views);
        views
    }

    fn tell(&self, what: What) -> Command {
        Command::Tell(Change {
            path: self.root.path.clone(),
            what,
            restarts: self.root.restarts(),
        })
    }
}

/// Whom an event concerns.
fn sort(event: Event) -> (Path, News) {
    match event {
        Event::Started { path, generation } => (path, News::Started(generation)),
        Event::StartFailed {
            path,
            generation,
            reason,
        }
        | Event::Fell {
            path,
            generation,
            reason,
        } => (path, News::Ended(generation, reason)),
        Event::Dying {
            path,
            generation,
            reason,
        } => (path, News::Dying(generation, reason)),
        Event::Stopped { path, generation } => (path, News::Ended(generation, Reason::Ended)),
        Event::Stuck { path, generation } => (path, News::Stuck(generation)),
        Event::Woke(timer) => (timer.path, News::Woke(Ticket(timer.ticket))),
        Event::Wanted { parent, child } => (parent, News::Wanted(child)),
        Event::Unwanted { path } => (path, News::Unwanted),
        Event::Launched | Event::ShutdownRequested => {
            unreachable!("these concern the tree and are handled there")
        }
    }
}

fn look(level: &Level, views: &mut Vec<View>) {
    for slot in &level.slots {
        let mut next = None;
        let state = match &slot.state {
            State::Idle => "idle",
            State::Starting { .. } => "starting",
            State::Up { .. } => "up",
            State::Stopping { .. } => "stopping",
            State::Killing { .. } => "killing",
            State::Waiting { until, .. } => {
                next = Some(*until);
                "waiting"
            }
            State::Due { .. } => "waiting",
            State::Lost => "lost",
            State::Done => "done",
        };
        views.push(View {
            path: slot.path.clone(),
            strategy: match &slot.role {
                Role::Leaf(_) => None,
                Role::Branch(level) => Some(level.strategy()),
            },
            state,
            restarts: slot.restarts,
            last: match &slot.past {
                Past::None | Past::Served => None,
                Past::Fell(reason) => Some(reason.clone()),
            },
            next,
        });
        if let Role::Branch(level) = &slot.role {
            look(level, views);
        }
    }
}

impl fmt::Display for View {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.path, self.state)
    }
}

#[cfg(test)]
mod tests;
