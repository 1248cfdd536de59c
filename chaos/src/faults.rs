//! Makes faults on real processes, and knows how each is undone.
//!
//! ```text
//!  planned ─▶ whom: by the status, as a pidfd, by the status again ─▶ the blow ─▶ a repair
//! ```
//!
//! What cannot be made here says why, and nothing is touched. A repair needs nobody to answer: it works after Ctrl-C and in the
//! middle of a panic.

mod host;
pub(crate) mod limit;
mod repair;
pub(crate) mod victim;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_wire::v1;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::task::JoinSet;

use crate::gate::Unanswered;
use crate::load::{self, Ground};
use crate::mark::Mark;
use crate::own::Own;
use crate::scenario::{Actor, Fault, Process};
use crate::schedule::Planned;
use crate::siege::{Hit, World};
use crate::timeline::Fact;
pub(crate) use repair::Repair;
use victim::Victim;

/// The real processes of one sandbox.
pub(crate) struct Field {
    pub(crate) ground: Ground,
    /// Who is attacked, and nobody else.
    pub(crate) mark: Mark,
    /// Our own gateway; `None` where the sandbox is somebody else's.
    pub(crate) own: Option<Arc<Own>>,
    /// Whether faults that the whole machine feels are wanted.
    pub(crate) whole_machine: bool,
    /// Where the disk can be filled without harm to others.
    pub(crate) disk: Option<PathBuf>,
    /// Loads that are faults.
    pub(crate) loads: Mutex<JoinSet<()>>,
}

impl World for Field {
    type Repair = Repair;

    async fn strike(&self, planned: &Planned) -> Result<Hit<Repair>, String> {
        // A client that goes away leaves its session running, which is right, and not what is wanted here.
        let limit = planned.until.saturating_sub(planned.at);
        match &planned.fault {
            Fault::Emfile { process, spare } => {
                let victim = self.victim(*process).await?;
                let known = self.ground.journal.last().descriptors;
                let used = known.get(process.word()).map(|of| of.used);
                let repair = limit::lower(&victim, *spare, used)?;
                Ok(Hit::new(victim.name(), repair))
            }
            Fault::Enfile { spare } => {
                self.wants_whole_machine("the table of files is one for the whole machine")?;
                let keeper = self.victim(Process::Keeper).await?;
                let boundary = self.victim(Process::Boundary).await?;
                host::fill_file_table(&[keeper.pid, boundary.pid], *spare)
                    .map(|repair| Hit::new("the host", repair))
            }
            Fault::Kill(process) => self.kill(*process).await,
            Fault::Stop(process) => {
                let victim = self.victim(*process).await?;
                victim.signal(Signal::STOP)?;
                Ok(Hit::new(victim.name(), Repair::Continue(victim)))
            }
            Fault::Panic(actor) => self.blow(actor, v1::Blow::Panic, planned.pick).await,
            Fault::Hang(actor) => self.blow(actor, v1::Blow::Hang, planned.pick).await,
            Fault::FdFlood(_) if self.ground.server.is_none() => {
                Err("the policy names no server to connect to: needs --connect".into())
            }
            Fault::FdFlood(count) => {
                Ok(self.load(load::fd_flood(self.ground.clone(), *count, limit)))
            }
            Fault::ExecStorm(count) => Ok(self.load(load::storm(self.ground.clone(), *count))),
            Fault::SlowReader(count) => {
                Ok(self.load(load::slow_readers(self.ground.clone(), *count, limit)))
            }
            Fault::DiskFull => match &self.disk {
                Some(directory) => {
                    host::fill_disk(directory).map(|repair| Hit::new("the state directory", repair))
                }
                None => Err(
                    "the state directory has no file system of its own: needs --self as root"
                        .into(),
                ),
            },
            Fault::ClockJump(by) => {
                self.wants_whole_machine("the clock is one for the whole machine")?;
                host::jump(*by).map(|repair| Hit::new("the clock", repair))
            }
        }
    }

