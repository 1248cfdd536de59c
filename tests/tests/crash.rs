//! Any of our processes may be killed at any moment of a create, an exec and a delete: what was acknowledged holds, nothing is left behind,
//! Ready is never shown over a dead part, and the client hears how it went.
//!
//! Every round is drawn from a seed of its own, which is printed when it goes wrong. `HOLDFAST_CRASH_SEED` repeats it;
//! `HOLDFAST_CRASH_ROUNDS` says how many rounds there are for each caller.
//!
//! ```text
//! a bystander that nobody touches ──────────────────────────────────────────────▶ Ready, the same processes
//! round: sandbox ─ operation ─ random delay ─ KILL ─ what was told? ─ a way on ─ delete ─ nothing is left
//!        watcher ───────────────────────────────────────────────────────────────▶ no false Ready
//! ```

use holdfast_tests::daemon::{Gateway, request, said};
use holdfast_tests::leaks::{Mark, mounts};
use holdfast_tests::seed::{Draw, seed, told};
use holdfast_tests::victim::{Part, Process, parts};
use holdfast_tests::visit::{self, HANGS, Told};
use holdfast_tests::wait::{LONG, holds_within, now, until};
use holdfast_tests::watcher::{Death, FALSE_READY, Watcher, longest_false_ready};
use holdfast_tests::{Area, everyone, keeping};
use holdfast_wire::{problem, v1};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Rounds for each caller that the ordinary run of the tests has time for.
const ROUNDS: u64 = 20;

/// No answer takes longer, whatever dies. The gateway's own deadline for a keeper that does not report is the longest there is: 30 s.
const ANSWERED: Duration = Duration::from_secs(40);

/// A victim that is not there yet is waited for so long.
const BORN: Duration = Duration::from_millis(200);

/// A round that takes longer is told, with its seed.
const SLOW: Duration = Duration::from_secs(8);

const BYSTANDER: &str = "bystander";
const QA: &str = "qa";

#[derive(Clone, Copy, Debug)]
enum Operation {
    Create,
    Exec,
    Delete,
}

/// What is done in one round, drawn from its seed.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    operation: Operation,
    victims: Vec<Part>,
    /// In millionths of what the operation takes when nothing dies, and somewhat beyond.
    moment: u64,
    way: Way,
}

/// How it goes on from a failure.
#[derive(Clone, Copy, Debug)]
enum Way {
    Start,
    Restart,
    StopAndStart,
    Delete,
}

impl Plan {
    fn drawn(seed: u64) -> Self {
        let mut numbers = Draw::new(seed);
        let mut draw = |below| numbers.below(below);
        let operation = match draw(3) {
            0 => Operation::Create,
            1 => Operation::Exec,
            _ => Operation::Delete,
        };
        let mut victims = match draw(4) {
            0 => vec![Part::Gateway],
            1 => vec![Part::Keeper],
            2 => vec![Part::Boundary],
            _ => vec![Part::Launcher],
        };
        // Now and then the gateway dies together with another one.
        if draw(5) == 0 && victims != [Part::Gateway] {
            victims.push(Part::Gateway);
        }
        let way = match draw(4) {
            0 => Way::Start,
            1 => Way::Restart,
            2 => Way::StopAndStart,
            _ => Way::Delete,
        };
        let moment = draw(1_200_000);
        Self {
            seed,
            operation,
            victims,
            moment,
            way,
        }
    }
}

/// How long each operation takes when nothing dies.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    create: Duration,
    exec: Duration,
    delete: Duration,
}

/// One caller's place and gateway.
struct Field<'a> {
    area: &'a Area,
    gateway: Option<Gateway>,
    bystander: v1::Status,
    taken: Taken,
}

/// One round: what died in it, and what has been seen of its sandbox.
struct Round<'a> {
    area: &'a Area,
    plan: Plan,
    watcher: Watcher,
    mark: Mark,
    deaths: Vec<Death>,
    seen: BTreeSet<Process>,
}

