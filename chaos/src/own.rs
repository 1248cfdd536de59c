//! A gateway of our own, with a sandbox and a server that its policy names: all of it private, all of it ended by pid.
//!
//! Whatever the gateway has started becomes our child when its parent dies (we are a subreaper), so nothing can get away, and
//! what should be gone and is not is seen.

mod audit;
mod leftovers;
mod root;
mod server;

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdfast_wire::v1;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::faults::limit;
use crate::gate::Gate;
pub(crate) use audit::Audit;
pub(crate) use root::Root;
pub(crate) use server::Server;

/// What a gateway of our own is started with.
#[derive(Clone, Debug)]
pub(crate) struct Birth {
    pub(crate) holdfast: PathBuf,
    /// Descriptors that it and all below it may have.
    pub(crate) nofile: Option<u64>,
}

/// Our gateway; ended with all that belongs to it when this is dropped.
#[derive(Debug)]
pub(crate) struct Own {
    birth: Birth,
    home: TempDir,
    gateway: Mutex<Option<Child>>,
}

impl Own {
    /// Makes the private directories, and starts a gateway that is not awaited.
    pub(crate) fn start(birth: Birth, home: TempDir) -> Result<Self, String> {
        nix::sys::prctl::set_child_subreaper(true)
            .map_err(|error| format!("become the parent of what is orphaned: {error}"))?;
        for directory in ["s", "r", "w"] {
            fs::create_dir_all(home.path().join(directory)).map_err(|error| {
                format!("create a directory in {}: {error}", home.path().display())
            })?;
        }
        let own = Self {
            birth,
            home,
            gateway: Mutex::new(None),
        };
        own.launch()?;
        Ok(own)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime().join("gateway.sock")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.home.path().join("s")
    }

    fn runtime(&self) -> PathBuf {
        self.home.path().join("r")
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("gateway.log")
    }

