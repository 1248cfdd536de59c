//! While the keeper is silent, the workload does what `on_link_loss` says.

use holdfast_tests::leaks;
use holdfast_tests::stat::{self, Stat};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Policy, Run, everyone};
use nix::sys::signal::Signal;

fn is_stopped(pid: i32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.state() == "T")
}

#[test]
fn a_workload_that_is_to_be_frozen_stands_still_while_the_keeper_does() {
    for area in everyone() {
        let run = Run::new(&area, &Policy::offline())
            .option("--on-link-loss")
            .option("freeze")
            .shell("echo ready; while :; do sleep 0.2; done")
            .start();
        run.expect("ready");
        let shell = leaks::descendants(run.pid().as_raw())
            .into_iter()
            .find(|pid| {
                std::fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.starts_with(b"/bin/sh\0-c\0echo ready"))
            })
            .expect("the workload is below the run");

        stat::stop(run.pid());
        until("the workload stands still", LONG, || is_stopped(shell));

        run.signal(Signal::SIGCONT);
        until("the workload goes on", LONG, || !is_stopped(shell));
        run.signal(Signal::SIGTERM);
        run.finish();
    }
}
