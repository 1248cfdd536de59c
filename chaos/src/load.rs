//! What the sandbox has to do while it is attacked, and how Ready is tried.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use holdfast_clock::Seed;
use holdfast_wire::v1;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::gate::{Gate, Unanswered};
use crate::journal::Journal;
use crate::scenario::{Load, Probe};
use crate::session::{Program, Tried, failure, fresh_id};
use crate::timeline::{Fact, Life, Outcome, Probed};

/// How programs are started in the sandbox under siege.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) gate: Gate,
    pub(crate) journal: Journal,
    pub(crate) sandbox: String,
    /// Where our program stands inside.
    pub(crate) inside: String,
    /// A server that the policy names; `None` where it names none.
    pub(crate) server: Option<Server>,
}

/// Whom programs inside connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether it gives back what it is sent; of others no more than a connection is wanted.
    pub(crate) echoes: bool,
}

impl Ground {
    /// Our program inside with these words, and the server's address behind the first where it has one.
    pub(crate) fn program(&self, word: &str, more: &[&str]) -> Program {
        let mut arguments = vec![self.inside.clone(), word.to_owned()];
        if let (true, Some(server)) = (WITH_SERVER.contains(&word), &self.server) {
            arguments.extend([server.host.clone(), server.port.to_string()]);
        }
        arguments.extend(more.iter().map(|&word| word.to_owned()));
        Program {
            sandbox: self.sandbox.clone(),
            arguments,
            limit: LIMIT,
        }
    }

    /// Ends the programs of ours that would run on: a session outlives a client that goes away.
    pub(crate) async fn sweep(&self) {
        let Ok(list) = self.gate.sessions(&self.sandbox).await else {
            return self
                .journal
                .note("nobody lists the sessions: programs of ours may run on");
        };
        let ours = list.sessions.into_iter().filter(|row| {
            let is_ours = row
                .arguments
                .first()
                .is_some_and(|first| *first == self.inside.as_bytes());
            is_ours && row.ending.is_none()
        });
        for row in ours {
            let _ended_meanwhile = self.gate.kill(&self.sandbox, row.session).await;
        }
    }

    /// The whole way of an agent, as far as this sandbox has one.
    pub(crate) fn way(&self) -> Program {
        let word = match &self.server {
            Some(Server { echoes: true, .. }) => "connect",
            Some(Server { echoes: false, .. }) => "reach",
            None => "nothing",
        };
        self.program(word, &[])
    }
}

/// Tries the whole way again and again until it is dropped.
pub(crate) async fn probe(ground: Ground, probe: Probe) {
    if probe.every.is_zero() {
        // One after another: what one costs is not blurred by the next.
        loop {
            one_probe(ground.clone(), probe.limit).await;
        }
    }
    let mut running = JoinSet::new();
    let mut ticks = interval(probe.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        while running.try_join_next().is_some() {}
        if running.len() < MOST_PROBES {
            running.spawn(one_probe(ground.clone(), probe.limit));
        }
    }
}

async fn one_probe(ground: Ground, limit: Duration) {
    let started = ground.journal.now();
    let program = ground.way();
    let request = fresh_id();
    let failure = match timeout(limit, program.once(&ground.gate, &request)).await {
        Ok(tried) => failure(&tried),
        Err(_late) => Some(format!("not done within {limit:?}")),
    };
    ground
        .journal
        .tell(Fact::Probed(Probed { started, failure }));
}

/// All of the load until it is dropped.
pub(crate) async fn bear(ground: Ground, load: Load, create: v1::CreateRequest, seed: Seed) {
    let execs = execs(&ground, load.execs);
    let holds = hold(&ground, "hold", load.connections, LIMIT);
    // So many a second, by one thread inside.
    let apart = 1_000_u32.checked_div(load.flood).unwrap_or(0);
    let flood = hold(&ground, "flood", apart, LIMIT);
    let lives = lives(&ground, load.lives, &create, seed);
    tokio::join!(execs, holds, flood, lives);
}

async fn execs(ground: &Ground, per_second: u32) {
    let Some(apart) = Duration::from_secs(1).checked_div(per_second) else {
        return pending().await;
    };
    let mut running = JoinSet::new();
    let mut ticks = interval(apart);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        while running.try_join_next().is_some() {}
        if running.len() < MOST_EXECS {
            let (program, ground) = (ground.program("nothing", &[]), ground.clone());
            running.spawn(async move {
                program.tracked(&ground.gate, &ground.journal).await;
            });
        }
    }
}

/// A program inside that holds or makes connections, started again whenever it ends.
async fn hold(ground: &Ground, word: &str, count: u32, limit: Duration) {
    if count == 0 || ground.server.is_none() {
        return pending().await;
    }
    loop {
        let program = Program {
            limit,
            ..ground.program(word, &[&count.to_string()])
        };
        let tried = program.held(&ground.gate).await;
        if let Tried::Ended {
            outcome: Outcome::Exited(CUT),
            ..
        } = tried
        {
            ground.journal.tell(Fact::Cut);
        }
        sleep(AGAIN).await;
    }
}