    /// Waits until the gateway answers.
    pub(crate) async fn serves(&self, gate: &Gate) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..TRIES {
            match gate.version().await {
                Ok(_) => return Ok(()),
                Err(why) => last = why.to_string(),
            }
            sleep(AGAIN).await;
        }
        Err(format!(
            "our gateway does not answer: {last}\n{}",
            self.last_words()
        ))
    }

    /// Starts the gateway again after its death, as a service manager would.
    pub(crate) fn start_again(&self) {
        let dead = self.gateway.lock().take();
        if let Some(mut dead) = dead {
            let _ended_already = dead.kill();
            let _status = dead.wait();
        }
        let _told_by_silence = self.launch();
    }

    fn launch(&self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.map_err(|error| format!("open {}: {error}", self.log().display()))?;
        let errors = log
            .try_clone()
            .map_err(|error| format!("open the log again: {error}"))?;
        let child = Command::new(&self.birth.holdfast)
            .arg("gateway")
            .arg("--chaos")
            .arg("--state-dir")
            .arg(self.state())
            .arg("--runtime-dir")
            .arg(self.runtime())
            .env_remove("HOLDFAST_GATEWAY")
            .env_remove("HOLDFAST_STATE_DIR")
            .env_remove("HOLDFAST_RUNTIME_DIR")
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("start {}: {error}", self.birth.holdfast.display()))?;
        if let Some(nofile) = self.birth.nofile {
            limit::set(child.id(), nofile)?;
        }
        *self.gateway.lock() = Some(child);
        Ok(())
    }

    /// The end of what the gateway has said.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(10)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Copies what gateway, keeper and boundary have logged; who reads of a fault wants to know what they said.
    pub(crate) fn copy_logs(&self, id: &str, to: &Path) {
        let of_it = self.state().join("sandboxes").join(id);
        let files = [
            "keeper.log",
            "keeper.log.1",
            "boundary.log",
            "boundary.log.1",
        ]
        .map(|name| of_it.join(name));
        let _without = fs::create_dir_all(to);
        for file in files.iter().chain([&self.log()]) {
            if let Some(name) = file.file_name() {
                let _not_there = fs::copy(file, to.join(name));
            }
        }
    }

    /// What is asked of our gateway: a sandbox that idles and knows one server.
    pub(crate) fn request(
        &self,
        name: &str,
        inside: &Path,
        server: u16,
        root: Option<&Root>,
    ) -> v1::CreateRequest {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 4096));
        let files = match root {
            // The baseline: all of the root.
            Some(_) => String::new(),
            None => format!(
                "filesystem_policy:\n  include_workdir: false\n  read_only: [/usr, /lib, /lib64, /bin, /sbin, /etc, \"{}\"]\n  read_write: [/tmp]\n\
                 landlock: {{compatibility: best_effort}}\n",
                inside.parent().unwrap_or(inside).display()
            ),
        };
        let policy = format!(
            "version: 1\n{files}network_policies:\n  chaos:\n    endpoints:\n      - {{host: {SERVER}, port: {server}}}\n\
             resolver: {{hosts: {{{SERVER}: [127.0.0.1]}}}}\n"
        );
        let path: OsString = "PATH=/usr/local/bin:/usr/bin:/bin".into();
        v1::CreateRequest {
            name: name.to_owned(),
            policy,
            policy_name: "chaos".into(),
            rootfs: root
                .map(|root| root.path().as_os_str().as_bytes().to_vec())
                .unwrap_or_default(),
            directory: b"/".to_vec(),
            workdir: self.home.path().join("w").into_os_string().into_vec(),
            environment: vec![path.into_vec()],
            restart: v1::RestartPolicy::Always.into(),
            descriptors_soft: soft,
            descriptors_hard: hard,
            ..v1::CreateRequest::default()
        }
    }

    /// Reaps what became ours by the death of its parent: no init would leave it as a zombie.
    pub(crate) fn reap(&self) {
        let gateway = self.gateway.lock().as_ref().map(Child::id);
        for pid in leftovers::ours() {
            if Some(pid) != gateway {
                let _still_runs = waitpid(known(pid), Some(WaitPidFlag::WNOHANG));
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut gateway = self.gateway.lock();
        gateway
            .as_mut()
            .is_none_or(|child| matches!(child.try_wait(), Ok(Some(_)) | Err(_)))
    }

    /// Ends the gateway in order, and tells what is still there that should not be.
    pub(crate) async fn end(&self, ids: &[String]) -> Vec<String> {
        let gateway = self.gateway.lock().as_ref().map(Child::id);
        if let Some(pid) = gateway.map(known) {
            let _ended_already = kill(pid, Signal::SIGTERM);
            for _ in 0..TRIES {
                if self.has_ended() {
                    break;
                }
                sleep(AGAIN).await;
            }
        }
        // One that does not end in order is ended.
        let gateway = self.gateway.lock().take();
        if let Some(mut child) = gateway {
            let _ended_already = child.kill();
            let _status = child.wait();
        }
        // What is ending has a moment for it.
        let mut left = Vec::new();
        for _ in 0..LAST_TRIES {
            self.reap();
            left = leftovers::look(self.home.path(), &self.state(), &self.runtime(), ids);
            if left.is_empty() {
                break;
            }
            sleep(AGAIN).await;
        }
        left
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(mut child) = self.gateway.get_mut().take() {
            let _ended_already = child.kill();
            let _status = child.wait();
        }
        // Each death makes us the parent of what the dead one had started.
        for _ in 0..TRIES {
            let left = leftovers::ours();
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _ended_already = kill(known(pid), Signal::SIGKILL);
                let _status = waitpid(known(pid), None);
            }
        }
        // Else the private directory could not be removed.
        let _no_mount = nix::mount::umount2(&self.state(), nix::mount::MntFlags::MNT_DETACH);
    }
}

fn known(pid: u32) -> Pid {
    // A number that is none is nobody's: no process has the greatest one.
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

/// The name of our server inside.
pub(crate) const SERVER: &str = "chaos.test";
const AGAIN: Duration = Duration::from_millis(100);
const TRIES: usize = 100;
const LAST_TRIES: usize = 30;
