//! When what is broken: the same scenario and seed give the same schedule, on every machine.
//!
//! ```text
//!  at, every, random ─▶ wishes ─▶ in order, one of a kind at a time ─▶ planned faults
//!  shuffle ───────────▶ draws, one after the other ───────────────────▶ planned faults
//! ```
//!
//! Two of one kind never overlap: a wish that would waits until the earlier one is undone, and is dropped when the siege would
//! end before it does.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_clock::{Dice, Seed};

use crate::scenario::{Breakage, Fault, Kind, Process, Scenario, Shuffle, When};

/// One fault, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// From 1, in the order of time.
    pub(crate) number: usize,
    /// From the start of the siege.
    pub(crate) at: Duration,
    /// When it is undone.
    pub(crate) until: Duration,
    /// What is broken.
    pub(crate) fault: Fault,
    /// Chooses one of several where the fault leaves the choice.
    pub(crate) pick: u64,
}

/// All that will be broken within `duration`, the earliest first.
pub(crate) fn schedule(scenario: &Scenario, seed: Seed, duration: Duration) -> Vec<Planned> {
    let seed = seed.derive("schedule");
    match scenario.shuffle {
        Some(shuffle) => drawn(&scenario.faults, shuffle, seed, duration),
        None => placed(wishes(&scenario.faults, seed, duration), duration),
    }
}

/// What a fault would like.
struct Wish {
    at: Duration,
    lasts: Duration,
    fault: Fault,
    pick: u64,
}

fn wishes(faults: &[Breakage], seed: Seed, duration: Duration) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for (index, breakage) in faults.iter().enumerate() {
        let mut dice = seed.derive(&index.to_string()).dice();
        for at in times(&breakage.when, duration, &mut dice) {
            wishes.push(Wish {
                at,
                lasts: dice.between(breakage.lasts.0, breakage.lasts.1),
                fault: breakage.fault.clone(),
                pick: dice.throw(),
            });
        }
    }
    // Stable: what is written first comes first.
    wishes.sort_by_key(|wish| wish.at);
    wishes
}

fn times(when: &When, duration: Duration, dice: &mut Dice) -> Vec<Duration> {
    match when {
        When::At(times) => times.iter().copied().take(MOST_FAULTS).collect(),
        When::Every(apart) => (1..=MOST_FAULTS)
            .map(|turn| apart.saturating_mul(u32::try_from(turn).unwrap_or(u32::MAX)))
            .take_while(|at| *at < duration)
            .collect(),
        When::Random(times) => (0..*times)
            .take(MOST_FAULTS)
            .map(|_| dice.between(Duration::ZERO, duration))
            .collect(),
        When::Drawn => Vec::new(),
    }
}

fn placed(wishes: Vec<Wish>, duration: Duration) -> Vec<Planned> {
    let mut free: BTreeMap<Kind, Duration> = BTreeMap::new();
    let mut planned = Vec::new();
    for wish in wishes {
        let kind = wish.fault.kind();
        let at = free.get(&kind).map_or(wish.at, |free| wish.at.max(*free));
        let until = at.saturating_add(wish.lasts);
        if until > duration {
            continue;
        }
        free.insert(kind, until.saturating_add(BETWEEN));
        planned.push(Planned {
            number: 0,
            at,
            until,
            fault: wish.fault,
            pick: wish.pick,
        });
    }
    planned.sort_by_key(|planned| planned.at);
    numbered(planned)
}

fn drawn(faults: &[Breakage], shuffle: Shuffle, seed: Seed, duration: Duration) -> Vec<Planned> {
    let mut dice = seed.derive("shuffle").dice();
    let mut planned = Vec::new();
    let mut at = shuffle.rest;
    for _ in 0..shuffle.times {
        let index = dice.below(faults.len() as u64);
        let Some(breakage) = usize::try_from(index)
            .ok()
            .and_then(|index| faults.get(index))
        else {
            break;
        };
        let until = at.saturating_add(dice.between(breakage.lasts.0, breakage.lasts.1));
        if until > duration {
            break;
        }
        planned.push(Planned {
            number: 0,
            at,
            until,
            fault: breakage.fault.clone(),
            pick: dice.throw(),
        });
        at = until.saturating_add(rest_after(&breakage.fault, shuffle.rest));
    }
    numbered(planned)
}

/// What has to be built anew takes its time.
fn rest_after(fault: &Fault, rest: Duration) -> Duration {
    match fault {
        Fault::Kill(Process::Boundary | Process::Launcher) => rest.saturating_mul(3),
        Fault::Kill(_) => rest.saturating_mul(2),
        Fault::Emfile { .. }
        | Fault::Enfile { .. }
        | Fault::Stop(_)
        | Fault::Panic(_)
        | Fault::Hang(_)
        | Fault::FdFlood(_)
        | Fault::ExecStorm(_)
        | Fault::SlowReader(_)
        | Fault::DiskFull
        | Fault::ClockJump(_) => rest,
    }
}

fn numbered(mut planned: Vec<Planned>) -> Vec<Planned> {
    for (number, planned) in (1..).zip(&mut planned) {
        planned.number = number;
    }
    planned
}

/// Between the end of a fault and the next of its kind.
const BETWEEN: Duration = Duration::from_millis(500);
/// Of one entry of the list.
const MOST_FAULTS: usize = 10_000;

#[cfg(test)]
mod tests;
