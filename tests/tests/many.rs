//! Many sessions in one sandbox, at once and one after the other: each is its own, and none leaves anything.
//!
//! `HOLDFAST_MANY` says how many one after the other.

use holdfast_tests::daemon::{Gateway, request};
use holdfast_tests::seed::told;
use holdfast_tests::victim::{Part, parts};
use holdfast_tests::visit::{self, Told};
use holdfast_tests::wait::{LONG, holds_within};
use holdfast_tests::{Area, everyone, keeping, leaks};
use holdfast_wire::{problem, v1};
use std::fs;

/// One after the other, when nobody says otherwise.
const SEQUENTIAL: u64 = 300;
/// At once.
const AT_ONCE: u32 = 32;
/// Memory may grow by so many KiB between the first tenth and the end: the history of sessions fills up to its bound.
const GROWTH_KIB: u64 = 6 * 1024;
/// What takes a session's descriptors back may be a moment behind its exit.
const DESCRIPTORS: u64 = 4;

const QA: &str = "qa";

/// What a sandbox's own processes hold, by process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    part: Part,
    descriptors: u64,
    resident_kib: u64,
}

/// What keeper, boundary and launcher hold now, and how many processes there are below the gateway.
fn held(area: &Area, gateway: &Gateway) -> (Vec<Held>, usize) {
    let all = parts(area, "").into_iter();
    let each = all.flat_map(|(part, processes)| {
        let of = move |pid: i32| Held {
            part,
            descriptors: leaks::descriptors(pid).expect("it runs"),
            resident_kib: resident(pid),
        };
        processes.into_iter().map(move |process| of(process.pid))
    });
    let each: Vec<Held> = each.collect();
    let known: Vec<Part> = each.iter().map(|held| held.part).collect();
    assert_eq!(known, [Part::Keeper, Part::Boundary, Part::Launcher]);
    (each, leaks::descendants(gateway.pid()).len())
}

fn resident(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    number.expect("its memory")
}

fn start(words: &[&str]) -> v1::ExecStart {
    v1::ExecStart {
        sandbox: QA.to_owned(),
        ..keeping::exec(words)
    }
}

fn ready(area: &Area) -> (Gateway, visit::Client) {
    let gateway = Gateway::start(area, &[]);
    gateway.create(request(area, QA)).expect("made");
    gateway.until(QA, "Ready", |status| status.phase() == v1::Phase::Ready);
    let channel = gateway.channel().expect("a channel");
    (gateway, visit::Client::new(channel))
}

fn end(gateway: Gateway) {
    gateway.delete(QA, true).expect("deleted");
    assert_eq!(gateway.stop(), Some(0));
}

/// EX-17: the last of many costs what the first did.
#[test]
fn sessions_one_after_the_other_leave_nothing() {
    let many = told("HOLDFAST_MANY").unwrap_or(SEQUENTIAL);
    for area in everyone() {
        let (gateway, mut client) = ready(&area);
        let mut run = |from: u64, to: u64| {
            gateway.wait(async {
                for number in from..to {
                    let told = visit::exec(&mut client, start(&["/bin/echo", "word"])).await;
                    assert_eq!(
                        (told.code(), &*told.text()),
                        (Some(0), "word\n"),
                        "{number}: {told:?}"
                    );
                }
            });
        };

        run(0, many / 10);
        let (before, processes) = held(&area, &gateway);
        run(many / 10, many);

        let mut after = held(&area, &gateway);
        let settled = holds_within(LONG, || {
            after = held(&area, &gateway);
            let pairs = before.iter().zip(&after.0);
            let mut within = pairs.map(|(before, after)| {
                before.part == after.part && after.descriptors <= before.descriptors + DESCRIPTORS
            });
            after.1 <= processes && within.all(|it| it)
        });
        assert!(settled, "{before:?}, {processes} became {after:?}");
        for (before, after) in before.iter().zip(&after.0) {
            assert!(
                after.resident_kib <= before.resident_kib + GROWTH_KIB,
                "{before:?} became {after:?}"
            );
        }
        end(gateway);
    }
}

/// EX-20: so many at once all succeed, each with its own output and its own status.
#[test]
fn sessions_at_once_do_not_mix() {
    for area in everyone() {
        let (gateway, client) = ready(&area);

        let told: Vec<Told> = gateway.wait(async {
            let each = (0..AT_ONCE).map(|number| {
                let mut client = client.clone();
                let line =
                    format!("for i in 1 2 3 4 5 6 7 8; do echo line-{number}; done; exit {number}");
                gateway.begin(async move {
                    visit::exec(&mut client, start(&["/bin/sh", "-c", &line])).await
                })
            });
            let mut told = Vec::new();
            for task in each.collect::<Vec<_>>() {
                told.push(task.await.expect("no panic"));
            }
            told
        });

        for (number, told) in (0..).zip(&told) {
            assert_eq!(told.code(), Some(number), "{told:?}");
            assert_eq!(told.text(), format!("line-{number}\n").repeat(8));
        }
        end(gateway);
    }
}

/// EX-10, EX-18: what cannot be started is told by name, and costs no other session anything.
#[test]
fn a_session_that_fails_touches_no_other() {
    for area in everyone() {
        let (gateway, client) = ready(&area);
        let (before, _) = held(&area, &gateway);

        let other = gateway.wait(async {
            let mut others = client.clone();
            let other = gateway.begin(async move {
                let line = "for i in $(seq 40); do echo $i; sleep 0.05; done; exit 9";
                visit::exec(&mut others, start(&["/bin/sh", "-c", line])).await
            });
            for number in 0..40 {
                let mut client = client.clone();
                let bad = match number % 4 {
                    0 => start(&["/no/such/program"]),
                    1 => start(&["/etc/hostname"]),
                    2 => v1::ExecStart {
                        directory: b"/no/such/directory".to_vec(),
                        ..start(&["/bin/true"])
                    },
                    _ => start(&[]),
                };
                let told = visit::exec(&mut client, bad).await;
                let error = told.error.unwrap_or_else(|| panic!("{number} succeeds"));
                let problem = problem::of(&error).expect("a problem");
                assert!(!problem.reason.is_empty(), "{error:?}");
            }
            other.await.expect("no panic")
        });

        assert_eq!(other.code(), Some(9), "{other:?}");
        assert_eq!(other.text().lines().count(), 40);
        let (after, _) = held(&area, &gateway);
        for (before, after) in before.iter().zip(&after) {
            let fewer = after.descriptors <= before.descriptors + DESCRIPTORS;
            assert!(fewer, "{before:?} became {after:?}");
        }
        end(gateway);
    }
}
