//! One keeper of a lasting boundary, obeying lines: what the tests of takeover drive instead of a gateway.
//!
//! `holder fork DIR [GRACE_MS]` forks a boundary and is its first keeper; `holder take DIR EPOCH` takes it over. DIR holds
//! `policy.yaml` and `token`, and gets the boundary's socket, its log and the names.

mod orders;

use std::fs::{self, File};
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_boundary::fence::{Host, plan};
use holdfast_boundary::{GRACE, Lasting, start_lasting};
use holdfast_keeper::link::{Approach, connect};
use holdfast_keeper::{Arguments, Keeper, Tenure};
use holdfast_observability::Audit;
use holdfast_policy::Policy;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["fork", directory, rest @ ..] => {
            let directory = Path::new(directory);
            let grace = match rest {
                [millis, ..] => Duration::from_millis(millis.parse()?),
                [] => GRACE,
            };
            let approach = fork(directory, grace)?;
            hold(directory, approach, 1)
        }
        ["take", directory, epoch] => {
            let directory = Path::new(directory);
            let approach = connect(&directory.join("boundary.sock"))?;
            hold(directory, approach, epoch.parse()?)
        }
        _ => Err("holder fork DIR [GRACE_MS] | holder take DIR EPOCH".into()),
    }
}

fn policy(directory: &Path) -> Outcome<Policy> {
    let text = fs::read_to_string(directory.join("policy.yaml"))?;
    Policy::parse("policy.yaml", &text).map_err(|problems| format!("{problems:?}").into())
}

fn fork(directory: &Path, grace: Duration) -> Outcome<Approach> {
    let host = Host::look(
        PathBuf::from("/"),
        directory.join("work"),
        directory.join("work"),
    );
    let mut fence = plan(&policy(directory)?, &host)?;
    let log = |name| {
        let mut options = File::options();
        let options = options.create(true).read(true).append(true);
        options.open(directory.join(name))
    };
    let lasting = Lasting {
        door: directory.join("boundary.sock"),
        pid: directory.join("boundary.pid"),
        log: log("boundary.log")?,
        older: log("boundary.log.1")?,
        grace,
    };
    let (boundary, socket) = start_lasting(&mut fence, lasting)?;
    Ok(Approach {
        socket,
        pid: boundary.pid(),
        pidfd: boundary.pidfd(),
    })
}

fn hold(directory: &Path, approach: Approach, epoch: u64) -> Outcome<()> {
    let audit = Audit::file(&directory.join(format!("audit.{epoch}")))?;
    audit.start()?;
    let arguments = Arguments {
        sandbox: "held".to_owned(),
        policy: Arc::new(policy(directory)?),
        audit: audit.clone(),
        descriptors: 1024,
        tenure: Some(Tenure {
            epoch,
            token: fs::read(directory.join("token"))?,
            names: directory.join("names"),
            reconnects: 0,
        }),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        match Keeper::start(&arguments, approach).await {
            Ok(keeper) => obey(&keeper, directory).await,
            Err(unbuilt) => say(&format!("unbuilt {unbuilt}")),
        }
    });
    audit.close(Duration::from_secs(1));
    outcome
}

async fn obey(keeper: &Keeper, directory: &Path) -> Outcome<()> {
    say(&format!("ready {}", keeper.held().pid))?;
    loop {
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|_| line)
        })
        .await??;
        if line.is_empty() {
            return Ok(());
        }
        let told = orders::obey(keeper, directory, line.trim_end()).await;
        say(&told.unwrap_or_else(|why| format!("error {why}")))?;
    }
}

fn say(line: &str) -> Outcome<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
