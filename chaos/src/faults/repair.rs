//! What ends a fault. Nobody has to answer for it, so it can be done at any time, from any place.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Rlimit, Signal};
use tokio::task::AbortHandle;

use super::victim::Victim;
use super::{host, limit};
use crate::own::Own;

/// What ends a fault.
#[derive(Debug)]
pub(crate) enum Repair {
    /// The limit becomes what it was, if the process is the one it was.
    Limit {
        pid: u32,
        start: Option<u64>,
        before: Rlimit,
    },
    /// SIGCONT.
    Continue(Victim),
    /// Whoever watches the victim replaces it.
    Nothing,
    /// Our gateway is started again.
    Gateway(Arc<Own>),
    /// A load of ours ends.
    Load(AbortHandle),
    /// The file that fills the disk is removed.
    File(PathBuf),
    /// A setting of the kernel becomes what it was.
    Setting { path: &'static str, before: String },
    /// The clock is set back.
    Clock(Duration),
}

impl Repair {
    pub(crate) fn mend(self) {
        match self {
            Self::Limit { pid, start, before } => limit::restore(pid, start, before),
            Self::Continue(victim) => {
                let _gone_meanwhile = victim.signal(Signal::CONT);
            }
            Self::Nothing => {}
            Self::Gateway(own) => own.start_again(),
            Self::Load(load) => load.abort(),
            Self::File(path) => {
                let _gone_meanwhile = fs::remove_file(path);
            }
            Self::Setting { path, before } => {
                let _refused = fs::write(path, before);
            }
            Self::Clock(by) => host::set_back(by),
        }
    }
}
