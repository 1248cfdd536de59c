//! One lasting sandbox without a gateway: the test writes the spec, starts the keeper and speaks with it.

use crate::area::Area;
use crate::daemon::dial;
use crate::leaks::Mark;
use crate::run::{Run, Running};
use crate::wait::{LONG, holds_within, now};
use bytes::Bytes;
use holdfast_wire::v1::keeper_client::KeeperClient;
use holdfast_wire::v1::session_input::Kind as In;
use holdfast_wire::v1::session_output::Kind as Out;
use holdfast_wire::{MOST_BYTES, v1};
use nix::sys::signal::Signal;
use prost::Message as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// A client of one keeper.
pub type Client = KeeperClient<Channel>;

/// A sandbox and its keeper.
#[derive(Debug)]
pub struct Keeping<'a> {
    area: &'a Area,
    place: PathBuf,
    /// What the keeper is given.
    pub spec: v1::Spec,
    /// In the environment of every process of the sandbox.
    pub mark: Mark,
    keeper: Option<Running>,
}

impl<'a> Keeping<'a> {
    /// A sandbox that idles, not started.
    pub fn new(area: &'a Area, policy: &str) -> Self {
        let place = area.directory(&area.fresh("keeper"));
        let state = area.directory(&area.fresh("state"));
        let mark = Mark::new();
        let environment = [
            "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned(),
            format!("HOME={}", area.work().display()),
            "LANG=C.UTF-8".to_owned(),
            format!("{}={}", Mark::NAME, mark.value()),
        ];
        let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
        let request = v1::CreateRequest {
            name: "qa".to_owned(),
            workdir: bytes(&area.work()),
            environment: environment.map(String::into_bytes).to_vec(),
            descriptors_soft: 1024,
            descriptors_hard: 4096,
            ..v1::CreateRequest::default()
        };
        let spec = v1::Spec {
            id: "01TEST".to_owned(),
            generation: 1,
            epoch: 1,
            request: Some(request),
            policy: Some(v1::PolicyRevision {
                revision: 1,
                yaml: policy.to_owned(),
            }),
            gateway: bytes(&place.join("gateway.sock")),
            state: bytes(&state),
            token: vec![7; 32],
            chaos: false,
            reconnects: 0,
        };
        Self {
            area,
            place,
            spec,
            mark,
            keeper: None,
        }
    }

    /// The same with a main process.
    #[must_use]
    pub fn program(mut self, words: &[&str]) -> Self {
        let request = self.spec.request.get_or_insert_default();
        request.arguments = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self
    }

    /// The keeper's directory.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// A file of the sandbox's state.
    pub fn state(&self, name: &str) -> String {
        let state = String::from_utf8_lossy(&self.spec.state).into_owned();
        fs::read_to_string(Path::new(&state).join(name)).unwrap_or_default()
    }

    /// Starts a keeper.
    pub fn start(&mut self) {
        self.area
            .file(&self.place.join("spec"), self.spec.encode_to_vec());
        let words = ["keeper".into(), self.place.clone().into_os_string()];
        self.keeper = Some(Run::plain(self.area, words).start());
    }

    /// Starts a keeper and waits until it serves.
    pub async fn serve(&mut self) -> Client {
        self.start();
        self.client().await
    }

