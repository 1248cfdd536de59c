//! The policy in force, one revision at a time.
//!
//! ```text
//! Apply ── read, checked ──> compared ── network, resolver ──> in force ──> open connections it denies are closed,
//!    └── wrong: refused           │                                         and the ports it names are listened on
//!                                 └── the fence: refused, a restart puts it in force
//! ```
//!
//! Wholly or not at all: whoever asks the policy meets one revision or the other, and what is refused changes nothing.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_actor::{Actor, Fault, Me, Reply};
use holdfast_policy::{Denied, Name, Policy};
use holdfast_wire::v1;
use parking_lot::RwLock;

use crate::board::Board;
use crate::coverage::Coverage;
use crate::egress::desk::Desk;
use crate::health::Event;
use crate::resolver::Admission;
use crate::status::Vitals;

/// The revision in force. Each question meets the present one.
#[derive(Debug)]
pub(crate) struct Rules(RwLock<Revision>);

/// One policy and its number.
#[derive(Clone, Debug)]
pub(crate) struct Revision {
    pub(crate) number: u64,
    pub(crate) policy: Arc<Policy>,
}

impl Rules {
    pub(crate) fn new(revision: Revision) -> Self {
        Self(RwLock::new(revision))
    }

    pub(crate) fn present(&self) -> Revision {
        self.0.read().clone()
    }

    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().policy)
    }
}

impl Admission for Rules {
    fn admits_name(&self, name: &Name) -> bool {
        self.policy().admits_name(name)
    }

    fn admits_address(&self, name: &Name, address: IpAddr) -> Result<(), Denied> {
        self.policy().admits_name_at(name, address)
    }

    fn hosts(&self, name: &Name) -> Option<Vec<IpAddr>> {
        self.policy().hosts().get(name).cloned()
    }

    fn explain(&self, name: &Name) -> Option<Denied> {
        Admission::explain(self.policy().as_ref(), name)
    }
}

/// Why a revision is not put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// What it says is wrong.
    #[error("read the policy: {0}")]
    Invalid(String),
    /// This host cannot enforce what it says.
    #[error("put the policy in force: {0}")]
    Unsupported(String),
    /// The fence is built once for each start.
    #[error(
        "put the policy in force: {} cannot change while the sandbox runs; `holdfast stop {sandbox}`, `holdfast policy set` again, `holdfast start {sandbox}`",
        .sections.join(", ")
    )]
    NeedsRestart {
        sandbox: String,
        sections: Vec<&'static str>,
    },
    /// A newer one is in force.
    #[error("put revision {revision} in force: revision {present} is in force already")]
    Outdated { revision: u64, present: u64 },
}

/// Reads a document as this host's programs are to be judged by it.
pub type Read = Arc<dyn Fn(&str) -> Result<Policy, Unread> + Send + Sync>;

/// Why a document is not read, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// What it says is wrong.
    Invalid(String),
    /// This host cannot enforce what it says.
    Unsupported(String),
}

/// Keeps the policy.
pub(crate) struct Rulebook;

/// What it can be told.
#[derive(Debug)]
pub(crate) enum Message {
    /// Put this in force.
    Apply(v1::PolicyRevision, Reply<Result<v1::PolicyState, Refused>>),
}

/// What it is born with. The rules themselves outlive it.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) rules: Arc<Rules>,
    pub(crate) read: Read,
    pub(crate) desk: Arc<Desk>,
    pub(crate) coverage: Arc<Coverage>,
    pub(crate) board: Board,
    pub(crate) vitals: Vitals,
}

impl Actor for Rulebook {
    type Message = Message;
    type Arguments = Arguments;
    type State = Arguments;

    async fn start(_: &Me<Message>, arguments: Arguments) -> Result<Arguments, Fault> {
        Ok(arguments)
    }

    async fn handle(
        me: &Me<Message>,
        message: Message,
        state: &mut Arguments,
    ) -> Result<(), Fault> {
        let Message::Apply(asked, reply) = message;
        let number = asked.revision;
        let read = Arc::clone(&state.read);
        // A document may have thousands of rules.
        let policy = me.offload(move || read(&asked.yaml)).await?;
        let outcome = match policy {
            Ok(policy) => state.put(number, policy).await,
            Err(Unread::Invalid(why)) => Err(Refused::Invalid(why)),
            Err(Unread::Unsupported(why)) => Err(Refused::Unsupported(why)),
        };
        match &outcome {
            Ok(policy) => tracing::info!(revision = number, hash = policy.hash, "policy in force"),
            Err(refused) => {
                tracing::warn!(revision = number, %refused, "policy refused");
                // What is in force is what is wanted again.
                state.tell(state.rules.present().number, refused.to_string());
            }
        }
        reply.send(outcome);
        Ok(())
    }
}

