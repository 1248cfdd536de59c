//! Puts another policy in force: kept first, then brought to the keeper that serves.
//!
//! ```text
//! of another fence than the one that stands ──▶ the keeper refuses it, and nothing was kept
//!
//! kept ──▶ brought to the keeper ──in force──▶ told
//!   ▲           │   │ ▲
//!   │        refused│ └── with `wait`: brought to it again, or to the next one, which began with it
//!   └─ forgotten ┘  └ nobody answers ──▶ told that it is wanted
//! ```
//!
//! What is told holds: a revision that is kept is what the next keeper begins with, so that no failure says otherwise.

use std::sync::Arc;
use std::time::Duration;

use holdfast_policy::Policy;
use holdfast_wire::{v1, words};
use tokio::time::{sleep, timeout};
use tonic::{Code, Response, Status};

use super::check;
use super::service::{PATIENCE, ask, client, in_force, is_own, relayed};
use crate::directory::Entry;
use crate::refused::Refused;
use crate::registry::row::Revision;
use crate::sandbox;
use crate::sandbox::revise::{Revised, Revising};

type Answer = Result<Response<v1::PolicyState>, Status>;

/// Has a sandbox follow another policy.
pub(super) async fn policy(entry: &Entry, asked: v1::SetPolicyRequest) -> Answer {
    let policy = check::policy(&asked.policy_name, &asked.yaml)?;
    // One after the other: what a refused one gives way to must be what was wanted before it.
    let _alone = entry.revising.lock().await;
    let present = in_force(entry);
    let revision = Revision {
        yaml: asked.yaml.clone(),
        name: asked.policy_name,
    };
    let kept = keep(entry, &revision, policy).await?;
    let wanted = Wanted {
        entry,
        kept,
        present,
        yaml: asked.yaml,
    };
    if asked.wait {
        wanted.awaited().await
    } else {
        wanted.tried().await
    }
}

/// Has it kept, once no keeper is just beginning with the one before, and unless it is of another fence than stands.
async fn keep(entry: &Entry, revision: &Revision, policy: Policy) -> Result<Revised, Status> {
    let mut compared = Some(Arc::new(policy));
    let asking = async {
        loop {
            let (wanted, policy) = (revision.clone(), compared.clone());
            let revise = |reply| sandbox::Message::Revise(wanted, policy, reply);
            match ask(entry, revise, PATIENCE).await?? {
                Revising::Kept(kept) => return Ok(kept),
                Revising::Begins => sleep(AGAIN).await,
                Revising::Fenced => {
                    refused_unkept(entry, &revision.yaml).await?;
                    compared = None;
                }
            }
        }
    };
    timeout(IN_FORCE, asking).await.unwrap_or_else(|_late| {
        let (name, message) = (entry.name.clone(), entry.status().message.clone());
        Err(Refused::NotReady { name, message }.into())
    })
}

/// Hears from the keeper, whose word the status repeats, why it does not take a policy that nobody has kept.
async fn refused_unkept(entry: &Entry, yaml: &str) -> Result<(), Status> {
    let status = entry.status();
    let desired = status.policy.as_ref().map_or(0, |policy| policy.desired);
    let mut keeper = client(entry);
    let applied = keeper.apply(v1::PolicyRevision {
        revision: desired + 1,
        yaml: yaml.to_owned(),
    });
    match applied.await {
        // It takes it after all: then it is kept as any other.
        Ok(_in_force) => Ok(()),
        Err(status) if is_own(&status) => Err(status),
        Err(_lost) => {
            let why = "it went away before it answered; the policy is as it was".to_owned();
            let name = entry.name.clone();
            Err(Refused::KeeperLost { name, why }.into())
        }
    }
}

/// A revision that is kept.
struct Wanted<'a> {
    entry: &'a Entry,
    kept: Revised,
    /// What was in force before.
    present: u64,
    yaml: String,
}

/// What a keeper made of it.
enum Word {
    InForce(Response<v1::PolicyState>),
    Refused(Status),
    /// Nobody can tell.
    None(Status),
}

impl Wanted<'_> {
    /// Brings it to the keeper, if there is one.
    async fn tried(&self) -> Answer {
        if !self.kept.serves {
            return Ok(self.pending(""));
        }
        match self.bring().await {
            Word::InForce(state) => Ok(state),
            Word::Refused(status) => Err(status),
            Word::None(_) => Ok(self.pending(AWAY)),
        }
    }

    /// Brings it to one keeper after the other, until one has it in force or has refused it.
    async fn awaited(&self) -> Answer {
        let mut why = "its keeper does not answer".to_owned();
        let asking = async {
            let mut ran = self.kept.serves;
            loop {
                match self.entry.status().phase() {
                    v1::Phase::Stopped | v1::Phase::Failed if ran => return Err(self.over()),
                    // The next start begins with it.
                    v1::Phase::Stopped | v1::Phase::Failed => return Ok(self.pending("")),
                    v1::Phase::Deleting => {
                        return Err(Refused::Deleting(self.entry.name.clone()).into());
                    }
                    v1::Phase::Unspecified
                    | v1::Phase::Pending
                    | v1::Phase::Ready
                    | v1::Phase::Degraded => ran = true,
                }
                match self.bring().await {
                    Word::InForce(state) => return Ok(state),
                    Word::Refused(status) => return Err(status),
                    Word::None(status) => {
                        relayed(self.entry, status).message().clone_into(&mut why);
                    }
                }
                sleep(AGAIN).await;
            }
        };
        match timeout(IN_FORCE, asking).await {
            Ok(answer) => answer,
            Err(_late) => Err(self.unenforced(why).into()),
        }
    }

    /// Once: a revision that is in force already is in force again.
    async fn bring(&self) -> Word {
        let mut keeper = client(self.entry);
        let applied = keeper.apply(v1::PolicyRevision {
            revision: self.kept.number,
            yaml: self.yaml.clone(),
        });
        match applied.await {
            Ok(state) => Word::InForce(state),
            // What it could not do in time it may have done since.
            Err(status) if is_own(&status) && status.code() != Code::Unavailable => {
                // The one before stays in force, and is what is wanted.
                let Revised { number, before, .. } = self.kept;
                let revert = |reply| sandbox::Message::Revert(number, before, reply);
                let _ = ask(self.entry, revert, PATIENCE).await;
                Word::Refused(status)
            }
            Err(status) => Word::None(status),
        }
    }

    /// It is wanted, and that is all there is to say.
    fn pending(&self, why: &str) -> Response<v1::PolicyState> {
        Response::new(v1::PolicyState {
            desired: self.kept.number,
            enforced: if self.kept.serves { self.present } else { 0 },
            hash: String::new(),
            error: why.to_owned(),
            warning: String::new(),
        })
    }

    fn over(&self) -> Status {
        let status = self.entry.status();
        let phase = words::phase(status.phase());
        let message = &status.message;
        let why =
            format!("it does not run any more ({phase}: {message}), and its next start takes it");
        self.unenforced(why).into()
    }

    fn unenforced(&self, why: String) -> Refused {
        Refused::NotInForce {
            name: self.entry.name.clone(),
            number: self.kept.number,
            why,
        }
    }
}

const AWAY: &str = "the keeper is away; it is put in force when it is back";

/// How long keepers may take, one after the other: the first may be silent until it is killed, and the next be given time.
const IN_FORCE: Duration = Duration::from_mins(2);

/// How soon it is brought again.
const AGAIN: Duration = Duration::from_millis(100);