/// So many bursts at once until it is dropped: programs that end by themselves, each with its status. One that did not run is not
/// followed by the next at once.
pub(crate) async fn storm(ground: Ground, at_once: u32) {
    let room = Arc::new(Semaphore::new(usize::try_from(at_once).unwrap_or(1)));
    let mut running = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        while running.try_join_next().is_some() {}
        let (program, ground) = (ground.program("nothing", &[]), ground.clone());
        running.spawn(async move {
            if !program.tracked(&ground.gate, &ground.journal).await {
                sleep(AGAIN).await;
            }
            drop(place);
        });
    }
}

/// Clients that do not read, each on a connection of its own.
pub(crate) async fn slow_readers(ground: Ground, count: u32, limit: Duration) {
    let mut running = JoinSet::new();
    for _ in 0..count {
        let gate = ground.gate.apart();
        let program = Program {
            limit,
            ..ground.program("pour", &[])
        };
        running.spawn(async move { program.unread(&gate).await });
    }
    pending::<()>().await;
}

/// Connections held from inside, until it is dropped.
pub(crate) async fn fd_flood(ground: Ground, count: u32, limit: Duration) {
    hold(&ground, "hold", count, limit).await;
}

/// Sandboxes that come and go.
async fn lives(ground: &Ground, at_once: u32, create: &v1::CreateRequest, seed: Seed) {
    let mut running = JoinSet::new();
    for number in 0..at_once {
        let (ground, create) = (ground.clone(), create.clone());
        let seed = seed.derive(&format!("life-{number}"));
        running.spawn(live(ground, create, number, seed));
    }
    while running.join_next().await.is_some() {}
    pending::<()>().await;
}

async fn live(ground: Ground, create: v1::CreateRequest, number: u32, seed: Seed) {
    let mut dice = seed.dice();
    for turn in 0_u32.. {
        let name = format!("life-{number}-{turn}");
        let request = v1::CreateRequest {
            name: name.clone(),
            ..create.clone()
        };
        if let Err(why) = ground.gate.create(request).await {
            match why {
                Unanswered::Refused { .. } => ground
                    .journal
                    .note(format!("{name} was not created: {why}")),
                Unanswered::Gone(_) => {}
            }
            sleep(AGAIN).await;
            continue;
        }
        ground.journal.tell(Fact::Life(Life::Created(name.clone())));
        let program = Program {
            sandbox: name.clone(),
            ..ground.program("nothing", &[])
        };
        for _ in 0..dice.below(10) {
            if let Tried::Ended {
                outcome: Outcome::Exited(0),
                ..
            } = program.once(&ground.gate, &fresh_id()).await
            {
                ground.journal.tell(Fact::Life(Life::Used(name.clone())));
            }
            sleep(dice.between(Duration::ZERO, AGAIN)).await;
        }
        // Some stay until the end, so that there is something to lose.
        if dice.chance(1, 8) {
            continue;
        }
        ground.journal.tell(Fact::Life(Life::Ending(name.clone())));
        if ground.gate.delete(&name).await.is_ok() {
            ground.journal.tell(Fact::Life(Life::Deleted(name)));
        }
    }
}

/// The words of our program that are followed by an address.
const WITH_SERVER: [&str; 4] = ["connect", "reach", "hold", "flood"];
/// The status of our program when a connection that it held was closed by somebody else.
const CUT: i32 = 3;
/// At a time: one that hangs keeps nobody from trying.
const MOST_PROBES: usize = 64;
const MOST_EXECS: usize = 256;
/// Of a program that ends by itself, or is started again.
const LIMIT: Duration = Duration::from_mins(10);
const AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use holdfast_clock::Clock;

    use super::*;

    /// A server that does not echo is reached and no more; else every probe of somebody's sandbox would fail.
    #[test]
    fn the_way_is_as_long_as_the_server_bears() {
        let way = |echoes: Option<bool>| {
            let server = echoes.map(|echoes| Server {
                host: "origin.test".into(),
                port: 443,
                echoes,
            });
            let ground = Ground {
                gate: Gate::new(Path::new("/nowhere")),
                journal: Journal::new(Clock::system()),
                sandbox: "qa".into(),
                inside: "inside".into(),
                server,
            };
            ground.way().arguments.join(" ")
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let _within = runtime.as_ref().expect("a runtime").enter();

        assert_eq!(way(Some(true)), "inside connect origin.test 443");
        assert_eq!(way(Some(false)), "inside reach origin.test 443");
        assert_eq!(way(None), "inside nothing");
    }
}
