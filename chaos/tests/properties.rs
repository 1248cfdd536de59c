//! The invariants of supervision over schedules that proptest finds and shrinks.

use std::time::Duration;

use holdfast_chaos::storm::{Weather, run};
use holdfast_clock::Seed;
use holdfast_supervision::{Backoff, Child, Intensity, Node, Strategy, Supervisor, draw};
use proptest::prelude::*;
use proptest::strategy::Strategy as Draw;

fn backoffs() -> impl Draw<Value = Backoff> {
    (0u64..500, 0u64..3000, 0u64..60).prop_map(|(min, span, reset)| Backoff {
        reset_after: Duration::from_secs(reset),
        ..Backoff::between(
            Duration::from_millis(min),
            Duration::from_millis(min + span),
        )
    })
}

fn children() -> impl Draw<Value = Child> {
    (0u8..4, 50u64..5000, 0u64..5000, backoffs()).prop_map(|(kind, start, shutdown, backoff)| {
        let child = match kind {
            0 => Child::transient("x"),
            1 => Child::temporary("x"),
            _ => Child::permanent("x"),
        };
        child
            .start(Duration::from_millis(start))
            .shutdown(Duration::from_millis(shutdown))
            .backoff(backoff)
    })
}

fn strategies() -> impl Draw<Value = Strategy> {
    prop_oneof![
        Just(Strategy::OneForOne),
        Just(Strategy::OneForAll),
        Just(Strategy::RestForOne),
        (1usize..5).prop_map(|most| Strategy::Dynamic { most }),
    ]
}

fn trees() -> impl Draw<Value = Supervisor> {
    let leaf = children().prop_map(Node::Child);
    let node = leaf.prop_recursive(2, 16, 4, |below| {
        (
            strategies(),
            intensities(),
            backoffs(),
            proptest::collection::vec(below, 0..4),
        )
            .prop_map(|(strategy, intensity, backoff, children)| {
                Node::Supervisor(supervisor(strategy, intensity, backoff, children))
            })
    });
    (
        strategies(),
        intensities(),
        backoffs(),
        proptest::collection::vec(node, 0..4),
    )
        .prop_map(|(strategy, intensity, backoff, children)| {
            named(supervisor(strategy, intensity, backoff, children), "root")
        })
}

fn intensities() -> impl Draw<Value = Intensity> {
    prop_oneof![
        1 => Just(Intensity::Unlimited),
        4 => (1u32..6, 5u64..60).prop_map(|(restarts, seconds)| {
            Intensity::at_most(restarts, Duration::from_secs(u64::from(restarts) * 4 + seconds))
        }),
    ]
}

fn supervisor(
    strategy: Strategy,
    intensity: Intensity,
    backoff: Backoff,
    children: Vec<Node>,
) -> Supervisor {
    let children = match strategy {
        Strategy::Dynamic { .. } => Vec::new(),
        Strategy::OneForOne | Strategy::OneForAll | Strategy::RestForOne => children,
    };
    Supervisor {
        intensity,
        children,
        ..Supervisor::new("x", strategy).backoff(backoff)
    }
}

/// The same tree with names that no siblings share.
fn named(mut tree: Supervisor, id: &str) -> Supervisor {
    id.clone_into(&mut tree.id);
    let children = std::mem::take(&mut tree.children);
    tree.children = children
        .into_iter()
        .enumerate()
        .map(|(number, node)| match node {
            Node::Child(child) => Node::Child(Child {
                id: format!("c{number}"),
                ..child
            }),
            Node::Supervisor(below) => Node::Supervisor(named(below, &format!("s{number}"))),
        })
        .collect();
    tree
}

prop_compose! {
    fn weathers()(
        failed_starts in 0u64..80, endless_starts in 0u64..20, short_lives in 0u64..=100,
        stuck_lives in 0u64..30, deaf_stops in 0u64..=100, want in 0u64..=100,
        last_straws in 0u64..3, wedges in 0u64..3, echoes in 0u64..60, wishes in 0u64..300,
        longest in 1u64..30_000, calm in 0u64..200, shutdown in 0u64..400,
    ) -> Weather {
        Weather {
            failed_starts, endless_starts, short_lives, stuck_lives, deaf_stops, want,
            last_straws, wedges, echoes, wishes,
            longest: Duration::from_millis(longest),
            calm_after: Duration::from_secs(calm),
            shutdown_after: Duration::from_secs(shutdown),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Never more restarts than the intensity in any window, delays within their bounds, start in order and stop in
    /// reverse, no child twice, every shutdown ends, want never climbs, and what may live lives in the end.
    #[test]
    fn a_tree_holds_its_promises_in_any_weather(
        tree in trees(), weather in weathers(), seed: u64,
    ) {
        prop_assume!(tree.flaws().is_empty());
        let storm = run(tree, weather, Seed::new(seed));
        prop_assert!(
            storm.violations.is_empty(),
            "{}\n{}",
            draw(&storm.spec),
            storm.violations[0]
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        let storm = holdfast_chaos::storm::storm(Seed::new(seed));
        let entries = storm.history.entries().iter();
        entries.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(history(5), history(5));
    assert_ne!(history(5), history(6));
}

#[test]
fn a_fixed_number_of_storms_breaks_nothing() {
    for seed in 0..500 {
        let storm = holdfast_chaos::storm::storm(Seed::new(seed));
        assert!(
            storm.violations.is_empty(),
            "seed {seed}: {}",
            storm.violations[0]
        );
    }
}
