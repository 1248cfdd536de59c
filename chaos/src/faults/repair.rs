//! What ends a fault. Nobody has to answer for it, so it can be done at any time, from any place.

use std::fs;
use std::io;
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
    /// The limit becomes what it was, if the process is the one it was and nobody else has set it since.
    Limit {
        pid: u32,
        start: Option<u64>,
        lowered: Option<u64>,
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
    /// Ends it, or says what is still broken. A victim that is gone needs nothing.
    pub(crate) fn mend(self) -> Result<(), String> {
        match self {
            Self::Limit {
                pid,
                start,
                lowered,
                before,
            } => limit::restore(pid, start, lowered, before),
            Self::Continue(victim) => {
                let _gone_meanwhile = victim.signal(Signal::CONT);
            }
            Self::Nothing => {}
            Self::Gateway(own) => own.start_again(),
            Self::Load(load) => load.abort(),
            Self::File(path) => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("remove {}: {error}", path.display()));
                }
                Ok(()) | Err(_) => {}
            },
            Self::Setting { path, before } => {
                return fs::write(path, &before)
                    .map_err(|error| format!("write {} to {path} again: {error}", before.trim()));
            }
            Self::Clock(by) => {
                return host::set_back(by).map_err(|why| format!("{why}; it is {by:?} ahead"));
            }
        }
        Ok(())
    }
}
