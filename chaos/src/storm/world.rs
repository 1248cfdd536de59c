//! A make-believe world that obeys a tree, more or less.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use holdfast_clock::{Dice, Moment, Seed};
use holdfast_supervision::{
    Command, Event, Generation, Node, Path, Reason, Strategy, Supervisor, Timer, Tree,
};

use super::forest::child;
use super::{Fact, History, Weather};

/// A world with its tree.
#[derive(Debug)]
pub struct World {
    tree: Tree,
    weather: Weather,
    dice: Dice,
    now: Moment,
    number: u64,
    /// What is going to happen. Ties happen in the order in which they were planned.
    future: BTreeMap<(Moment, u64), Happening>,
    lives: HashMap<Generation, Life>,
    timers: HashMap<Path, (Moment, u64)>,
    dynamics: Vec<Path>,
    history: History,
    over: bool,
}

#[derive(Clone, Debug)]
enum Happening {
    News(Event),
    Up(Path, Generation),
    End(Path, Generation, Reason),
    Wish,
    Calm,
    Shutdown,
}

/// One life in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Starting,
    Up,
    /// Beyond kills: it holds its thread.
    Wedged,
}

/// How long a tree has to heal after the weather calmed down; longer than all its delays together.
const REST: Duration = Duration::from_mins(10);
/// When a tree must be over; longer than all its deadlines together.
const PATIENCE: Duration = Duration::from_hours(1);
/// More steps than any sound tree takes in that time.
const STEPS: usize = 200_000;

impl World {
    /// A world of this weather with this tree in it.
    pub fn new(spec: &Supervisor, weather: Weather, seed: Seed) -> Self {
        let mut dynamics = Vec::new();
        find_dynamics(spec, &Path::new(&spec.id), &mut dynamics);
        Self {
            tree: Tree::new(spec, seed.derive("tree")),
            weather,
            dice: seed.derive("world").dice(),
            now: Moment::ORIGIN,
            number: 0,
            future: BTreeMap::new(),
            lives: HashMap::new(),
            timers: HashMap::new(),
            dynamics,
            history: History::default(),
            over: false,
        }
    }

