//! Recorded timelines, written by hand.

use std::time::Duration;

use crate::timeline::{Fact, Outcome, Phase, Probed, Row, Session, Shown, Timeline, Tree};

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn timeline(facts: impl IntoIterator<Item = (u64, Fact)>) -> Timeline {
    let mut timeline = Timeline::default();
    for (at, fact) in facts {
        timeline.add(ms(at), fact);
    }
    timeline
}

pub(super) fn shown(phase: Phase) -> Fact {
    Fact::Shown(Shown {
        phase,
        ..Shown::default()
    })
}

pub(super) fn probe(started: u64, failure: Option<&str>) -> Fact {
    Fact::Probed(Probed {
        started: ms(started),
        failure: failure.map(str::to_owned),
    })
}

pub(super) fn session(outcome: Outcome) -> Fact {
    Fact::Session(Session {
        request: "r".into(),
        started: ms(0),
        outcome,
    })
}

pub(super) fn broken(number: usize) -> Fact {
    Fact::Broken {
        number,
        fault: "stop keeper".into(),
        victim: "4242".into(),
    }
}

pub(super) fn tree(pid: u32, state: &str, restarts: u64) -> Fact {
    Fact::Tree(Tree {
        process: "keeper".into(),
        pid: Some(pid),
        rows: vec![Row {
            path: "keeper/egress".into(),
            state: state.into(),
            restarts,
        }],
    })
}
