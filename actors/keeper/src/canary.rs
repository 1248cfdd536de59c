//! Sends a canary the whole way of an agent, again and again, and tells how far it came.
//!
//! ```text
//!  Waiting ── CALM since the last, EAGER while not Ready, or wanted at once ──> Walking
//!     ▲                                                                         │
//!     └──── its status, or PATIENCE: killed, and judged by what was seen ◀──────┘
//! ```
//!
//! A canary is a session like any other: launched, confined, reaped. It resolves a name, connects through broker and
//! proxy, and reads a word that only this keeper knows. Nothing else proves that all of it works together.
//!
//! While the boundary is lost, or descriptors are short, none is sent: it could prove nothing, and would take what
//! others need.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Fault, Me, Moment, Seed};
use holdfast_kernel::canary::{Cause, Step, Walk};
use holdfast_wire::v1;
use holdfast_wire::v1::launch_reply::Outcome;
use prost::Message;
use tonic::Status;

use crate::health::{Event, Kind, Walked};
use crate::link::Client;
use crate::sentinel::{PORT, Reached, Sentinel};
use crate::status::Vitals;

/// Sends canaries.
pub(crate) struct Canary;

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    /// An attached connection.
    pub(crate) control: Client,
    /// What canaries ask for.
    pub(crate) sentinel: Arc<Sentinel>,
    /// Who is told.
    pub(crate) vitals: Vitals,
}

impl Actor for Canary {
    type Message = std::convert::Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        let this = me.clone();
        let walker = Walker {
            arguments,
            session: None,
        };
        me.spawn(async move { walker.send(&this).await });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

/// Why a canary has no status.
enum Lost {
    /// No session was started.
    Unstarted(String),
    /// The boundary could not be asked.
    Unasked(Status),
    /// It was started, and did not come back.
    Unheard(String),
}

/// Sends one canary after the other.
struct Walker {
    arguments: Arguments,
    /// The canary that is on its way.
    session: Option<u64>,
}

impl Walker {
    async fn send(mut self, me: &Me<std::convert::Infallible>) -> Result<(), Fault> {
        let mut last = None;
        loop {
            self.wait(me, last).await;
            if !self.arguments.vitals.admits_canary() {
                // It is wanted again when what is in its way is gone.
                last = Some(me.now());
                continue;
            }
            let began = me.now();
            last = Some(began);
            let walked = tokio::time::timeout(PATIENCE, self.walk()).await;
            let reached = self.arguments.sentinel.reached();
            let fell = match walked {
                Ok(Ok(walk)) => blame(&walk, reached),
                Ok(Err(why)) => Some(lost(why)),
                Err(_) => Some(late(self.session, reached)),
            };
            self.bury().await;
            self.arguments.vitals.note(Event::Walked(Walked {
                began,
                ended: me.now(),
                fell,
            }));
        }
    }

    /// Waits until the next canary is due.
    async fn wait(&self, me: &Me<std::convert::Infallible>, last: Option<Moment>) {
        let due = |pause: Duration| last.map_or(me.now(), |last| last + pause);
        // However often it is wanted, one canary is not sent on the heels of another.
        tokio::time::sleep(due(LEAST) - me.now()).await;
        let pause = if self.arguments.vitals.is_ready() {
            CALM
        } else {
            EAGER
        };
        let rest = due(pause) - me.now();
        let _due = tokio::time::timeout(rest, self.arguments.vitals.canary_wanted()).await;
    }

    /// Sends one and waits for its status.
    async fn walk(&mut self) -> Result<Walk, Lost> {
        let [first, second] = [Seed::fresh(), Seed::fresh()].map(Seed::number);
        let word = format!("{first:016x}{second:016x}");
        self.arguments.sentinel.expect(word.clone().into_bytes());
        let launched = self
            .arguments
            .control
            .launch(request(&self.arguments.sentinel, word))
            .await;
        let session = match launched.map_err(Lost::Unasked)?.into_inner().outcome {
            Some(Outcome::Session(session)) => session,
            Some(Outcome::NotStarted(v1::NotStarted { step, message, .. })) => {
                return Err(Lost::Unstarted(format!("{step}: {message}")));
            }
            None => return Err(Lost::Unstarted("the boundary did not say".to_owned())),
        };
        self.session = Some(session);
        let asked = v1::ReadRequest {
            session,
            // Nothing but how it ends.
            offset: u64::MAX,
        };
        let unheard = |status: Status| Lost::Unheard(status.message().to_owned());
        let mut output = self
            .arguments
            .control
            .read(asked)
            .await
            .map_err(unheard)?
            .into_inner();
        while let Some(v1::Output { kind, .. }) = output.message().await.map_err(unheard)? {
            if let Some(v1::output::Kind::Exit(exit)) = kind {
                self.session = None;
                return match exit.how {
                    Some(v1::exit::How::Code(code)) => Ok(Walk::of(code)),
                    Some(v1::exit::How::Signal(signal)) => {
                        Err(Lost::Unheard(format!("it was ended by signal {signal}")))
                    }
                    Some(v1::exit::How::Unknown(why)) => Err(Lost::Unheard(why)),
                    None => Err(Lost::Unheard("the boundary did not say".to_owned())),
                };
            }
        }
        Err(Lost::Unheard("the boundary did not say".to_owned()))
    }