impl Arguments {
    async fn put(&self, number: u64, policy: Policy) -> Result<v1::PolicyState, Refused> {
        let present = self.rules.present();
        admit(&self.board.status().name, &present, number, &policy)?;
        let policy = Arc::new(policy);
        // Names first: nobody may find a name that connections are refused to, which would be the case the other way round.
        *self.rules.0.write() = Revision {
            number,
            policy: Arc::clone(&policy),
        };
        let captured = policy.captured_ports();
        self.desk.revise(policy);
        self.coverage.cover(captured).await;
        Ok(v1::PolicyState {
            warning: self.vitals.unheard(),
            ..self.tell(number, String::new())
        })
    }

    /// Says on the board, and to the health, what is wanted and what is in force.
    fn tell(&self, desired: u64, error: String) -> v1::PolicyState {
        let state = state(&self.rules.present(), desired, error);
        self.board
            .revise(|status| status.policy = Some(state.clone()));
        self.vitals.note(news(&state));
        state
    }
}

/// How the policy stands, for the health.
pub(crate) fn news(state: &v1::PolicyState) -> Event {
    Event::Policy {
        desired: state.desired,
        enforced: state.enforced,
        error: state.error.clone(),
    }
}

/// How the policy stands.
pub(crate) fn state(present: &Revision, desired: u64, error: String) -> v1::PolicyState {
    v1::PolicyState {
        desired,
        enforced: present.number,
        hash: present.policy.hash(),
        error,
        warning: String::new(),
    }
}

/// Whether `policy` can follow the present revision while the sandbox runs.
fn admit(sandbox: &str, present: &Revision, number: u64, policy: &Policy) -> Result<(), Refused> {
    if number < present.number {
        return Err(Refused::Outdated {
            revision: number,
            present: present.number,
        });
    }
    let sections = present.policy.fence_changes(policy);
    if sections.is_empty() {
        return Ok(());
    }
    Err(Refused::NeedsRestart {
        sandbox: sandbox.to_owned(),
        sections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "
version: 1
filesystem_policy: {read_only: [/usr]}
network_policies: {a: {endpoints: [{host: a.test, port: 443}]}}
";

    fn policy(text: &str) -> Policy {
        Policy::parse("policy.yaml", text).expect("a policy")
    }

    fn present() -> Revision {
        Revision {
            number: 3,
            policy: Arc::new(policy(OLD)),
        }
    }

    #[test]
    fn network_and_names_follow_at_once() {
        let new = OLD.replace("a.test", "b.test") + "resolver: {hosts: {b.test: [127.0.0.1]}}\n";

        assert_eq!(admit("box", &present(), 4, &policy(&new)), Ok(()));
    }

    #[test]
    fn what_the_fence_is_made_of_needs_a_restart_and_is_named() {
        let new = OLD.replace("/usr", "/opt")
            + "process: {limits: {nofile: 100}}\non_link_loss: freeze\n";

        let refused = admit("box", &present(), 4, &policy(&new)).expect_err("refused");

        assert_eq!(
            refused.to_string(),
            "put the policy in force: filesystem_policy, process, on_link_loss cannot change while the sandbox runs; `holdfast stop box`, `holdfast policy set` again, `holdfast start box`"
        );
    }

    #[test]
    fn an_older_revision_never_replaces_a_newer_one() {
        let outdated = Refused::Outdated {
            revision: 2,
            present: 3,
        };
        assert_eq!(admit("box", &present(), 2, &policy(OLD)), Err(outdated));
        assert_eq!(admit("box", &present(), 3, &policy(OLD)), Ok(()));
    }

    #[test]
    fn each_question_meets_the_present_revision() {
        let rules = Rules::new(present());
        let (a, b) = ("a.test".parse().expect("a"), "b.test".parse().expect("b"));
        assert!(rules.admits_name(&a) && !rules.admits_name(&b));

        *rules.0.write() = Revision {
            number: 4,
            policy: Arc::new(policy(&OLD.replace("a.test", "b.test"))),
        };

        assert!(!rules.admits_name(&a) && rules.admits_name(&b));
    }
}