/// What the operation was answered.
enum Answer {
    Created(Box<Result<v1::Status, tonic::Status>>),
    Told(Told),
    Deleted(Result<(), tonic::Status>),
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!(
                "repeat with HOLDFAST_CRASH_SEED={} HOLDFAST_CRASH_ROUNDS=1: {:?}, died: {:?}\n",
                self.plan.seed, self.plan, self.deaths
            ));
            say(&last_lines(&said(self.area)));
            for entry in fs::read_dir(self.area.state().join("sandboxes"))
                .into_iter()
                .flatten()
                .flatten()
            {
                for log in ["keeper.log", "boundary.log"] {
                    let log = entry.path().join(log);
                    say(&format!("{}\n", log.display()));
                    say(&last_lines(&fs::read_to_string(log).unwrap_or_default()));
                }
            }
        }
    }
}

impl<'a> Field<'a> {
    fn new(area: &'a Area) -> Self {
        let gateway = Gateway::start(area, &[]);
        gateway.create(request(area, BYSTANDER)).expect("made");
        let bystander = ready(&gateway, BYSTANDER);
        let mut field = Self {
            area,
            gateway: Some(gateway),
            bystander,
            taken: Taken::default(),
        };
        for _ in 0..2 {
            field.measure();
        }
        field
    }

    fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("a gateway")
    }

    /// The longer of two times counts: the first one pays for what is cold.
    fn measure(&mut self) {
        let began = now();
        let gateway = self.gateway();
        let made = gateway.create(asked(self.area, &Mark::new()));
        made.expect("made");
        ready(gateway, QA);
        let created = now();
        let told = self.exec("measured");
        assert_eq!(told.code(), Some(7), "{told:?}");
        let executed = now();
        gateway.delete(QA, true).expect("deleted");
        self.taken = Taken {
            create: self.taken.create.max(created - began),
            exec: self.taken.exec.max(executed - created),
            delete: self.taken.delete.max(executed.elapsed()),
        };
    }

    /// A program that says when it begins and when it ends, leaves a trace of each time it runs, and ends with 7.
    fn exec(&self, request: &str) -> Told {
        let start = v1::ExecStart {
            sandbox: QA.to_owned(),
            request: request.to_owned(),
            ..keeping::shell(&format!(
                "echo ran >> {request}; echo one; sleep 0.05; echo two; exit 7"
            ))
        };
        let gateway = self.gateway();
        match gateway.channel() {
            Ok(channel) => gateway.wait(visit::exec(&mut visit::Client::new(channel), start)),
            Err(error) => Told {
                error: Some(tonic::Status::unavailable(format!("dial: {error}"))),
                ..Told::default()
            },
        }
    }

    fn play(&mut self, plan: Plan) {
        let mut round = Round {
            area: self.area,
            watcher: Watcher::start(self.area.runtime().join("gateway.sock"), QA),
            mark: Mark::new(),
            deaths: Vec::new(),
            seen: BTreeSet::new(),
            plan,
        };
        let plan = round.plan.clone();
        if !matches!(plan.operation, Operation::Create) {
            self.gateway()
                .create(asked(self.area, &round.mark))
                .expect("made");
            ready(self.gateway(), QA);
            round.look(self);
        }
        let answer = self.under_fire(&mut round);
        if plan.victims.contains(&Part::Gateway)
            && let Some(gateway) = self.gateway.take()
        {
            gateway.kill();
            self.gateway = Some(Gateway::start(self.area, &[]));
        }
        match answer {
            Answer::Created(answer) => self.after_create(*answer),
            Answer::Told(told) => self.after_exec(&round, told),
            Answer::Deleted(answer) => self.after_delete(&round, answer),
        }
        if self.gateway().names().iter().any(|name| name == QA) {
            self.way_on(&mut round);
        }
        self.nothing_is_left(&round);
        self.no_false_ready(&round);
        let bystander = self.gateway().until(BYSTANDER, "untouched", |status| {
            status.phase() == v1::Phase::Ready
        });
        assert_eq!(bystander.pids, self.bystander.pids, "the bystander");
    }

    /// Begins the operation, kills the victims at the moment that was drawn, and waits for the answer.
    fn under_fire(&self, round: &mut Round<'_>) -> Answer {
        let plan = round.plan.clone();
        let taken = match plan.operation {
            Operation::Create => self.taken.create,
            Operation::Exec => self.taken.exec,
            Operation::Delete => self.taken.delete,
        };
        let delay = taken.mul_f64(f64::from(u32::try_from(plan.moment).expect("small")) / 1e6);
        let made = asked(self.area, &round.mark);
        let began = now();
        let answer = std::thread::scope(|scope| {
            let work = scope.spawn(|| match plan.operation {
                Operation::Create => Answer::Created(Box::new(self.gateway().create(made))),
                Operation::Exec => Answer::Told(self.exec(&request_id(&plan))),
                Operation::Delete => Answer::Deleted(self.gateway().delete(QA, true)),
            });
            while began.elapsed() < delay {
                std::thread::park_timeout(delay.saturating_sub(began.elapsed()));
            }
            round.strike(self);
            work.join().expect("an answer")
        });
        let took = began.elapsed();
        assert!(took < ANSWERED, "no answer for {took:?}");
        answer
    }

    /// Acknowledged: it is there. Not acknowledged: said why, and the name is of use, be it there or not.
    fn after_create(&self, answer: Result<v1::Status, tonic::Status>) {
        match answer {
            Ok(made) => {
                let there = self.gateway().get(QA).expect("an acknowledged create");
                assert_eq!(there.id, made.id);
                assert!(self.gateway().names().contains(&QA.to_owned()));
            }
            Err(error) => stated(&error),
        }
    }

    /// What has begun has an ending; what was asked again was not done again.
    fn after_exec(&self, round: &Round<'_>, told: Told) {
        if let Some(error) = &told.error {
            assert_ne!(error.message(), HANGS);
            stated(error);
        } else {
            assert!(told.ending.is_some(), "an end without a word: {told:?}");
        }
        let lost = || {
            let status = self.gateway().get(QA).expect("there");
            matches!(status.phase(), v1::Phase::Failed | v1::Phase::Stopped)
        };
        let end = now() + LONG;
        let mut told = told;
        while told.ending.is_none() && !lost() {
            assert!(now() < end, "no ending: {told:?}");
            std::thread::park_timeout(Duration::from_millis(10));
            told = match (told.begun, self.gateway().channel()) {
                (Some(_), Ok(channel)) => {
                    let mut client = visit::Client::new(channel);
                    self.gateway().wait(visit::attach(&mut client, QA, told))
                }
                _ => self.exec(&request_id(&round.plan)),
            };
        }
        let killed_inside = [Part::Boundary, Part::Launcher]
            .iter()
            .any(|part| round.plan.victims.contains(part));
        let Some(ending) = told.ending.as_ref() else {
            // Nobody was there to tell this client, and nothing of that life runs any more. The sandbox says why.
            let status = self.gateway().get(QA).expect("there");
            assert!(killed_inside, "no ending: {told:?}, {status:#?}");
            assert_eq!(status.reason, "BoundaryLost", "{status:#?}");
            return;
        };
        match ending.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
            Some(v1::exit::How::Code(7)) => {
                assert_eq!(told.text(), "one\ntwo\n", "{told:?}");
                let ran = self.area.work().join(request_id(&round.plan));
                let ran = fs::read_to_string(ran).expect("it ran");
                assert_eq!(ran, "ran\n", "one request, run more than once");
            }
            Some(v1::exit::How::Unknown(why)) if killed_inside => {
                assert!(!(why.is_empty() && ending.reason.is_empty()), "{told:?}");
            }
            other => assert!(
                killed_inside && matches!(other, Some(v1::exit::How::Signal(9))),
                "{told:?}"
            ),
        }
    }

    /// Acknowledged: gone for good. Not acknowledged: said why.
    fn after_delete(&self, round: &Round<'_>, answer: Result<(), tonic::Status>) {
        match answer {
            Ok(()) => {
                assert_eq!(self.gateway().names(), [BYSTANDER], "a deleted one is back");
                self.no_file_is_left();
                let left: Vec<_> = round.seen.iter().filter(|it| it.runs()).collect();
                assert!(left.is_empty(), "deleted, and still running: {left:?}");
            }
            Err(error) => stated(&error),
        }
    }

    /// From wherever it stands: to Ready, to a program that ends well, and away.
    fn way_on(&self, round: &mut Round<'_>) {
        let gateway = self.gateway();
        if matches!(round.plan.operation, Operation::Delete) {
            let answer = gateway.delete(QA, true);
            let gone = answer.is_ok() || self.gateway().get(QA).is_err();
            assert!(gone, "a delete that was cut off: {answer:?}");
            return;
        }
        let settled = gateway.until(QA, "settled", |status| {
            let whole = || {
                let alive = |pid: &u32| {
                    Process::of(i32::try_from(*pid).unwrap_or(0)).is_some_and(Process::runs)
                };
                status.pids.len() == 2 && status.pids.values().all(alive)
            };
            match status.phase() {
                v1::Phase::Ready => whole() && round.may_stand(status),
                v1::Phase::Failed | v1::Phase::Stopped => true,
                v1::Phase::Unspecified
                | v1::Phase::Pending
                | v1::Phase::Degraded
                | v1::Phase::Deleting => false,
            }
        });
        round.look(self);
        if settled.phase() != v1::Phase::Ready {
            assert!(!settled.reason.is_empty(), "{settled:#?}");
            assert!(!settled.message.is_empty(), "{settled:#?}");
            match round.plan.way {
                Way::Start => drop(self.told_to(v1::Phase::Ready, false).expect("started")),
                Way::Restart => drop(self.told_to(v1::Phase::Ready, true).expect("restarted")),
                Way::StopAndStart => {
                    self.told_to(v1::Phase::Stopped, true).expect("stopped");
                    self.told_to(v1::Phase::Ready, false).expect("started");
                }
                Way::Delete => {
                    return gateway.delete(QA, false).expect("nothing of it runs");
                }
            }
        }
        ready(gateway, QA);
        round.look(self);
        self.main_runs();
        let told = self.exec(&format!("after-{}", round.plan.seed));
        assert_eq!(told.code(), Some(7), "{told:?}");
        gateway.delete(QA, true).expect("deleted");
    }

    /// A sandbox that is Ready runs what it was made for, once.
    fn main_runs(&self) {
        // Ready says that one could be started; this one may be a moment behind.
        let mut rows = Vec::new();
        let runs = holds_within(LONG, || {
            let sandbox = QA.to_owned();
            let request = v1::SandboxRequest { sandbox };
            let gateway = self.gateway();
            let list = gateway.ask(|mut client| async move { client.sessions(request).await });
            rows = list.expect("listed").sessions;
            rows.retain(|row| row.kind == "main" && row.ending.is_none());
            !rows.is_empty()
        });
        assert!(runs && rows.len() == 1, "main processes: {rows:#?}");
    }

    /// `start`, `restart` or `stop`.
    fn told_to(&self, wanted: v1::Phase, again: bool) -> Result<v1::Status, tonic::Status> {
        let sandbox = QA.to_owned();
        self.gateway().ask(|mut client| async move {
            let grace_ms = 500;
            match (wanted, again) {
                (v1::Phase::Stopped, _) => client.stop(v1::StopRequest { sandbox, grace_ms }).await,
                (_, true) => client.restart(v1::StopRequest { sandbox, grace_ms }).await,
                (_, false) => client.start(v1::SandboxRequest { sandbox }).await,
            }
        })
    }

    fn no_file_is_left(&self) {
        for directory in [self.area.runtime(), self.area.state()] {
            let left: Vec<_> = fs::read_dir(directory.join("sandboxes"))
                .expect("there")
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            assert_eq!(left, [&*self.bystander.id], "in {}", directory.display());
        }
    }

    fn nothing_is_left(&self, round: &Round<'_>) {
        assert_eq!(self.gateway().names(), [BYSTANDER]);
        self.no_file_is_left();
        let running = || {
            let seen = round.seen.iter().filter(|it| it.runs()).map(|it| it.pid);
            let titled = parts(self.area, &self.bystander.id);
            let titled = titled.into_values().flatten().map(|it| it.pid);
            let left = seen.chain(round.mark.processes()).chain(titled);
            left.collect::<BTreeSet<i32>>()
        };
        let none = holds_within(Duration::from_secs(2), || running().is_empty());
        assert!(none, "left: {:?}", running());
        let area = self.area.root().to_string_lossy().into_owned();
        let mut mounts = mounts(self.area.root());
        mounts.retain(|line| line.contains(&*area));
        assert!(mounts.is_empty(), "{mounts:?}");
    }

    fn no_false_ready(&self, round: &Round<'_>) {
        let shown = round.watcher.shown();
        if let Some((longest, part)) = longest_false_ready(&shown, &round.deaths, now()) {
            let phases: Vec<_> = shown
                .iter()
                .map(|(at, status)| (*at, status.as_ref().map(|it| (it.phase(), &it.pids))))
                .collect();
            assert!(
                longest <= FALSE_READY,
                "Ready for {longest:?} over a dead {part:?}: {phases:#?}\n{}",
                said(self.area)
            );
        }
    }
}

