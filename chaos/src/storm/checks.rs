//! What must hold in every history; one invariant a file.

mod delay;
mod healing;
mod intensity;
mod once;
mod order;
mod shutdown;
mod together;
mod want;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use holdfast_supervision::{Backoff, Child, Intensity, Node, Path, Restart, Strategy, Supervisor};

use crate::storm::{Fact, History, Violation};

/// Everything in a history that should not be.
pub fn all(spec: &Supervisor, history: &History) -> Vec<Violation> {
    let shape = Shape::of(spec, history);
    let checks: [(&'static str, Check); 8] = [
        ("no child runs twice", once::check),
        (
            "no window has more restarts than the intensity",
            intensity::check,
        ),
        ("a delay is between the least and the most", delay::check),
        ("children start in order and stop in reverse", order::check),
        ("who falls together comes back together", together::check),
        ("a shutdown ends in time with nobody left", shutdown::check),
        ("want of a resource never climbs", want::check),
        ("what may live lives when the storm is over", healing::check),
    ];
    let mut violations = Vec::new();
    for (name, check) in checks {
        if let Err(what) = check(&shape, history) {
            violations.push(Violation { check: name, what });
        }
    }
    violations
}

type Check = fn(&Shape, &History) -> Result<(), String>;

/// Who stands where.
pub(crate) struct Shape {
    places: BTreeMap<Path, Place>,
}

/// One place in a tree.
pub(crate) struct Place {
    /// None for the root.
    pub(crate) parent: Option<Path>,
    pub(crate) index: usize,
    pub(crate) backoff: Backoff,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Leaf(Child),
    Branch {
        strategy: Strategy,
        intensity: Intensity,
    },
}

impl Shape {
    pub(crate) fn of(spec: &Supervisor, history: &History) -> Self {
        let mut shape = Self {
            places: BTreeMap::new(),
        };
        shape.add(spec, &Path::new(&spec.id), None, 0);
        shape.add_wanted(history);
        shape
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&Place> {
        self.places.get(path)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Path, &Place)> {
        self.places.iter()
    }

    /// The strategy of the supervisor over this place.
    pub(crate) fn strategy_over(&self, place: &Place) -> Option<Strategy> {
        match &self.places.get(place.parent.as_ref()?)?.kind {
            Kind::Branch { strategy, .. } => Some(*strategy),
            Kind::Leaf(_) => None,
        }
    }

    /// Those written under the same supervisor.
    pub(crate) fn siblings<'a>(
        &'a self,
        place: &'a Place,
    ) -> impl Iterator<Item = (&'a Path, &'a Place)> {
        self.places
            .iter()
            .filter(|(_, other)| other.parent.is_some() && other.parent == place.parent)
    }

    fn add(&mut self, spec: &Supervisor, path: &Path, parent: Option<Path>, index: usize) {
        let kind = Kind::Branch {
            strategy: spec.strategy,
            intensity: spec.intensity,
        };
        let place = Place {
            parent,
            index,
            backoff: spec.backoff,
            kind,
        };
        self.places.insert(path.clone(), place);
        for (index, node) in spec.children.iter().enumerate() {
            let below = path.join(node.id());
            match node {
                Node::Supervisor(spec) => self.add(spec, &below, Some(path.clone()), index),
                Node::Child(child) => self.add_child(child, below, path, index),
            }
        }
    }

    fn add_child(&mut self, child: &Child, path: Path, parent: &Path, index: usize) {
        let place = Place {
            parent: Some(parent.clone()),
            index,
            backoff: child.backoff,
            kind: Kind::Leaf(child.clone()),
        };
        self.places.insert(path, place);
    }

    /// Wanted children with one name may differ; the widest bounds of them all are kept.
    fn add_wanted(&mut self, history: &History) {
        for entry in history.entries() {
            let Fact::Wanted { path, child } = &entry.fact else {
                continue;
            };
            let parents: Vec<Path> = self
                .places
                .iter()
                .filter(|(place, _)| place.join(&child.id) == *path)
                .map(|(place, _)| place.clone())
                .collect();
            for parent in parents {
                let mut widest = child.clone();
                if let Some(Place {
                    kind: Kind::Leaf(earlier),
                    ..
                }) = self.places.get(path)
                {
                    widest.backoff.min = widest.backoff.min.min(earlier.backoff.min);
                    widest.backoff.max = widest.backoff.max.max(earlier.backoff.max);
                    widest.shutdown = widest.shutdown.max(earlier.shutdown);
                }
                self.add_child(&widest, path.clone(), &parent, usize::MAX);
            }
        }
    }
}

impl Place {
    /// Whether it has to come back whatever it ended with.
    pub(crate) fn is_permanent(&self) -> bool {
        match &self.kind {
            Kind::Leaf(child) => child.restart == Restart::Permanent,
            Kind::Branch { .. } => true,
        }
    }
}