    /// Ends a canary that is still on its way: its connect, above all, must not wait for ever.
    async fn bury(&mut self) {
        if let Some(session) = self.session.take() {
            let request = v1::SignalRequest {
                session,
                signal: libc::SIGKILL,
                tree: false,
            };
            // If it cannot be asked, the link is lost, and the link says so.
            let _ = tokio::time::timeout(PATIENCE, self.arguments.control.signal(request)).await;
        }
    }
}

/// What is to be blamed for a canary without a status.
fn lost(lost: Lost) -> (Kind, String) {
    let why = match lost {
        Lost::Unstarted(why) => why,
        Lost::Unheard(why) => format!("hear of the canary: {why}"),
        Lost::Unasked(status) => {
            format!("ask the boundary for a session: {}", status.message())
        }
    };
    (Kind::ExecAdmitting, why)
}

fn request(sentinel: &Sentinel, word: String) -> v1::LaunchRequest {
    let note = v1::SessionNote {
        kind: "canary".to_owned(),
        ..v1::SessionNote::default()
    };
    let canary = v1::Canary {
        name: sentinel.name().to_string(),
        port: PORT.into(),
        nonce: word.into_bytes(),
    };
    v1::LaunchRequest {
        what: Some(v1::launch_request::What::Builtin(v1::Builtin {
            what: Some(v1::builtin::What::Canary(canary)),
        })),
        note: note.encode_to_vec(),
        ..v1::LaunchRequest::default()
    }
}

/// Which condition a canary that fell has not met, and why.
fn blame(walk: &Walk, reached: Reached) -> Option<(Kind, String)> {
    let (step, why) = match walk {
        Walk::Whole => return None,
        Walk::Fell(step, why) => (*step, why),
    };
    Some(match (step, reached) {
        (Step::Start, _) => (Kind::ExecAdmitting, format!("start the canary: {why}")),
        (Step::Resolve, Reached::Nothing) => (
            Kind::ResolverServing,
            format!("ask for a name: {why}; the question has not come to the resolver"),
        ),
        (Step::Resolve, _) => (Kind::ResolverServing, format!("ask for a name: {why}")),
        (Step::Connect, _) if *why == REFUSED => (
            Kind::ProxyServing,
            format!("connect: {why}; nobody listens on port {PORT}"),
        ),
        (Step::Connect, _) => (Kind::BrokerServing, format!("connect: {why}")),
        (Step::Answer, Reached::Nothing | Reached::Asked) => (
            Kind::BrokerServing,
            format!("the broker has not announced the connect: {why}"),
        ),
        (Step::Answer, Reached::Announced) => (
            Kind::ProxyServing,
            format!("no listener has taken the connection: {why}"),
        ),
        (Step::Answer, Reached::Arrived) => {
            (Kind::ProxyServing, format!("hear from the proxy: {why}"))
        }
    })
}

/// The same for one that has not come back in time: what it waits for is what comes after what was seen.
fn late(session: Option<u64>, reached: Reached) -> (Kind, String) {
    let patience = PATIENCE.as_secs();
    let (kind, what) = match (session, reached) {
        (None, _) => (Kind::ExecAdmitting, "the boundary has not started it"),
        (Some(_), Reached::Nothing) => (Kind::ResolverServing, "it waits for the resolver"),
        (Some(_), Reached::Asked) => (Kind::BrokerServing, "its connect waits for the broker"),
        (Some(_), Reached::Announced) => (Kind::ProxyServing, "it waits for a listener"),
        (Some(_), Reached::Arrived) => (Kind::ExecAdmitting, "its end was not told"),
    };
    (
        kind,
        format!("the canary is not back after {patience} s: {what}"),
    )
}

/// Between two canaries while all is well.
const CALM: Duration = Duration::from_secs(5);

/// Between two while it is not.
const EAGER: Duration = Duration::from_secs(1);

/// Between two in any case.
const LEAST: Duration = Duration::from_millis(50);

/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Nobody listens.
const REFUSED: Cause = Cause::Errno(libc::ECONNREFUSED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blamed_is_the_first_part_that_was_not_met() {
        let fell = |status, reached| blame(&Walk::of(status), reached).map(|(kind, _)| kind);

        assert_eq!(fell(0, Reached::Arrived), None);
        assert_eq!(fell(1, Reached::Nothing), Some(Kind::ExecAdmitting));
        assert_eq!(fell(12, Reached::Nothing), Some(Kind::ResolverServing));
        assert_eq!(fell(43, Reached::Asked), Some(Kind::ResolverServing));
        let refused = 100 + libc::ECONNREFUSED;
        assert_eq!(fell(refused, Reached::Asked), Some(Kind::ProxyServing));
        let denied = 100 + libc::EACCES;
        assert_eq!(fell(denied, Reached::Asked), Some(Kind::BrokerServing));
        assert_eq!(fell(31, Reached::Asked), Some(Kind::BrokerServing));
        assert_eq!(fell(30, Reached::Announced), Some(Kind::ProxyServing));
        assert_eq!(fell(32, Reached::Arrived), Some(Kind::ProxyServing));
    }

    #[test]
    fn a_canary_that_is_late_waits_for_what_comes_next() {
        let kinds = [Reached::Nothing, Reached::Asked, Reached::Announced]
            .map(|reached| late(Some(7), reached).0);

        let expected = [
            Kind::ResolverServing,
            Kind::BrokerServing,
            Kind::ProxyServing,
        ];
        assert_eq!(kinds, expected);
        assert_eq!(late(None, Reached::Nothing).0, Kind::ExecAdmitting);
    }
}
