use std::time::Duration;

use holdfast_clock::{Clock, Seed};
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::scenario::{Actor, Fault, Kind, Process, Scenario};
use crate::schedule::schedule;
use crate::timeline::Timeline;

/// A world in which every third fault cannot be made.
#[derive(Default)]
struct Paper {
    broken: Mutex<Vec<usize>>,
    struck: Mutex<usize>,
}

impl World for Paper {
    type Repair = usize;

    async fn strike(&self, planned: &Planned) -> Result<Hit<usize>, String> {
        *self.struck.lock() += 1;
        if planned.pick.is_multiple_of(3) {
            return Err("not here".into());
        }
        self.broken.lock().push(planned.number);
        Ok(Hit::new("paper", planned.number))
    }

    fn mend(&self, repair: usize) {
        self.broken.lock().retain(|number| *number != repair);
    }
}

fn plan(seed: u64) -> Vec<Planned> {
    let text = "name: paper\ndescription: d\nduration: 60s\nfaults:\n\
        - {fault: stop, process: keeper, for: 0ms..5s, random: 10}\n\
        - {fault: emfile, process: keeper, for: 1s..9s, random: 10}\n\
        - {fault: fd-flood, for: 2s, every: 3s}\n";
    let scenario = Scenario::parse("paper.yaml", text).expect("sound");
    schedule(&scenario, Seed::new(seed), scenario.duration)
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

proptest! {
    #[test]
    fn whenever_it_is_interrupted_nothing_stays_broken(seed: u64, millis in 0u64..70_000) {
        let (world, plan) = (Paper::default(), plan(seed));
        let journal = Journal::new(Clock::tokio());
        paused().block_on(async {
            let siege = assail(&world, &plan, &journal, Duration::from_secs(1));
            let _interrupted = timeout(Duration::from_millis(millis), siege).await;
        });
        prop_assert!(world.broken.lock().is_empty());
        let (broken, mended) = journal.read(|timeline| {
            let count = |wanted: fn(&Fact) -> bool| timeline.entries().iter().filter(|entry| wanted(&entry.fact)).count();
            (count(|fact| matches!(fact, Fact::Broken { .. })), count(|fact| matches!(fact, Fact::Mended { .. })))
        });
        prop_assert_eq!(broken, mended);
    }
}

#[test]
fn all_that_is_planned_is_made_in_its_time_or_spared() {
    let (world, plan) = (Paper::default(), plan(7));
    let runtime = paused();
    let journal = runtime.block_on(async {
        let journal = Journal::new(Clock::tokio());
        assail(&world, &plan, &journal, Duration::from_secs(1)).await;
        journal
    });

    assert_eq!(*world.struck.lock(), plan.len());
    journal.read(|timeline| {
        for (number, from, until) in timeline.broken() {
            let planned = &plan[number - 1];
            let late = from.abs_diff(planned.at).max(until.abs_diff(planned.until));
            assert!(
                late < Duration::from_millis(5),
                "{planned:?} was {late:?} late"
            );
        }
    });
}

#[test]
fn a_fault_that_lasts_no_time_is_made_before_it_is_undone() {
    let (world, journal) = (Paper::default(), Journal::new(Clock::system()));
    let plan = [planned(1, Fault::Stop(Process::Keeper), 0, 0)];
    paused().block_on(assail(&world, &plan, &journal, Duration::from_secs(1)));

    let facts = journal.read(|timeline| {
        let facts = timeline.entries().iter().map(|entry| entry.fact.clone());
        facts.collect::<Vec<_>>()
    });
    assert!(
        matches!(
            facts[..],
            [Fact::Broken { number: 1, .. }, Fact::Mended { number: 1 }]
        ),
        "{facts:?}"
    );
}

/// Who answers nothing is waited for, and what is broken meanwhile is broken no longer than planned.
#[test]
fn faults_of_different_kinds_do_not_wait_for_one_another() {
    struct Slow;

    impl World for Slow {
        type Repair = ();

        async fn strike(&self, planned: &Planned) -> Result<Hit<()>, String> {
            if planned.fault.kind() == Kind::Hang {
                sleep(Duration::from_mins(1)).await;
            }
            Ok(Hit::new("paper", ()))
        }

        fn mend(&self, (): ()) {}
    }

    let hang = Fault::Hang(Actor::AnyOf(Process::Keeper));
    let plan = [
        planned(1, Fault::Stop(Process::Keeper), 1_000, 2_000),
        planned(2, hang.clone(), 1_500, 2_500),
        planned(3, hang, 3_000, 4_000),
        planned(4, Fault::DiskFull, 3_500, 4_000),
    ];
    let journal = paused().block_on(async {
        let journal = Journal::new(Clock::tokio());
        assail(&Slow, &plan, &journal, Duration::from_secs(3)).await;
        journal
    });

    let broken = journal.read(Timeline::broken);
    let times: Vec<_> = broken
        .iter()
        .map(|(number, from, until)| (*number, from.as_millis(), until.as_millis()))
        .collect();
    assert_eq!(times, [(1, 1_000, 2_000), (4, 3_500, 4_000)]);
}

fn planned(number: usize, fault: Fault, at: u64, until: u64) -> Planned {
    Planned {
        number,
        at: Duration::from_millis(at),
        until: Duration::from_millis(until),
        fault,
        pick: 1,
    }
}
