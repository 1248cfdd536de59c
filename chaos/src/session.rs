//! One program in the sandbox, from the request to its status, however often the way there breaks.

use std::time::Duration;

use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as In;
use holdfast_wire::v1::session_output::Kind as Out;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::gate::{Gate, Unanswered};
use crate::journal::Journal;
use crate::timeline::{Fact, Outcome, Session};

/// What is started.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) sandbox: String,
    pub(crate) arguments: Vec<String>,
    /// It is killed then: nothing of ours is left in somebody's sandbox, whatever becomes of us.
    pub(crate) limit: Duration,
}

/// How one try went.
pub(crate) enum Tried {
    /// It came to an end of its own.
    Ended { outcome: Outcome, said: String },
    /// The way broke; the session may run on.
    Cut(String),
}

impl Program {
    /// Runs it once; a broken way is the end.
    pub(crate) async fn once(&self, gate: &Gate, request: &str) -> Tried {
        // The end of the stream ends the input of the program.
        let input = tokio_stream::once(self.start(request, false));
        let stream = match gate.client().session(input).await {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(&Unanswered::from(&status), false),
        };
        read(stream).await
    }

    /// Runs it, and asks again with the same id where the way breaks. Written down when it is known what became of it. Answers
    /// whether it ran.
    pub(crate) async fn tracked(&self, gate: &Gate, journal: &Journal) -> bool {
        let request = fresh_id();
        let started = journal.now();
        let outcome = self.insisted(gate, &request, journal).await;
        let ran = matches!(outcome, Outcome::Exited(_) | Outcome::Signalled(_));
        journal.tell(Fact::Session(Session {
            request,
            started,
            outcome,
        }));
        ran
    }

    async fn insisted(&self, gate: &Gate, request: &str, journal: &Journal) -> Outcome {
        let until = journal.now() + PATIENCE;
        let mut last = String::new();
        while journal.now() < until {
            match timeout(PATIENCE, self.once(gate, request)).await {
                Ok(Tried::Ended { outcome, .. }) => return outcome,
                Ok(Tried::Cut(why)) => last = why,
                Err(_late) => last = format!("no status within {PATIENCE:?}"),
            }
            sleep(AGAIN).await;
        }
        Outcome::Lost(last)
    }

    /// Runs it with an open input until the task ends; returns when the program or the way does.
    pub(crate) async fn held(&self, gate: &Gate) -> Tried {
        let (open, receiver) = mpsc::channel(1);
        let start = self.start(&fresh_id(), true);
        if open.send(start).await.is_err() {
            return Tried::Cut("nobody reads".to_owned());
        }
        let input = ReceiverStream::new(receiver);
        let tried = match gate.client().session(input).await {
            Ok(response) => read(response.into_inner()).await,
            Err(status) => refused(&Unanswered::from(&status), false),
        };
        drop(open);
        tried
    }

    /// Starts it and reads nothing of what it writes, until the task ends.
    pub(crate) async fn unread(&self, gate: &Gate) -> Result<(), String> {
        let input = tokio_stream::once(self.start(&fresh_id(), false));
        let response = gate
            .client()
            .session(input)
            .await
            .map_err(|status| status.message().to_owned())?;
        let _unread = response.into_inner();
        std::future::pending().await
    }

    fn start(&self, request: &str, stdin: bool) -> v1::SessionInput {
        let start = v1::ExecStart {
            sandbox: self.sandbox.clone(),
            request: request.to_owned(),
            arguments: self
                .arguments
                .iter()
                .map(|argument| argument.clone().into_bytes())
                .collect(),
            stdin,
            timeout_ms: u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX),
            ..v1::ExecStart::default()
        };
        v1::SessionInput {
            kind: Some(In::Start(start)),
        }
    }
}

pub(crate) fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

async fn read(mut stream: tonic::Streaming<v1::SessionOutput>) -> Tried {
    let mut said = String::new();
    let mut begun = false;
    loop {
        let output = match stream.next().await {
            Some(Ok(output)) => output,
            Some(Err(status)) => return refused(&Unanswered::from(&status), begun),
            None => {
                return Tried::Ended {
                    outcome: Outcome::Closed,
                    said: "closed without a status".into(),
                };
            }
        };
        match output.kind {
            Some(Out::Begun(_)) => begun = true,
            Some(Out::Chunk(chunk)) if said.len() < MOST_SAID => {
                said.push_str(&String::from_utf8_lossy(&chunk.data));
            }
            Some(Out::Chunk(_) | Out::Lost(_)) | None => {}
            Some(Out::Ended(ending)) => {
                let outcome = outcome(&ending);
                return Tried::Ended { outcome, said };
            }
        }
    }
}

fn outcome(ending: &v1::Ending) -> Outcome {
    match ending.exit.as_ref().and_then(|exit| exit.how.as_ref()) {
        Some(v1::exit::How::Code(code)) => Outcome::Exited(*code),
        Some(v1::exit::How::Signal(signal)) => Outcome::Signalled(*signal),
        Some(v1::exit::How::Unknown(why)) if why.is_empty() => {
            Outcome::Unknown(ending.reason.clone())
        }
        Some(v1::exit::How::Unknown(why)) => Outcome::Unknown(why.clone()),
        None => Outcome::Unknown(ending.reason.clone()),
    }
}

fn refused(why: &Unanswered, begun: bool) -> Tried {
    match why {
        // A session that runs is not over because somebody on the way is not ready.
        Unanswered::Refused {
            message,
            again: true,
            ..
        } if begun => Tried::Cut(message.clone()),
        Unanswered::Refused {
            reason, message, ..
        } => Tried::Ended {
            outcome: Outcome::Refused(reason.clone()),
            said: message.clone(),
        },
        Unanswered::Gone(what) => Tried::Cut(what.clone()),
    }
}

/// How a finished try reads as the failure of a probe; `None` when all went well.
pub(crate) fn failure(tried: &Tried) -> Option<String> {
    match tried {
        Tried::Cut(why) => Some(why.clone()),
        Tried::Ended { outcome, said } => match outcome {
            Outcome::Exited(0) => None,
            Outcome::Exited(code) => Some(format!("exit {code}: {}", said.trim())),
            Outcome::Signalled(signal) => Some(format!("ended by signal {signal}")),
            Outcome::Unknown(reason) => Some(format!("status unknown: {reason}")),
            Outcome::Refused(reason) => Some(format!("refused: {} ({reason})", said.trim())),
            Outcome::Closed => Some("closed without a status".into()),
            Outcome::Lost(why) => Some(why.clone()),
        },
    }
}

const PATIENCE: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_millis(300);
const MOST_SAID: usize = 2_000;
