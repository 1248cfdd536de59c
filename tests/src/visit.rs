//! One session through a gateway, as a program that speaks the API sees it.

use crate::wait::LONG;
use holdfast_wire::v1;
use holdfast_wire::v1::gateway_client::GatewayClient;
use holdfast_wire::v1::session_input::Kind as In;
use holdfast_wire::v1::session_output::Kind as Out;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// A client of a gateway.
pub type Client = GatewayClient<Channel>;

/// Everything that a client was told of one session.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The session, once it has begun.
    pub begun: Option<u64>,
    /// Its output.
    pub stdout: Vec<u8>,
    /// The offset behind the last byte.
    pub offset: u64,
    /// How it ended.
    pub ending: Option<v1::Ending>,
    /// Why no more was told.
    pub error: Option<Status>,
}

impl Told {
    /// The status that the program ended with by itself.
    pub fn code(&self) -> Option<i32> {
        self.ending.as_ref().and_then(crate::keeping::code)
    }

    /// The output so far, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    async fn hear(&mut self, mut output: Streaming<v1::SessionOutput>) -> Result<(), Status> {
        while let Some(message) = output.message().await? {
            match message.kind {
                Some(Out::Begun(begun)) => self.begun = Some(begun.session),
                Some(Out::Chunk(chunk)) => {
                    self.offset += chunk.data.len() as u64;
                    self.stdout.extend(&chunk.data);
                }
                Some(Out::Lost(bytes)) => self.offset += bytes,
                Some(Out::Ended(ending)) => self.ending = Some(ending),
                None => {}
            }
        }
        Ok(())
    }
}

/// Starts a program and reads to its end.
pub async fn exec(client: &mut Client, start: v1::ExecStart) -> Told {
    visit(client, In::Start(start), Told::default()).await
}

/// Reads a session further, from where it was cut.
pub async fn attach(client: &mut Client, sandbox: &str, before: Told) -> Told {
    let kind = In::Attach(v1::AttachStart {
        sandbox: sandbox.to_owned(),
        session: before.begun.unwrap_or_default(),
        offset: before.offset,
    });
    let from = Told {
        error: None,
        ..before
    };
    visit(client, kind, from).await
}

/// Not answered for a minute is answered by nobody, and told as an error of this client's own.
async fn visit(client: &mut Client, kind: In, mut told: Told) -> Told {
    let first = v1::SessionInput { kind: Some(kind) };
    let work = async {
        let output = client.session(tokio_stream::once(first)).await?;
        told.hear(output.into_inner()).await
    };
    let outcome = tokio::time::timeout(LONG, work).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Status::deadline_exceeded(HANGS)));
    told.error = outcome.err();
    told
}

/// What is said of a session that says nothing.
pub const HANGS: &str = "the session hangs";
