//! Whatever happens, in whatever order: Ready is true.

use proptest::prelude::*;

use super::*;

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "keeper/link",
        "keeper/network/resolver",
        "keeper/network/egress",
        "keeper/network/egress/443",
        "keeper/network/lane",
        "keeper/sessions",
        "keeper/outside/uplink",
    ])
}

fn any_event() -> impl Strategy<Value = Event> {
    let kind = prop::sample::select(Kind::WAY.to_vec());
    prop_oneof![
        path().prop_map(|path| fell(path, at(0))),
        path().prop_map(|path| change(path, What::Up, 1)),
        prop::sample::select(vec!["", "panicked"]).prop_map(|why| fell_in_boundary("broker", why)),
        Just(rose_in_boundary("broker")),
        Just(Event::Fence(Ok(()))),
        Just(Event::Linked),
        Just(beat()),
        Just(Event::Unlinked(Unlinked::Lost, "lost".to_owned())),
        // The moments are put in by the run.
        prop::option::of(kind).prop_map(|at| walked(0, 0, at.map(|at| (at, String::new())))),
        any::<bool>().prop_map(counted),
        Just(Event::Listening(Listening::default())),
        Just(Event::Listening(Listening {
            full: 1,
            starved: 0
        })),
        Just(held(&[8443])),
        Just(held(&[])),
        any::<bool>().prop_map(Event::Recording),
        Just(policy("")),
        Just(policy("wrong")),
        Just(Event::Refused(Want::Nothing)),
        Just(short_of_descriptors(Process::Keeper)),
        Just(short_of("ProcessPressure")),
        prop::sample::select(vec![0, 700, 851, 60_000]).prop_map(silent),
        Just(Event::Passed),
    ]
}

/// Whether this event by itself says that something does not serve.
fn is_failure(event: &Event) -> bool {
    match event {
        Event::Changed(change) => change.what != What::Up,
        Event::Boundary(changed) => !changed.up,
        Event::Fence(proved) => proved.is_err(),
        Event::Unlinked(..) | Event::Ending { .. } | Event::Over { .. } => true,
        Event::Walked(walked) => walked.fell.is_some(),
        Event::Descriptors(_, sample) => sample.pressed,
        Event::Listening(listening) => *listening != Listening::default(),
        Event::Unheard(ports) | Event::Asked(ports) => !ports.is_empty(),
        Event::Recording(writes) => !writes,
        Event::Policy { error, .. } => !error.is_empty(),
        Event::Beat(_, beat) => beat.launcher_silent_ms > 850,
        Event::Refused(want) => *want != Want::Nothing,
        Event::Linked | Event::Passed => false,
    }
}

proptest! {
    /// SV-01, SV-12, SV-13.
    #[test]
    fn ready_is_true_in_any_weather(
        events in prop::collection::vec((any_event(), 0_u64..2000, 0_u64..400), 1..200),
    ) {
        let mut health = almost();
        let mut now = 0;
        // The end of the last step that was not whole, and when the last canary that came home began.
        let (mut broken, mut proved) = (Some(0), None);
        let mut walked_until = Moment::ORIGIN;
        for (event, wait, walk) in events {
            now += wait;
            let event = if let Event::Walked(Walked { fell, .. }) = event {
                walked(now.saturating_sub(walk), now, fell)
            } else {
                event
            };
            let before = health.report().clone();
            let mut failure = is_failure(&event);
            if let Event::Walked(Walked { began, ended, fell }) = &event {
                // One goes after the other: what began before the last one was over is late news.
                if *began < walked_until {
                    failure = false;
                } else {
                    walked_until = *ended;
                }
                if fell.is_none() {
                    proved = proved.max(Some(*began));
                }
            }
            health.step(event, at(now));
            let report = health.report();

            let all_true = report.conditions.iter().all(|one| one.status == Truth::True);
            prop_assert_eq!(report.phase == Phase::Ready, all_true);
            if failure {
                prop_assert_ne!(report.phase, Phase::Ready);
                broken = Some(now);
            }
            if report.phase == Phase::Ready {
                if let Some(broken) = broken.take() {
                    prop_assert!(proved.is_some_and(|began| began >= at(broken)));
                }
                for one in &report.conditions {
                    prop_assert!(at(now).since(one.observed) <= CANARY_AGE);
                }
                let beat = report.conditions[Kind::BoundaryLinked as usize].observed;
                prop_assert!(at(now).since(beat) <= BEAT_AGE);
            } else {
                prop_assert!(!report.reason.is_empty() && !report.message.is_empty() || report.reason == "CanaryFailed");
                let first = report.conditions.iter().find(|one| one.status != Truth::True);
                prop_assert_eq!(first.map(|one| one.reason), Some(report.reason));
            }
            for (one, was) in report.conditions.iter().zip(&before.conditions) {
                prop_assert_eq!(one.since == was.since || wait == 0, one.status == was.status || wait == 0);
            }
        }
    }
}
