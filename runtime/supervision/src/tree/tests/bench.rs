//! A tree on the bench: news go in by path, orders come out as text.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_clock::{Moment, Seed};

use crate::{
    Change, Child, Command, End, Event, Fault, Generation, Next, Path, Reason, Refusal, Supervisor,
    Timer, Tree, What,
};

pub(super) struct Bench {
    tree: Tree,
    now: Moment,
    generations: HashMap<Path, Generation>,
    timers: HashMap<Path, (Moment, Timer)>,
    changes: Vec<Change>,
    refusals: HashMap<Path, Refusal>,
    forgotten: Vec<Path>,
    end: Option<End>,
}

pub(super) fn failure() -> Reason {
    Fault::failed("reset by peer").into()
}

impl Bench {
    pub(super) fn new(spec: &Supervisor) -> Self {
        assert_eq!(spec.flaws(), []);
        Self {
            tree: Tree::new(spec, Seed::new(1)),
            now: Moment::ORIGIN,
            generations: HashMap::new(),
            timers: HashMap::new(),
            changes: Vec::new(),
            refusals: HashMap::new(),
            forgotten: Vec::new(),
            end: None,
        }
    }

    /// A tree in which every start has succeeded.
    pub(super) fn up(spec: &Supervisor) -> Self {
        let mut bench = Self::new(spec);
        let mut orders = bench.launch();
        while let Some(path) = orders
            .iter()
            .find_map(|order| order.strip_prefix("start ").map(str::to_owned))
        {
            orders = bench.started(&path);
        }
        bench
    }

    pub(super) fn launch(&mut self) -> Vec<String> {
        self.step(Event::Launched)
    }

    pub(super) fn shutdown(&mut self) -> Vec<String> {
        self.step(Event::ShutdownRequested)
    }

    pub(super) fn started(&mut self, path: &str) -> Vec<String> {
        let (path, generation) = self.life(path);
        self.step(Event::Started { path, generation })
    }

    pub(super) fn start_failed(&mut self, path: &str, reason: Reason) -> Vec<String> {
        let (path, generation) = self.life(path);
        self.step(Event::StartFailed {
            path,
            generation,
            reason,
        })
    }

    pub(super) fn fell(&mut self, path: &str, reason: Reason) -> Vec<String> {
        let (path, generation) = self.life(path);
        self.step(Event::Fell {
            path,
            generation,
            reason,
        })
    }

    pub(super) fn raw_fall(&mut self, path: &str, reason: Reason) -> Vec<Command> {
        let (path, generation) = self.life(path);
        let fell = Event::Fell {
            path,
            generation,
            reason,
        };
        self.tree.step(fell, self.now)
    }

    pub(super) fn late_fall(&mut self, path: &str, generation: Generation) -> Vec<String> {
        self.step(Event::Fell {
            path: path.into(),
            generation,
            reason: failure(),
        })
    }

    pub(super) fn dying(&mut self, path: &str, reason: Reason) -> Vec<String> {
        let (path, generation) = self.life(path);
        self.step(Event::Dying {
            path,
            generation,
            reason,
        })
    }

    pub(super) fn stopped(&mut self, path: &str) -> Vec<String> {
        let (path, generation) = self.life(path);
        self.step(Event::Stopped { path, generation })
    }

    pub(super) fn stuck(&mut self, path: &str) -> Vec<String> {
        let (path, generation) = self.life(path);
        self.step(Event::Stuck { path, generation })
    }

    pub(super) fn want(&mut self, parent: &str, child: Child) -> Vec<String> {
        let parent = parent.into();
        self.step(Event::Wanted { parent, child })
    }

    pub(super) fn unwant(&mut self, path: &str) -> Vec<String> {
        self.step(Event::Unwanted { path: path.into() })
    }

    /// Lets time pass and rings what is due.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        let mut due: Vec<_> = self
            .timers
            .values()
            .filter(|(at, _)| *at <= self.now)
            .cloned()
            .collect();
        due.sort_by_key(|(at, timer)| (*at, timer.ticket));
        let mut orders = Vec::new();
        for (_, timer) in due {
            self.timers.remove(&timer.path);
            orders.extend(self.step(Event::Woke(timer)));
        }
        orders
    }

    pub(super) fn generation(&self, path: &str) -> Generation {
        self.life(path).1
    }

    pub(super) fn state(&self, path: &str) -> &'static str {
        let views = self.tree.view();
        let view = views.iter().find(|view| view.path.as_str() == path);
        view.expect("it is in the tree").state
    }

    pub(super) fn last(&self, path: &str) -> Option<Reason> {
        let views = self.tree.view();
        let view = views.into_iter().find(|view| view.path.as_str() == path);
        view.expect("it is in the tree").last
    }

    /// How long a restart is waited for.
    pub(super) fn wait(&self, path: &str) -> Duration {
        let fall = self.changes.iter().rev().find_map(|change| {
            match (&change.what, change.path.as_str() == path) {
                (
                    What::Fell {
                        next: Next::Restart { at },
                        ..
                    },
                    true,
                ) => Some(*at),
                _ => None,
            }
        });
        fall.expect("it waits") - self.now
    }

    pub(super) fn heard(&self, path: &str, what: &What) -> bool {
        self.changes
            .iter()
            .any(|change| change.path.as_str() == path && change.what == *what)
    }

    pub(super) fn refusal(&self, path: &str) -> Option<Refusal> {
        self.refusals.get(&Path::new(path)).cloned()
    }

    pub(super) fn forgot(&self, path: &str) -> bool {
        self.forgotten.contains(&Path::new(path))
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end.clone()
    }

    fn life(&self, path: &str) -> (Path, Generation) {
        let path = Path::new(path);
        let generation = self.generations.get(&path).expect("it was started");
        (path, *generation)
    }

    fn step(&mut self, event: Event) -> Vec<String> {
        let mut orders = Vec::new();
        for command in self.tree.step(event, self.now) {
            match command {
                Command::Start { path, generation } => {
                    orders.push(format!("start {path}"));
                    self.generations.insert(path, generation);
                }
                Command::Stop { path, .. } => orders.push(format!("stop {path}")),
                Command::Kill { path, .. } => orders.push(format!("kill {path}")),
                Command::Wake { timer, at } => {
                    self.timers.insert(timer.path.clone(), (at, timer));
                }
                Command::Tell(change) => self.changes.push(change),
                Command::Refuse { path, refusal } => {
                    self.refusals.insert(path, refusal);
                }
                Command::Forget { path } => self.forgotten.push(path),
                Command::Finish(end) => self.end = Some(end),
            }
        }
        orders
    }
}
