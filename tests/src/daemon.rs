//! A gateway of the test's own, and a client of it.

use crate::area::Area;
use crate::run::Run;
use crate::wait::{LONG, holds_within, now, until};
use holdfast_wire::v1;
use holdfast_wire::v1::gateway_client::GatewayClient;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// A gateway that runs, as the area's caller.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    socket: PathBuf,
    runtime: Runtime,
}

/// What a command that ended has said.
#[derive(Debug)]
pub struct Said {
    /// Its exit status.
    pub code: Option<i32>,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Gateway {
    /// Starts one and waits until it serves.
    pub fn start(area: &Area, options: &[&str]) -> Self {
        let child = command(area, options)
            .stderr(log(area))
            .spawn()
            .expect("start the gateway");
        let gateway = Self {
            child,
            socket: area.runtime().join("gateway.sock"),
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime"),
        };
        let serves = holds_within(LONG, || gateway.version().is_ok());
        assert!(serves, "the gateway does not serve: {}", said(area));
        gateway
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// A connection to it.
    pub fn channel(&self) -> Result<Channel, tonic::transport::Error> {
        self.runtime.block_on(dial(&self.socket))
    }

    /// Does something with a client of it.
    pub fn ask<T, F>(&self, question: impl FnOnce(GatewayClient<Channel>) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let channel = self
            .channel()
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let asked = Duration::from_secs(50);
        self.runtime.block_on(async {
            let answer = tokio::time::timeout(asked, question(GatewayClient::new(channel))).await;
            answer
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("the gateway does not answer")))
                .map(tonic::Response::into_inner)
        })
    }

    /// Waits for something within its runtime.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Begins something within its runtime.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Which one it is.
    pub fn version(&self) -> Result<v1::VersionReply, Status> {
        self.ask(|mut client| async move { client.version(v1::Nothing {}).await })
    }

    /// Makes a sandbox.
    pub fn create(&self, request: v1::CreateRequest) -> Result<v1::Status, Status> {
        self.ask(|mut client| async move { client.create(request).await })
    }

    /// How a sandbox stands.
    pub fn get(&self, name: &str) -> Result<v1::Status, Status> {
        let request = v1::SandboxRequest {
            sandbox: name.to_owned(),
        };
        self.ask(|mut client| async move { client.get(request).await })
    }

    /// The names of all sandboxes.
    pub fn names(&self) -> Vec<String> {
        let list =
            self.ask(|mut client| async move { client.list(v1::ListRequest::default()).await });
        let list = list.expect("listed").sandboxes;
        list.into_iter().map(|status| status.name).collect()
    }

    /// Leaves nothing of a sandbox.
    pub fn delete(&self, name: &str, force: bool) -> Result<(), Status> {
        let request = v1::DeleteRequest {
            sandbox: name.to_owned(),
            force,
            ..v1::DeleteRequest::default()
        };
        self.ask(|mut client| async move { client.delete(request).await })
            .map(drop)
    }

    /// Waits until a sandbox stands so, and answers how.
    pub fn until(&self, name: &str, what: &str, holds: impl Fn(&v1::Status) -> bool) -> v1::Status {
        let end = now() + LONG;
        loop {
            let status = self.get(name).expect("the sandbox is there");
            if holds(&status) {
                return status;
            }
            assert!(now() < end, "{name} is never {what}: {status:#?}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited for");
    }

    /// Ends it in good order, and answers its exit status.
    pub fn stop(mut self) -> Option<i32> {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.pid()),
            nix::sys::signal::Signal::SIGTERM,
        )
        .expect("told to stop");
        let mut status = None;
        until("the gateway ends", LONG, || {
            status = self.child.try_wait().expect("waited for");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that was ended before is what we want.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs a gateway that is to refuse to start.
pub fn refused(area: &Area, options: &[&str]) -> Said {
    let mut child = command(area, options)
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the gateway");
    let mut status = None;
    until("the gateway refuses", LONG, || {
        status = child.try_wait().expect("waited for");
        status.is_some()
    });
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().expect("a pipe");
    pipe.read_to_string(&mut stderr).expect("text");
    Said {
        code: status.and_then(|status| status.code()),
        stderr,
    }
}

/// What a client sends to make a sandbox that idles in the area.
pub fn request(area: &Area, name: &str) -> v1::CreateRequest {
    use std::os::unix::ffi::OsStringExt as _;
    v1::CreateRequest {
        name: name.to_owned(),
        workdir: area.work().into_os_string().into_vec(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        descriptors_soft: 1024,
        descriptors_hard: 4096,
        ..v1::CreateRequest::default()
    }
}

fn command(area: &Area, options: &[&str]) -> Command {
    let words = std::iter::once("gateway").chain(options.iter().copied());
    let mut command = Run::plain(area, words).describe();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// What the area's gateways have logged so far.
pub fn said(area: &Area) -> String {
    std::fs::read_to_string(area.root().join("log/gateway.log")).unwrap_or_default()
}

fn log(area: &Area) -> Stdio {
    let path = area.root().join("log/gateway.log");
    let file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .expect("open the gateway's log");
    file.into()
}

/// A connection to a service on a Unix socket.
pub async fn dial(path: &Path) -> Result<Channel, tonic::transport::Error> {
    let path = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    Endpoint::from_static("http://gateway")
        .connect_with_connector(connector)
        .await
}