    fn mend(&self, repair: Repair) {
        if let Err(what) = repair.mend() {
            // Told at once as well: after Ctrl-C nobody reads the journal.
            let _nobody_looks = writeln!(io::stderr(), "holdfast-chaos: still broken: {what}");
            self.ground
                .journal
                .tell(Fact::Left(format!("a fault: {what}")));
        }
    }
}

impl Field {
    async fn kill(&self, process: Process) -> Result<Hit<Repair>, String> {
        let heals = match process {
            // Its gateway gives the sandbox another.
            Process::Keeper => true,
            Process::Gateway | Process::Boundary | Process::Launcher => false,
        };
        if !heals && self.own.is_none() {
            return Err(format!(
                "a {process} that is killed does not come back as it was: needs --self"
            ));
        }
        let victim = self.victim(process).await?;
        let name = victim.name();
        victim.signal(Signal::KILL)?;
        let repair = match (process, &self.own) {
            (Process::Gateway, Some(own)) => Repair::Gateway(Arc::clone(own)),
            _ => Repair::Nothing,
        };
        Ok(Hit::new(name, repair))
    }

    async fn victim(&self, process: Process) -> Result<Victim, String> {
        Victim::find(&self.ground.gate, &self.mark, process).await
    }

    async fn blow(&self, actor: &Actor, blow: v1::Blow, pick: u64) -> Result<Hit<Repair>, String> {
        let path = match actor {
            Actor::Named(path) => path.clone(),
            Actor::AnyOf(process) => self.any_of(*process, pick).await?,
        };
        let request = v1::StrikeRequest {
            sandbox: self.ground.sandbox.clone(),
            process: path.split('/').next().unwrap_or_default().to_owned(),
            path: path.clone(),
            blow: blow.into(),
        };
        self.mark.status().await?;
        match self.ground.gate.strike(request).await {
            // Who was struck may be who should have answered.
            Ok(_) | Err(Unanswered::Gone(_)) => Ok(Hit::new(path, Repair::Nothing)),
            Err(Unanswered::Refused { reason, .. }) if reason == "ChaosNotAllowed" => {
                Err("the gateway was not started with --chaos".into())
            }
            Err(Unanswered::Refused {
                reason, message, ..
            }) => Err(format!("{path} cannot be struck: {message} ({reason})")),
        }
    }

    /// One of the actors that run now; sessions come and go and are left alone.
    async fn any_of(&self, process: Process, pick: u64) -> Result<String, String> {
        let trees = self.ground.gate.trees(&self.ground.sandbox).await;
        let trees =
            trees.map_err(|why| format!("nobody tells the tree of the {process}: {why}"))?;
        let tree = trees
            .trees
            .into_iter()
            .find(|tree| tree.process == process.word());
        let rows = tree
            .ok_or_else(|| format!("there is no tree of a {process}"))?
            .rows;
        let actors: Vec<String> = rows
            .into_iter()
            .filter(|row| row.strategy.is_empty() && row.state == "Running")
            .map(|row| row.path)
            .filter(|path| !path.contains("/sessions/"))
            .collect();
        let index = pick
            .checked_rem(actors.len() as u64)
            .and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| actors.get(index).cloned())
            .ok_or_else(|| format!("no actor of the {process} runs"))
    }

    fn load(&self, load: impl Future<Output = ()> + Send + 'static) -> Hit<Repair> {
        let mut loads = self.loads.lock();
        while loads.try_join_next().is_some() {}
        let handle = loads.spawn(load);
        Hit::new("the sandbox", Repair::Load(handle))
    }

    fn wants_whole_machine(&self, why: &str) -> Result<(), String> {
        if self.whole_machine {
            return Ok(());
        }
        Err(format!("{why}: needs --whole-machine"))
    }
}

/// Nobody is waited for longer who should tell us whom to strike.
pub(crate) const STRIKE: Duration = Duration::from_secs(3);
