//! Passes a session through to its keeper: a connection of its own, so that a client that stalls holds up nobody else.
//!
//! ```text
//! client ── input ──▶ │ gateway │ ── input ──▶ keeper
//!        ◀─ output ── │         │ ◀─ output ──
//! ```
//!
//! Nothing is stored here: HTTP/2's windows at both sides are all the room there is. An end of the input is passed on as an
//! end, a cut as a cut. A keeper that goes away in the middle is told with the session and the offset to go on from.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use holdfast_kernel::uptime::uptime;
use holdfast_wire::v1::keeper_client::KeeperClient;
use holdfast_wire::v1::session_input::Kind;
use holdfast_wire::v1::session_output;
use holdfast_wire::{problem, v1};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::{is_last, serving};
use crate::dial;
use crate::host::Host;
use crate::refused::{Refused, is_nobody_there};

type Outputs = Pin<Box<dyn Stream<Item = Result<v1::SessionOutput, Status>> + Send + 'static>>;

/// Opens a session as the client's first message asks, and passes everything on.
pub(super) async fn pass(
    host: &Host,
    request: Request<Streaming<v1::SessionInput>>,
) -> Result<Outputs, Status> {
    let last = is_last(&request);
    let trace = TRACE.map(|key| (key, request.metadata().get(key).cloned()));
    let mut inputs = request.into_inner();
    let first = timeout(PATIENCE, inputs.message())
        .await
        .map_err(|_| first())??;
    let mut first = first.ok_or_else(self::first)?;
    if let Some(Kind::Start(start)) = &mut first.kind {
        start.deadline_ms = deadline_ms(start.timeout_ms, uptime());
    }
    let (name, id) = sandbox(&first)?;
    if last {
        host.shortage.count();
        return Err(Refused::starved(name.to_owned()).into());
    }
    let channel = reach(host, name, id).await?;
    let mut progress = Progress::new(name, &first);
    let (reads, read) = oneshot::channel::<Infallible>();
    let mut passed = Request::new(inputs_of(first, inputs, read));
    for (key, value) in trace {
        if let Some(value) = value {
            passed.metadata_mut().insert(key, value);
        }
    }
    let mut client = KeeperClient::new(channel)
        .max_decoding_message_size(holdfast_wire::MOST_BYTES)
        .max_encoding_message_size(holdfast_wire::MOST_BYTES);
    let outputs = client.session(passed).await;
    let outputs = outputs
        .map_err(|status| progress.told(status))?
        .into_inner();
    let told = unfold(Some((outputs, progress, reads)), async |state| {
        let (mut outputs, mut progress, reads) = state?;
        match outputs.message().await {
            Ok(Some(output)) => {
                progress.note(&output);
                Some((Ok(output), Some((outputs, progress, reads))))
            }
            Ok(None) => None,
            Err(status) => Some((Err(progress.told(status)), None)),
        }
    });
    Ok(Box::pin(told))
}

/// A connection to a sandbox's keeper. One that is being replaced is waited for: nothing has been asked of it yet.
async fn reach(host: &Host, name: &str, id: &str) -> Result<Channel, Refused> {
    let mut why = "it does not answer";
    let reached = async {
        loop {
            let entry = host.directory.pinned(name, id)?;
            serving(&entry)?;
            match dial::dial(&entry.socket).await {
                Ok(channel) => return Ok(channel),
                Err(error) if is_nobody_there(&error) => {
                    why = "it has gone, and the next one is not there yet";
                    sleep(AGAIN).await;
                }
                Err(error) => {
                    // If it is we who lack descriptors, no sandbox is Ready from now on.
                    host.shortage.count();
                    return Err(Refused::unreached(name, &error));
                }
            }
        }
    };
    let reached = timeout(PATIENCE, reached).await;
    reached.unwrap_or_else(|_| {
        Err(Refused::KeeperLost {
            name: name.to_owned(),
            why: why.to_owned(),
        })
    })
}

/// The first message and all that follow. `read` is over when nobody reads the output any more.
fn inputs_of(
    first: v1::SessionInput,
    inputs: Streaming<v1::SessionInput>,
    read: oneshot::Receiver<Infallible>,
) -> impl Stream<Item = v1::SessionInput> + Send + 'static {
    let state = (Some(first), inputs, read);
    unfold(state, async |(first, mut inputs, mut read)| {
        if let Some(first) = first {
            return Some((first, (None, inputs, read)));
        }
        let told = tokio::select! {
            told = inputs.message() => told,
            _ = &mut read => return None,
        };
        match told {
            Ok(Some(input)) => Some((input, (None, inputs, read))),
            Ok(None) => None,
            // The client is gone. Nothing is said of it before its output is dropped too; a call that still had an input
            // would never be dropped, and its keeper would take the client to be there.
            Err(_) => {
                let _nobody_reads = read.await;
                None
            }
        }
    })
}

