//! No child runs twice: a life begins after everything of the one before has ended.

use std::collections::BTreeMap;

use super::Shape;
use crate::storm::{Fact, History};

pub(super) fn check(_: &Shape, history: &History) -> Result<(), String> {
    let mut alive = BTreeMap::new();
    for entry in history.entries() {
        match &entry.fact {
            Fact::Start { path, generation } => {
                if let Some(earlier) = alive.insert(path.clone(), *generation) {
                    return Err(format!("{entry}, and {earlier} of it lives"));
                }
            }
            Fact::Ended { path, .. } => {
                alive.remove(path);
            }
            Fact::Up { .. }
            | Fact::Stop { .. }
            | Fact::Kill { .. }
            | Fact::Told(_)
            | Fact::Wanted { .. }
            | Fact::Refused { .. }
            | Fact::Calm { .. }
            | Fact::ShutdownRequested
            | Fact::Finished(_)
            | Fact::TimeIsUp => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdfast_supervision::{Generation, Path, Strategy, Supervisor};

    use super::*;

    #[test]
    fn a_second_life_beside_the_first_is_noticed() {
        let start = |life| Fact::Start {
            path: Path::new("root/a"),
            generation: Generation(life),
        };
        let history = History::of([(0, start(1)), (5, start(2))]);
        let shape = Shape::of(&Supervisor::new("root", Strategy::OneForOne), &history);
        assert!(check(&shape, &history).is_err());
    }
}