impl Round<'_> {
    /// Remembers which processes there are: none of them may be left.
    fn look(&mut self, field: &Field<'_>) {
        let found = parts(field.area, &field.bystander.id);
        self.seen.extend(found.into_values().flatten());
    }

    /// Kills the victims, as soon as they are there.
    fn strike(&mut self, field: &Field<'_>) {
        for part in self.plan.victims.clone() {
            let mut found = Vec::new();
            if part == Part::Gateway {
                found.extend(Process::of(field.gateway().pid()));
            } else {
                holds_within(BORN, || {
                    let mut all = parts(field.area, &field.bystander.id);
                    found = all.remove(&part).unwrap_or_default();
                    self.seen.extend(found.iter().chain(all.values().flatten()));
                    !found.is_empty()
                });
            }
            for process in found {
                let at = now();
                process.kill();
                self.deaths.push(Death {
                    at,
                    part,
                    pid: process.pid,
                    generation: 1,
                });
            }
        }
    }

    /// Ready of a life whose boundary or launcher was killed is not the last word.
    fn may_stand(&self, status: &v1::Status) -> bool {
        let mut inside = self.deaths.iter();
        status.generation > 1
            || !inside.any(|death| matches!(death.part, Part::Boundary | Part::Launcher))
    }
}

fn ready(gateway: &Gateway, name: &str) -> v1::Status {
    gateway.until(name, "Ready", |status| status.phase() == v1::Phase::Ready)
}