/// Which sandbox is meant: its name, and its id if it may be no other.
fn sandbox(first: &v1::SessionInput) -> Result<(&str, &str), Status> {
    match &first.kind {
        Some(Kind::Start(start)) => Ok((&start.sandbox, "")),
        Some(Kind::Attach(attach)) => Ok((&attach.sandbox, "")),
        Some(Kind::Copy(copy)) => Ok((&copy.sandbox, "")),
        Some(Kind::Dial(dial)) => Ok((&dial.sandbox, &dial.id)),
        Some(Kind::Data(_) | Kind::End(_) | Kind::Resize(_) | Kind::Signal(_)) | None => {
            Err(self::first())
        }
    }
}

/// When a limit passes that runs from now on; 0 for none.
fn deadline_ms(timeout_ms: u64, up: Duration) -> u64 {
    match timeout_ms {
        0 => 0,
        limit => u64::try_from(up.as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(limit),
    }
}

fn first() -> Status {
    let message =
        "open a session: the first message is start, attach, copy or dial, and it comes at once";
    problem::plain(Code::InvalidArgument, message, "InvalidArgument")
}

/// How far a session is, for a client that has to come again.
struct Progress {
    name: String,
    session: Option<u64>,
    offset: u64,
}

impl Progress {
    fn new(name: &str, first: &v1::SessionInput) -> Self {
        let (session, offset) = match &first.kind {
            Some(Kind::Attach(attach)) => (Some(attach.session), attach.offset),
            _ => (None, 0),
        };
        Self {
            name: name.to_owned(),
            session,
            offset,
        }
    }

    fn note(&mut self, output: &v1::SessionOutput) {
        match &output.kind {
            Some(session_output::Kind::Begun(begun)) => self.session = Some(begun.session),
            Some(session_output::Kind::Chunk(chunk)) => {
                self.offset = chunk.offset + chunk.data.len() as u64;
            }
            Some(session_output::Kind::Lost(_) | session_output::Kind::Ended(_)) | None => {}
        }
    }

    /// What the client hears of an error: the keeper's own words, or that there is no keeper any more.
    fn told(&mut self, status: Status) -> Status {
        let own = status.code() != Code::Unavailable && status.code() != Code::Unknown;
        let name = &self.name;
        let message = match problem::of(&status) {
            // One that was replaced and lives: what it kept is the next one's all the same.
            Some(told) if told.reason == LOST => status.message().to_owned(),
            Some(_) => return status,
            None if own && std::error::Error::source(&status).is_none() => return status,
            None => format!("reach the keeper of {name}: it went away"),
        };
        let mut details = HashMap::new();
        if let Some(session) = self.session {
            let offset = self.offset;
            details.insert("session".to_owned(), session.to_string());
            details.insert("offset".to_owned(), offset.to_string());
            let again =
                format!("the session goes on: `holdfast attach {name} {session} --from {offset}`");
            details.insert("hint".to_owned(), again);
        } else {
            // It had been asked, and nobody knows whether it has heard.
            details.insert(problem::BEGUN.to_owned(), "unknown".to_owned());
        }
        let told = v1::Problem {
            reason: LOST.to_owned(),
            details,
            retry_after_ms: SOON_MS,
        };
        problem::status(Code::Unavailable, message, &told)
    }
}

/// There is no keeper any more, or it has nothing to keep.
const LOST: &str = "KeeperLost";

/// How long the first message, and the way to the keeper, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks whether the next keeper is there.
const AGAIN: Duration = Duration::from_millis(50);

const SOON_MS: u64 = 500;

/// What carries a trace from one process to the next.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_went_away_is_told_in_a_sentence_and_what_to_do_beside_it() {
        let attach = v1::AttachStart {
            session: 5,
            offset: 2,
            ..v1::AttachStart::default()
        };
        let first = v1::SessionInput {
            kind: Some(Kind::Attach(attach)),
        };

        let told = Progress::new("qa", &first).told(Status::unavailable("broken pipe"));

        assert_eq!(told.message(), "reach the keeper of qa: it went away");
        let details = problem::of(&told).expect("a problem").details;
        assert_eq!((&*details["session"], &*details["offset"]), ("5", "2"));
        assert!(details["hint"].contains("`holdfast attach qa 5 --from 2`"));
    }

    #[test]
    fn a_keeper_that_was_replaced_is_told_as_one_that_went_away() {
        let start = |session| Progress {
            session,
            ..Progress::new("qa", &v1::SessionInput::default())
        };
        let message = "ask the boundary: another keeper has taken it over";
        let fenced = problem::plain(Code::Unavailable, message, LOST);

        let told = start(Some(5)).told(fenced.clone());
        let details = problem::of(&told).expect("a problem").details;
        assert_eq!((told.message(), &*details["session"]), (message, "5"));
        assert!(details["hint"].contains("`holdfast attach qa 5 --from 0`"));
        let told = start(None).told(fenced);
        let details = problem::of(&told).expect("a problem").details;
        assert_eq!(details[problem::BEGUN], "unknown", "asked again once");
    }
}
