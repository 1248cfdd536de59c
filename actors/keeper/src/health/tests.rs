//! What the tests of the health begin with, and the events that they are told in one word each.

use holdfast_actor::{Fault, Next, Path, Reason, What};

use super::*;

mod canary;
mod parts;
mod phase;
mod ports;
mod shortage;
mod weather;

fn at(millis: u64) -> Moment {
    Moment::after_origin(Duration::from_millis(millis))
}

fn change(path: &str, what: What, restarts: u32) -> Event {
    Event::Changed(Change {
        path: Path::new(path),
        what,
        restarts,
    })
}

fn fell(path: &str, now: Moment) -> Event {
    let what = What::Fell {
        reason: Reason::Fault(Fault::failed("bind: address in use")),
        next: Next::Restart {
            at: now + Duration::from_millis(40),
        },
    };
    change(path, what, 1)
}

fn fell_in_boundary(part: &str, why: &str) -> Event {
    Event::Boundary(v1::Changed {
        path: format!("boundary/{part}"),
        up: false,
        fell: why.to_owned(),
        restarts: 0,
    })
}

fn rose_in_boundary(part: &str) -> Event {
    Event::Boundary(v1::Changed {
        path: format!("boundary/{part}"),
        up: true,
        fell: String::new(),
        restarts: 1,
    })
}

fn walked(began: u64, ended: u64, fell: Option<(Kind, String)>) -> Event {
    Event::Walked(Walked {
        began: at(began),
        ended: at(ended),
        fell,
    })
}

/// After everything else.
fn counted(pressed: bool) -> Event {
    counted_at(Moment::NEVER, pressed)
}

fn counted_at(moment: Moment, pressed: bool) -> Event {
    let sample = Sample {
        limit: 64,
        used: if pressed { 60 } else { 30 },
        pressed,
        host_full: false,
    };
    Event::Descriptors(moment, sample)
}

fn beat() -> Event {
    Event::Beat(at(0), Box::default())
}

/// A beat that says how long the launcher has been silent.
fn silent(millis: u64) -> Event {
    let beat = v1::BeatReply {
        launcher_silent_ms: millis,
        ..v1::BeatReply::default()
    };
    Event::Beat(at(0), Box::new(beat))
}

/// A beat that was asked for at `asked`, with so many descriptors used of 112.
fn boundary_has(used: u64, asked: u64) -> Event {
    let beat = v1::BeatReply {
        descriptors: Some(v1::Descriptors {
            limit: 112,
            used,
            ..v1::Descriptors::default()
        }),
        ..v1::BeatReply::default()
    };
    Event::Beat(at(asked), Box::new(beat))
}

fn short_of_descriptors(process: Process) -> Event {
    let message = "reserve 7 descriptors: 5 of 112 are free".to_owned();
    Event::Refused(Want::Descriptors { process, message })
}

fn short_of(reason: &'static str) -> Event {
    let message = "fork: try again".to_owned();
    Event::Refused(Want::Other { reason, message })
}

/// A program inside has these ports, which rules name.
fn held(ports: &[u16]) -> Event {
    Event::Unheard(ports.iter().map(|port| (*port, libc::EADDRINUSE)).collect())
}

fn policy(error: &str) -> Event {
    Event::Policy {
        desired: 1 + u64::from(!error.is_empty()),
        enforced: 1,
        error: error.to_owned(),
    }
}

/// Everything but a canary, at 0 ms.
fn almost() -> Health {
    let mut health = Health::new(at(0), false);
    for event in [
        Event::Fence(Ok(())),
        Event::Linked,
        policy(""),
        counted(false),
    ] {
        health.step(event, at(0));
    }
    health
}

/// Ready at 2 ms.
fn ready() -> Health {
    let mut health = almost();
    health.step(walked(1, 2, None), at(2));
    assert_eq!(health.report().phase, Phase::Ready);
    health
}

fn stands(health: &Health) -> (Phase, &'static str) {
    (health.report().phase, health.report().reason)
}

fn condition(health: &Health, kind: Kind) -> &Condition {
    &health.report().conditions[kind as usize]
}
