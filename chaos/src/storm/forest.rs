//! Trees as nobody would write them.

use std::time::Duration;

use holdfast_clock::{Dice, Seed};
use holdfast_supervision::{Backoff, Child, Node, Strategy, Supervisor};

/// The tree of this seed: up to three levels, all strategies, sound by `Supervisor::flaws`.
pub fn grow(seed: Seed) -> Supervisor {
    let mut dice = seed.dice();
    let mut root = supervisor("root", 2, &mut dice);
    if root.children.is_empty() {
        root = root.child(child("only", &mut dice));
    }
    root
}

fn supervisor(id: &str, depth: u32, dice: &mut Dice) -> Supervisor {
    let strategy = match dice.below(if depth == 2 { 3 } else { 4 }) {
        0 => Strategy::OneForOne,
        1 => Strategy::OneForAll,
        2 => Strategy::RestForOne,
        _ => Strategy::Dynamic {
            most: usize::try_from(1 + dice.below(5)).unwrap_or(1),
        },
    };
    let mut grown = Supervisor::new(id, strategy).backoff(backoff(dice));
    let restarts = u32::try_from(1 + dice.below(6)).unwrap_or(1);
    grown = if dice.chance(1, 6) {
        grown.unlimited()
    } else {
        // Wide enough for the slowest loop of `backoff` below to be noticed.
        grown.intensity(
            restarts,
            Duration::from_secs(10 * u64::from(restarts) + dice.below(30)),
        )
    };
    if !matches!(strategy, Strategy::Dynamic { .. }) {
        for number in 0..dice.below(5) {
            let name = format!("{}{number}", if depth == 2 { "a" } else { "b" });
            grown.children.push(if depth > 0 && dice.chance(1, 3) {
                Node::Supervisor(supervisor(&name, depth - 1, dice))
            } else {
                Node::Child(child(&name, dice))
            });
        }
    }
    grown
}

/// A child of any kind.
pub(crate) fn child(id: &str, dice: &mut Dice) -> Child {
    let child = match dice.below(6) {
        0 => Child::transient(id),
        1 => Child::temporary(id),
        _ => Child::permanent(id),
    };
    let shutdown = if dice.chance(1, 8) {
        Duration::ZERO
    } else {
        dice.between(Duration::from_millis(100), Duration::from_secs(5))
    };
    child
        .start(dice.between(Duration::from_millis(50), Duration::from_secs(10)))
        .shutdown(shutdown)
        .backoff(backoff(dice))
}

fn backoff(dice: &mut Dice) -> Backoff {
    let min = dice.between(Duration::ZERO, Duration::from_millis(500));
    let max = min + dice.between(Duration::ZERO, Duration::from_secs(5));
    Backoff {
        reset_after: dice.between(Duration::ZERO, Duration::from_mins(1)),
        ..Backoff::between(min, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tree_is_sound_and_all_kinds_grow() {
        let mut drawings = String::new();
        for seed in 0..300 {
            let tree = grow(Seed::new(seed));
            assert_eq!(tree.flaws(), [], "seed {seed}");
            drawings.push_str(&holdfast_supervision::draw(&tree));
        }
        for word in [
            "OneForOne",
            "OneForAll",
            "RestForOne",
            "Dynamic",
            "unlimited",
            "Permanent",
            "Transient",
            "Temporary",
        ] {
            assert!(drawings.contains(word), "no {word} in 300 trees");
        }
    }
}
