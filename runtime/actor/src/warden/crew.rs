//! The lives that are there, from the warden's side.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use holdfast_clock::Moment;
use holdfast_supervision::{Event, Generation, Node, Path, Reason, Supervisor};
use ractor::{ActorCell, ActorId};

use crate::mailbox::Prod;
use crate::tree::Hired;

/// Everyone who is there.
pub(super) struct Crew {
    members: HashMap<Generation, Member>,
    generations: HashMap<ActorId, Generation>,
    pings: HashMap<Path, Duration>,
    /// How many have each of the ping deadlines.
    deadlines: BTreeMap<Duration, usize>,
    watched: Moment,
}

/// An actor is no more, and why; things that belong to it may still be there.
pub(super) struct Parting(pub(super) Reason);

struct Member {
    path: Path,
    hired: Hired,
    phase: Phase,
    vacated: bool,
    /// Whether its end was ordered.
    dismissed: bool,
}

/// Where a member is on its way. A ping is sent to whoever dealt with nothing since the last look.
enum Phase {
    Starting,
    Heard { beats: u64 },
    Asked { beats: u64, since: Moment },
    Stuck,
    Parted { serving: bool, reason: Reason },
}

impl Crew {
    pub(super) fn new(spec: &Supervisor) -> Self {
        let mut crew = Self {
            members: HashMap::new(),
            generations: HashMap::new(),
            pings: HashMap::new(),
            deadlines: BTreeMap::new(),
            watched: Moment::ORIGIN,
        };
        crew.collect(spec, &Path::new(&spec.id));
        crew
    }

    /// One that may come.
    pub(super) fn expect(&mut self, path: Path, ping: Duration) {
        self.forget(&path);
        self.pings.insert(path, ping);
        *self.deadlines.entry(ping).or_default() += 1;
    }

    pub(super) fn forget(&mut self, path: &Path) {
        let Some(ping) = self.pings.remove(path) else {
            return;
        };
        if let Entry::Occupied(mut sharing) = self.deadlines.entry(ping) {
            *sharing.get_mut() -= 1;
            if *sharing.get() == 0 {
                sharing.remove();
            }
        }
    }

    fn collect(&mut self, spec: &Supervisor, path: &Path) {
        for node in &spec.children {
            let place = path.join(node.id());
            match node {
                Node::Child(child) => self.expect(place, child.ping),
                Node::Supervisor(spec) => self.collect(spec, &place),
            }
        }
    }

    pub(super) fn join(&mut self, path: Path, generation: Generation, hired: Hired) {
        self.generations.insert(hired.cell.get_id(), generation);
        self.members.insert(
            generation,
            Member {
                path,
                hired,
                phase: Phase::Starting,
                vacated: false,
                dismissed: false,
            },
        );
    }

    pub(super) fn started(&mut self, cell: &ActorCell) -> Option<Event> {
        let generation = *self.generations.get(&cell.get_id())?;
        let member = self.members.get_mut(&generation)?;
        member.phase = Phase::Heard {
            beats: member.hired.mailbox.beats(),
        };
        Some(Event::Started {
            path: member.path.clone(),
            generation,
        })
    }

    /// The actor is no more.
    pub(super) fn parted(&mut self, cell: &ActorCell, parting: Parting) -> Option<Event> {
        let generation = self.generations.remove(&cell.get_id())?;
        let member = self.members.get_mut(&generation)?;
        let serving = !matches!(member.phase, Phase::Starting);
        if member.vacated {
            let path = member.path.clone();
            let dismissed = member.dismissed;
            self.members.remove(&generation);
            return Some(report(path, generation, (serving, dismissed), parting.0));
        }
        member.phase = Phase::Parted {
            serving,
            reason: parting.0.clone(),
        };
        Some(Event::Dying {
            path: member.path.clone(),
            generation,
            reason: parting.0,
        })
    }

    /// Nothing that belongs to this life is left.
    pub(super) fn vacated(&mut self, generation: Generation) -> Option<Event> {
        let member = self.members.get_mut(&generation)?;
        member.vacated = true;
        let Phase::Parted { serving, reason } = &member.phase else {
            return None;
        };
        let (serving, reason) = (*serving, reason.clone());
        let (path, dismissed) = (member.path.clone(), member.dismissed);
        self.members.remove(&generation);
        Some(report(path, generation, (serving, dismissed), reason))
    }

    pub(super) fn stop(&mut self, generation: Generation) {
        if let Some(member) = self.members.get_mut(&generation) {
            member.dismissed = true;
            member.hired.cell.stop(None);
        }
    }

    pub(super) fn kill(&mut self, generation: Generation) {
        if let Some(member) = self.members.get_mut(&generation) {
            member.dismissed = true;
            member.hired.cell.kill();
        }
    }

    /// Says something to the one at `path`; false when nobody is up there.
    pub(super) fn prod(&self, path: &Path, prod: Prod) -> bool {
        let mut members = self.members.values();
        let found = members.find(|member| {
            member.path == *path
                && matches!(member.phase, Phase::Heard { .. } | Phase::Asked { .. })
        });
        if let Some(member) = found {
            (member.hired.prod)(prod);
        }
        found.is_some()
    }

    /// Looks at everyone who is up: whoever was asked and has not answered for half its ping deadline is stuck.
    ///
    /// A look that comes much too late says that the whole process stood still, stopped or starved: then nobody had a chance to
    /// answer, and everybody who was asked gets the time once more.
    pub(super) fn watch(&mut self, now: Moment) -> Vec<Event> {
        let due = self.next_watch(self.watched);
        if now < due {
            return Vec::new();
        }
        let stood_still = now - due > due - self.watched;
        self.watched = now;
        let mut stuck = Vec::new();
        for (&generation, member) in &mut self.members {
            let present = member.hired.mailbox.beats();
            match member.phase {
                Phase::Heard { beats } if beats == present => {
                    (member.hired.prod)(Prod::Ping);
                    member.phase = Phase::Asked { beats, since: now };
                }
                Phase::Asked { beats, .. } if beats == present && stood_still => {
                    member.phase = Phase::Asked { beats, since: now };
                }
                Phase::Asked { beats, since } if beats == present => {
                    let patience = self
                        .pings
                        .get(&member.path)
                        .map_or(PATIENCE, |ping| *ping / 2);
                    if now - since >= patience {
                        member.phase = Phase::Stuck;
                        stuck.push(Event::Stuck {
                            path: member.path.clone(),
                            generation,
                        });
                    }
                }
                Phase::Heard { .. } | Phase::Asked { .. } => {
                    member.phase = Phase::Heard { beats: present };
                }
                Phase::Starting | Phase::Stuck | Phase::Parted { .. } => {}
            }
        }
        stuck
    }

    /// When to look again: four times within the shortest ping deadline of all.
    pub(super) fn next_watch(&self, now: Moment) -> Moment {
        match self.deadlines.keys().next() {
            Some(shortest) => self.watched.max(now - *shortest / 4) + *shortest / 4,
            None => Moment::NEVER,
        }
    }
}

/// For a member whose deadline was never said, which does not happen.
const PATIENCE: Duration = Duration::from_secs(5);

fn report(
    path: Path,
    generation: Generation,
    (serving, dismissed): (bool, bool),
    reason: Reason,
) -> Event {
    if dismissed && reason == Reason::Ended {
        Event::Stopped { path, generation }
    } else if serving {
        Event::Fell {
            path,
            generation,
            reason,
        }
    } else {
        Event::StartFailed {
            path,
            generation,
            reason,
        }
    }
}