    /// Lets all of it happen and says what did.
    pub fn run(mut self) -> History {
        self.plan(Duration::ZERO, Happening::News(Event::Launched));
        self.plan(self.weather.calm_after, Happening::Calm);
        let end = self.weather.shutdown_after;
        // A shutdown in the storm, or one when the tree has had time to heal.
        let end = if end < self.weather.calm_after {
            end
        } else {
            self.weather.calm_after + REST
        };
        self.plan(end, Happening::Shutdown);
        if self.weather.wishes > 0 {
            self.plan(Duration::from_millis(10), Happening::Wish);
        }
        let last = Moment::ORIGIN + end + PATIENCE;
        let mut steps = 0;
        while let Some(((at, _), happening)) = self.future.pop_first() {
            steps += 1;
            if at > last || steps > STEPS {
                break;
            }
            self.now = at;
            self.happen(happening);
        }
        if !self.over {
            self.history.note(self.now, Fact::TimeIsUp);
        }
        self.history
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::News(Event::Woke(timer)) => {
                // Replaced timers are mostly not rung, as in the real world, but now and then they are.
                let present = self.timers.get(&timer.path).map(|(_, ticket)| *ticket);
                if present == Some(timer.ticket) || self.dice.chance(self.weather.echoes, 100) {
                    self.step(Event::Woke(timer));
                }
            }
            Happening::News(event) => self.step(event),
            Happening::Up(path, generation) => self.rise(path, generation),
            Happening::End(path, generation, reason) => self.end(path, generation, reason),
            Happening::Wish => self.wish(),
            Happening::Calm => {
                self.weather = self.weather.calm();
                self.history.note(self.now, Fact::Calm { rest: REST });
            }
            Happening::Shutdown => {
                self.history.note(self.now, Fact::ShutdownRequested);
                self.step(Event::ShutdownRequested);
            }
        }
    }

    fn step(&mut self, event: Event) {
        for command in self.tree.step(event, self.now) {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start { path, generation } => self.start(path, generation),
            Command::Stop { path, generation } => {
                self.note(Fact::Stop {
                    path: path.clone(),
                    generation,
                });
                if !self.hits(self.weather.deaf_stops) {
                    let delay = self.soon();
                    self.plan(delay, Happening::End(path, generation, Reason::Ended));
                }
            }
            Command::Kill { path, generation } => {
                self.note(Fact::Kill {
                    path: path.clone(),
                    generation,
                });
                if self.hits(self.weather.wedges) {
                    if let Some(life) = self.lives.get_mut(&generation) {
                        *life = Life::Wedged;
                    }
                } else {
                    let delay = self.soon();
                    self.plan(delay, Happening::End(path, generation, Reason::Killed));
                }
            }
            Command::Wake { timer, at } => self.set(timer, at),
            Command::Tell(change) => self.note(Fact::Told(change)),
            Command::Refuse { path, refusal } => self.note(Fact::Refused { path, refusal }),
            Command::Forget { path } => {
                self.timers.remove(&path);
            }
            Command::Finish(end) => {
                self.over = true;
                self.note(Fact::Finished(end));
            }
        }
    }

    fn start(&mut self, path: Path, generation: Generation) {
        self.note(Fact::Start {
            path: path.clone(),
            generation,
        });
        self.lives.insert(generation, Life::Starting);
        let delay = self.soon();
        if self.hits(self.weather.endless_starts) {
            return;
        }
        if self.hits(self.weather.failed_starts) {
            let reason = self.weather.failure(&mut self.dice);
            self.plan(delay, Happening::End(path, generation, reason));
        } else {
            self.plan(delay, Happening::Up(path, generation));
        }
    }

    fn rise(&mut self, path: Path, generation: Generation) {
        let Some(life) = self.lives.get_mut(&generation) else {
            return;
        };
        if *life == Life::Starting {
            *life = Life::Up;
            self.note(Fact::Up {
                path: path.clone(),
                generation,
            });
        }
        self.news(Event::Started {
            path: path.clone(),
            generation,
        });
        let longest = self.weather.longest;
        if self.hits(self.weather.short_lives) {
            let delay = self.dice.between(Duration::ZERO, longest);
            let reason = self.weather.failure(&mut self.dice);
            self.plan(delay, Happening::End(path, generation, reason));
        } else if self.hits(self.weather.stuck_lives) {
            let delay = self.dice.between(Duration::ZERO, longest);
            self.plan(delay, Happening::News(Event::Stuck { path, generation }));
        }
    }

    fn end(&mut self, path: Path, generation: Generation, reason: Reason) {
        let starting = match self.lives.get(&generation) {
            None | Some(Life::Wedged) => return,
            Some(Life::Starting) => true,
            Some(Life::Up) => false,
        };
        if !starting && self.dice.chance(1, 4) {
            // Something of it is left for a while.
            self.step(Event::Dying {
                path: path.clone(),
                generation,
                reason: reason.clone(),
            });
            if self.lives.get(&generation) == Some(&Life::Wedged) {
                return;
            }
        }
        self.lives.remove(&generation);
        self.note(Fact::Ended {
            path: path.clone(),
            generation,
            reason: reason.clone(),
        });
        let stopped = reason == Reason::Ended && self.dice.chance(1, 2);
        self.news(if starting {
            Event::StartFailed {
                path,
                generation,
                reason,
            }
        } else if stopped {
            Event::Stopped { path, generation }
        } else {
            Event::Fell {
                path,
                generation,
                reason,
            }
        });
    }

    /// Somebody wants a child, or wants to be rid of one.
    fn wish(&mut self) {
        if self.over || self.dynamics.is_empty() || self.weather.wishes == 0 {
            return;
        }
        let number = usize::try_from(self.dice.throw()).unwrap_or(0);
        let parent = self.dynamics[number % self.dynamics.len()].clone();
        let name = format!("w{}", self.dice.below(8));
        if self.dice.chance(1, 3) {
            let path = parent.join(&name);
            self.step(Event::Unwanted { path });
        } else {
            let child = child(&name, &mut self.dice);
            self.note(Fact::Wanted {
                path: parent.join(&name),
                child: child.clone(),
            });
            self.step(Event::Wanted { parent, child });
        }
        let pause = Duration::from_secs(200) / u32::try_from(self.weather.wishes).unwrap_or(1);
        let delay = self.dice.between(Duration::from_millis(1), pause);
        self.plan(delay, Happening::Wish);
    }

    /// Tells the tree, and now and then tells it again later.
    fn news(&mut self, event: Event) {
        if self.hits(self.weather.echoes) {
            let delay = self.dice.between(Duration::ZERO, Duration::from_secs(20));
            self.plan(delay, Happening::News(event.clone()));
        }
        self.step(event);
    }

    fn set(&mut self, timer: Timer, at: Moment) {
        self.timers.insert(timer.path.clone(), (at, timer.ticket));
        self.plan(at - self.now, Happening::News(Event::Woke(timer)));
    }

    fn plan(&mut self, delay: Duration, happening: Happening) {
        self.number += 1;
        self.future
            .insert((self.now + delay, self.number), happening);
    }

    fn note(&mut self, fact: Fact) {
        self.history.note(self.now, fact);
    }

    fn hits(&mut self, percent: u64) -> bool {
        self.dice.chance(percent, 100)
    }

    fn soon(&mut self) -> Duration {
        if self.dice.chance(1, 3) {
            Duration::ZERO
        } else {
            self.dice
                .between(Duration::ZERO, Duration::from_millis(200))
        }
    }
}

fn find_dynamics(spec: &Supervisor, path: &Path, found: &mut Vec<Path>) {
    if matches!(spec.strategy, Strategy::Dynamic { .. }) {
        found.push(path.clone());
    }
    for node in &spec.children {
        match node {
            Node::Child(_) => {}
            Node::Supervisor(spec) => find_dynamics(spec, &path.join(&spec.id), found),
        }
    }
}
