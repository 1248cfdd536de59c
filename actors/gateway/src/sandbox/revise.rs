//! Has another policy wanted, where the present generation lets it.
//!
//! ```text
//! nothing runs, or this generation ends ──────────────────────────▶ kept: the next start begins with it
//! a keeper is starting ───────────────────────────────────────────▶ asked again when it serves: it begins with the one before
//! a fence stands ──┬─ the policy is of the same fence ─────────────▶ kept
//!                  └─ of another one ──────────────────────────────▶ not kept: only a restart can put it in force
//! ```
//!
//! So what is wanted while a fence stands is of that fence, and the next keeper may begin with it. Who has it kept brings it to
//! the keeper that serves; what did not get there is brought again, once the keeper is seen to be behind.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Fault, Me};
use holdfast_policy::Policy;
use holdfast_wire::v1;
use holdfast_wire::v1::keeper_client::KeeperClient;

use super::{Message, State};
use crate::dial;
use crate::life::Stage;
use crate::refused::Refused;
use crate::registry::row::{Revision, Row};

/// What became of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revising {
    /// It is wanted.
    Kept(Revised),
    /// A keeper is just beginning with the one before. To be asked again when it serves.
    Begins,
    /// The fence that stands would have to be another one.
    Fenced,
}

/// A policy that is wanted from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Revised {
    /// Its number.
    pub(crate) number: u64,
    /// What was wanted before.
    pub(crate) before: u64,
    /// Whether a keeper is there to put it in force.
    pub(crate) serves: bool,
}

impl State {
    /// Wants a policy, unless it is of another fence; `policy` is what it says, or none if that was asked already.
    pub(super) async fn revise(
        &mut self,
        me: &Me<Message>,
        revision: Revision,
        policy: Option<Arc<Policy>>,
    ) -> Result<Result<Revising, Refused>, Fault> {
        // What is being deleted, or is, must not come into the registry again.
        if self.removed || self.life.deletes() {
            return Ok(Err(Refused::Deleting(self.row.name().to_owned())));
        }
        if matches!(self.life.stage, Stage::Starting { .. }) {
            return Ok(Ok(Revising::Begins));
        }
        let serves = matches!(
            self.life.stage,
            Stage::Up { .. } | Stage::Adopting { .. } | Stage::Silent { .. }
        );
        let before = self.row.policy;
        let ledger = &self.arguments.host.ledger;
        if let Some(policy) = policy
            && (serves || matches!(self.life.stage, Stage::KeeperDown { .. }))
        {
            let standing = match ledger.revision(&self.row.id, before).await {
                Ok(standing) => standing.unwrap_or_default(),
                Err(why) => {
                    let what = "read a policy";
                    return Ok(Err(Refused::Registry { what, why }));
                }
            };
            // A document may have thousands of rules.
            let differs = me.offload(move || is_of_another_fence(&standing.yaml, &policy));
            if differs.await? {
                return Ok(Ok(Revising::Fenced));
            }
        }
        let row = Row {
            policy: before + 1,
            ..self.row.clone()
        };
        if let Err(why) = ledger.put(&row, Some(revision)).await {
            let what = "keep a policy";
            return Ok(Err(Refused::Registry { what, why }));
        }
        self.stored.clone_from(&row);
        self.row = row;
        // What was said of an earlier one that was refused is not about this one.
        let policy = self.last.as_mut().and_then(|last| last.policy.as_mut());
        if let Some(policy) = policy {
            policy.error.clear();
        }
        self.publish(me.now());
        Ok(Ok(Revising::Kept(Revised {
            number: self.row.policy,
            before,
            serves,
        })))
    }

    /// What was kept as `from` was refused: wants `to` again.
    pub(super) async fn revert(&mut self, from: u64, to: u64) -> Result<(), Fault> {
        if self.row.policy != from {
            return Ok(());
        }
        self.row.policy = to;
        // First what is wanted: nobody may want what is not kept.
        self.persist().await?;
        let ledger = &self.arguments.host.ledger;
        Ok(ledger.forget(&self.row.id, from).await?)
    }
}

impl State {
    /// Sees in a keeper's report whether it has in force what is wanted, and gives who wants that the time to bring it.
    pub(super) fn look_behind(&mut self, me: &Me<Message>) {
        if !matches!(self.life.stage, Stage::Up { .. }) {
            // What was brought before may not have got there.
            self.behind = None;
        }
        let enforced = self.enforced();
        let behind = enforced.is_some_and(|enforced| enforced != self.row.policy);
        let behind = behind.then_some(self.row.policy);
        if behind.is_some() && self.behind != behind {
            me.after(LATER, Message::Bring);
        }
        self.behind = behind;
    }

    /// What the keeper says that it has in force.
    fn enforced(&self) -> Option<u64> {
        let policy = self.last.as_ref()?.policy.as_ref()?;
        Some(policy.enforced)
    }

    /// Brings what is wanted to the keeper, if it is still behind.
    pub(super) fn bring(&self, me: &Me<Message>) {
        let serves = matches!(self.life.stage, Stage::Up { .. });
        if !serves || self.behind != Some(self.row.policy) {
            return;
        }
        let ledger = self.arguments.host.ledger.clone();
        let (id, number) = (self.row.id.clone(), self.row.policy);
        let mut keeper = KeeperClient::new(dial::lazily(self.ground.keeper_socket()));
        me.spawn(async move {
            let revision = ledger.revision(&id, number).await?;
            let applied = keeper.apply(v1::PolicyRevision {
                revision: number,
                yaml: revision.unwrap_or_default().yaml,
            });
            // Its status says how it stands.
            if let Err(status) = applied.await {
                let error = status.message();
                tracing::warn!(sandbox = id, revision = number, error, "bring a policy");
            }
            Ok(())
        });
    }
}

/// Whether the fence that was built by the policy in `yaml` would have to be another one.
fn is_of_another_fence(yaml: &str, policy: &Policy) -> bool {
    let standing = if yaml.is_empty() {
        Ok(Policy::standard())
    } else {
        Policy::parse("policy", yaml)
    };
    // One that cannot be read any more is for the keeper to compare.
    standing.is_ok_and(|standing| !standing.fence_changes(policy).is_empty())
}

/// How long who has a policy kept may take to bring it.
const LATER: Duration = Duration::from_secs(1);