    /// Speaks with the keeper, as soon as it serves.
    pub async fn client(&self) -> Client {
        let socket = self.place.join("keeper.sock");
        let end = now() + LONG;
        loop {
            if let Ok(channel) = dial(&socket).await {
                let mut client = KeeperClient::new(channel)
                    .max_decoding_message_size(MOST_BYTES)
                    .max_encoding_message_size(MOST_BYTES);
                if client.trees(v1::Nothing {}).await.is_ok() {
                    return client;
                }
            }
            assert!(
                now() < end,
                "no keeper serves: {}\n{:?}",
                self.state("keeper.log"),
                self.failed()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills the keeper and makes room for the next one.
    pub fn kill(&mut self) {
        let keeper = self.keeper.take().expect("a keeper");
        keeper.signal(Signal::SIGKILL);
        keeper.finish();
        self.spec.epoch += 1;
    }

    /// Starts the next keeper while the present one has the boundary; answers that one.
    pub fn overtake(&mut self) -> Running {
        let before = self.keeper.take().expect("a keeper");
        self.spec.epoch += 1;
        self.start();
        before
    }

    /// Waits until the keeper has ended by itself; answers its exit.
    pub fn exit(&mut self) -> Option<i32> {
        let keeper = self.keeper.take().expect("a keeper");
        keeper.finish().status.code()
    }

    /// The keeper's process.
    pub fn pid(&self) -> i32 {
        self.keeper.as_ref().expect("a keeper").pid().as_raw()
    }

    /// Why there is no sandbox, as it is left for the gateway.
    pub fn failed(&self) -> Option<v1::Problem> {
        let bytes = fs::read(self.place.join("failed")).ok()?;
        v1::Problem::decode(bytes.as_slice()).ok()
    }

    /// The sandbox's last status, as it is left for the gateway.
    pub fn last(&self) -> Option<v1::Status> {
        let bytes = fs::read(self.place.join("last")).ok()?;
        v1::Status::decode(bytes.as_slice()).ok()
    }

    /// Ends the sandbox and sees that nothing is left.
    pub async fn end(mut self, mut client: Client) {
        let halted = client.halt(v1::HaltRequest { grace_ms: 2000 }).await;
        halted.expect("halted");
        drop(client);
        assert_eq!(self.exit(), Some(0), "{}", self.state("keeper.log"));
        self.gone();
    }

    /// Sees that no process and no socket is left.
    pub fn gone(&self) {
        let left = || self.mark.processes();
        assert!(
            holds_within(LONG, || left().is_empty()),
            "left: {:?}",
            left()
        );
        let sockets: Vec<_> = fs::read_dir(&self.place)
            .expect("the directory")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "spec" && name != "last" && name != "failed")
            .collect();
        assert!(sockets.is_empty(), "left: {sockets:?}");
    }
}

impl Drop for Keeping<'_> {
    /// A test that fails leaves no sandbox behind.
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            drop(keeper);
        }
        for pid in self.mark.processes() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// A session, as one client sees it.
#[derive(Debug)]
pub struct Seen {
    /// Its number.
    pub session: u64,
    /// What it is told.
    pub input: mpsc::Sender<v1::SessionInput>,
    output: Streaming<v1::SessionOutput>,
    /// What has come so far.
    pub stdout: Vec<u8>,
    /// What has come so far.
    pub stderr: Vec<u8>,
    /// Bytes that were overwritten before they came.
    pub lost: u64,
    /// The offset behind the last byte.
    pub offset: u64,
}

/// A program for `/bin/sh`.
pub fn shell(line: &str) -> v1::ExecStart {
    exec(&["/bin/sh", "-c", line])
}

/// A program.
pub fn exec(words: &[&str]) -> v1::ExecStart {
    v1::ExecStart {
        arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        ..v1::ExecStart::default()
    }
}

/// Begins a session.
pub async fn begin(client: &mut Client, kind: In) -> Result<Seen, Status> {
    let (input, inputs) = mpsc::channel(64);
    let first = v1::SessionInput { kind: Some(kind) };
    input.send(first).await.expect("room");
    let mut output = client
        .session(ReceiverStream::new(inputs))
        .await?
        .into_inner();
    let begun = output.message().await?;
    let Some(Out::Begun(begun)) = begun.and_then(|begun| begun.kind) else {
        panic!("a session says first that it has begun");
    };
    Ok(Seen {
        session: begun.session,
        input,
        output,
        stdout: Vec::new(),
        stderr: Vec::new(),
        lost: 0,
        offset: 0,
    })
}

/// Starts a program.
pub async fn start(client: &mut Client, start: v1::ExecStart) -> Result<Seen, Status> {
    begin(client, In::Start(start)).await
}

/// Attaches from an offset on.
pub async fn attach(client: &mut Client, session: u64, offset: u64) -> Result<Seen, Status> {
    let kind = In::Attach(v1::AttachStart {
        session,
        offset,
        ..v1::AttachStart::default()
    });
    let seen = begin(client, kind).await?;
    Ok(Seen { offset, ..seen })
}

/// Runs a program to its end.
pub async fn run(
    client: &mut Client,
    program: v1::ExecStart,
) -> Result<(Seen, v1::Ending), Status> {
    let mut seen = start(client, program).await?;
    let ending = seen.end().await?;
    Ok((seen, ending))
}

impl Seen {
    /// Sends bytes.
    pub async fn send(&self, bytes: impl Into<Bytes>) {
        self.tell(In::Data(bytes.into())).await;
    }

    /// Ends the input; the output goes on.
    pub async fn end_input(&self) {
        self.tell(In::End(v1::Nothing {})).await;
    }

    /// Says something.
    pub async fn tell(&self, kind: In) {
        let input = v1::SessionInput { kind: Some(kind) };
        self.input.send(input).await.expect("the session is there");
    }

    /// Takes one more message; `Some` when it is the end.
    pub async fn step(&mut self) -> Result<Option<v1::Ending>, Status> {
        let message = tokio::time::timeout(LONG, self.output.message());
        let message = message
            .await
            .expect("in time")?
            .expect("no end without a word");
        match message.kind.expect("a kind") {
            Out::Begun(_) => {}
            Out::Chunk(chunk) => {
                assert_eq!(chunk.offset, self.offset, "a gap, or a byte twice");
                self.offset += chunk.data.len() as u64;
                match chunk.stream() {
                    v1::Stream::Stderr => self.stderr.extend(&chunk.data),
                    v1::Stream::Stdout | v1::Stream::Unspecified => self.stdout.extend(&chunk.data),
                }
            }
            Out::Lost(bytes) => {
                self.offset += bytes;
                self.lost += bytes;
            }
            Out::Ended(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }

    /// Reads to the end.
    pub async fn end(&mut self) -> Result<v1::Ending, Status> {
        loop {
            if let Some(ending) = self.step().await? {
                return Ok(ending);
            }
        }
    }

    /// Reads until the output contains this.
    pub async fn expect(&mut self, text: &str) {
        while !self.text().contains(text) {
            let end = self.step().await.expect("no failure");
            assert_eq!(end, None, "ended before {text:?}: {:?}", self.text());
        }
    }

    /// The output so far, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// The status that a program ended with by itself.
pub fn code(ending: &v1::Ending) -> Option<i32> {
    match ending.exit.as_ref()?.how.as_ref()? {
        v1::exit::How::Code(code) => Some(*code),
        v1::exit::How::Signal(_) | v1::exit::How::Unknown(_) => None,
    }
}

/// The signal that ended a program.
pub fn signal(ending: &v1::Ending) -> Option<i32> {
    match ending.exit.as_ref()?.how.as_ref()? {
        v1::exit::How::Signal(signal) => Some(*signal),
        v1::exit::How::Code(_) | v1::exit::How::Unknown(_) => None,
    }
}