fn asked(area: &Area, mark: &Mark) -> v1::CreateRequest {
    let mut asked = request(area, QA);
    let marked = format!("{}={}", Mark::NAME, mark.value());
    asked.environment.push(marked.into_bytes());
    asked.arguments = ["/bin/sleep", "1000"].map(Into::into).into();
    asked
}

fn request_id(plan: &Plan) -> String {
    format!("request-{}", plan.seed)
}

/// An error says what went wrong. One of the connection itself is the client's to tell.
fn stated(error: &tonic::Status) {
    assert!(
        !error.message().is_empty(),
        "an error without a word: {error:?}"
    );
    let cut = matches!(
        error.code(),
        tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled
    );
    assert!(
        cut || problem::of(error).is_some_and(|problem| !problem.reason.is_empty()),
        "an error without a reason: {error:?}"
    );
}

/// The last of a log, for the one who has to find out.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let last = lines
        .get(lines.len().saturating_sub(25)..)
        .unwrap_or_default();
    format!("{}\n", last.join("\n"))
}

fn say(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}

/// SV-02, EX-01: nothing acknowledged is lost, nothing is left, nothing hangs, nothing is shown that is not so.
#[test]
fn any_of_our_processes_may_die_at_any_moment() {
    let seed = seed("HOLDFAST_CRASH_SEED");
    let rounds = told("HOLDFAST_CRASH_ROUNDS").unwrap_or(ROUNDS);
    for area in everyone() {
        say(&format!(
            "crash: {rounds} rounds from seed {seed} as {}\n",
            area.caller()
        ));
        let began: Instant = now();
        let mut field = Field::new(&area);
        for number in 0..rounds {
            let plan = Plan::drawn(seed.wrapping_add(number));
            let began = now();
            field.play(plan.clone());
            if began.elapsed() > SLOW {
                say(&format!("crash: {:?} for {plan:?}\n", began.elapsed()));
                say(&last_lines(&said(&area)));
            }
        }
        say(&format!(
            "crash: {rounds} rounds in {:?}, {:?}\n",
            began.elapsed(),
            field.taken
        ));
        let gateway = field.gateway.take().expect("a gateway");
        gateway.delete(BYSTANDER, true).expect("deleted");
        until("the last one is gone", LONG, || gateway.names().is_empty());
        assert_eq!(gateway.stop(), Some(0));
    }
}
