use proptest::prelude::*;

use super::*;
use crate::scenario::{Actor, Checks, Load, Probe};

fn scenario(faults: Vec<Breakage>, shuffle: Option<Shuffle>) -> Scenario {
    Scenario {
        name: "any".into(),
        description: String::new(),
        duration: Duration::from_mins(1),
        settle: Duration::ZERO,
        load: Load::default(),
        probe: Probe::default(),
        roots: Vec::new(),
        nofile: None,
        faults,
        shuffle,
        checks: Checks::default(),
    }
}

fn faults() -> impl Strategy<Value = Fault> {
    let process = || proptest::sample::select(Process::ALL.to_vec());
    prop_oneof![
        (process(), -4i64..64).prop_map(|(process, spare)| Fault::Emfile { process, spare }),
        (0i64..64).prop_map(|spare| Fault::Enfile { spare }),
        process().prop_map(Fault::Kill),
        process().prop_map(Fault::Stop),
        process().prop_map(|process| Fault::Panic(Actor::AnyOf(process))),
        process().prop_map(|process| Fault::Hang(Actor::AnyOf(process))),
        (1u32..100).prop_map(Fault::FdFlood),
        (1u32..100).prop_map(Fault::ExecStorm),
        (1u32..9).prop_map(Fault::SlowReader),
        Just(Fault::DiskFull),
        (1u64..100).prop_map(|hours| Fault::ClockJump(Duration::from_hours(hours))),
    ]
}

fn breakages() -> impl Strategy<Value = Breakage> {
    let millis = |most: u64| (0..most).prop_map(Duration::from_millis);
    let when = prop_oneof![
        proptest::collection::vec(millis(70_000), 0..6).prop_map(When::At),
        (1u64..30_000).prop_map(|apart| When::Every(Duration::from_millis(apart))),
        (0u32..20).prop_map(When::Random),
    ];
    (faults(), millis(5_000), millis(5_000), when).prop_map(|(fault, least, more, when)| Breakage {
        fault,
        lasts: (least, least + more),
        when,
    })
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let shuffle = proptest::option::of((0u32..50, 0u64..5_000).prop_map(|(times, rest)| Shuffle {
        times,
        rest: Duration::from_millis(rest),
    }));
    (proptest::collection::vec(breakages(), 0..8), shuffle)
        .prop_map(|(faults, shuffle)| scenario(faults, shuffle))
}

proptest! {
    #[test]
    fn the_same_seed_gives_the_same_schedule(scenario in scenarios(), seed: u64) {
        let once = schedule(&scenario, Seed::new(seed), scenario.duration);
        let again = schedule(&scenario, Seed::new(seed), scenario.duration);
        prop_assert_eq!(once, again);
    }

    #[test]
    fn everything_is_undone_before_the_end_and_in_order(scenario in scenarios(), seed: u64) {
        let planned = schedule(&scenario, Seed::new(seed), scenario.duration);
        for fault in &planned {
            prop_assert!(fault.at <= fault.until && fault.until <= scenario.duration);
        }
        prop_assert!(planned.is_sorted_by_key(|fault| fault.at));
        let numbers: Vec<_> = planned.iter().map(|fault| fault.number).collect();
        prop_assert_eq!(numbers, (1..=planned.len()).collect::<Vec<_>>());
    }

    #[test]
    fn faults_of_one_kind_do_not_overlap(scenario in scenarios(), seed: u64) {
        let planned = schedule(&scenario, Seed::new(seed), scenario.duration);
        for kind in Kind::ALL {
            let of_it: Vec<_> = planned.iter().filter(|fault| fault.fault.kind() == kind).collect();
            prop_assert!(of_it.windows(2).all(|pair| pair[0].until <= pair[1].at));
        }
    }
}

#[test]
fn another_seed_draws_another_schedule() {
    let random = Breakage {
        fault: Fault::Kill(Process::Keeper),
        lasts: (Duration::from_secs(1), Duration::from_secs(2)),
        when: When::Random(5),
    };
    let scenario = scenario(vec![random], None);
    let of = |seed| schedule(&scenario, Seed::new(seed), scenario.duration);
    assert_ne!(of(1), of(2));
}

#[test]
fn a_shuffle_draws_every_fault_and_keeps_its_rest() {
    let drawn = |process| Breakage {
        fault: Fault::Stop(process),
        lasts: (Duration::from_millis(10), Duration::from_millis(20)),
        when: When::Drawn,
    };
    let rest = Duration::from_millis(100);
    let shuffle = Shuffle { times: 100, rest };
    let scenario = scenario(Process::ALL.map(drawn).to_vec(), Some(shuffle));

    let planned = schedule(&scenario, Seed::new(7), scenario.duration);

    assert_eq!(planned.len(), 100);
    assert!(
        planned
            .windows(2)
            .all(|pair| pair[0].until + rest <= pair[1].at)
    );
    for process in Process::ALL {
        assert!(
            planned
                .iter()
                .any(|fault| fault.fault == Fault::Stop(process))
        );
    }
}
