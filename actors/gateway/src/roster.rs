//! Who is there: makes sandboxes, and brings back those that the registry knows.
//!
//! ```text
//! start ──▶ rows of the registry ──▶ an actor each ──▶ directory
//! Create ──▶ name free? ──▶ registry (durable) ──▶ directories, actor, directory ──▶ the reply
//! ```
//!
//! One request at a time, so that a name is never given twice. A create that fails leaves nothing, its name neither.

use std::fs;
use std::sync::Arc;

use holdfast_actor::{Actor, Address, Child, Class, Dynamic, Fault, Me, Refusal, Reply};
use holdfast_observability::Decision;
use holdfast_wire::v1;
use tokio::sync::watch;

use crate::directory::{Entry, Posted};
use crate::host::Host;
use crate::refused::Refused;
use crate::registry::row::{Revision, Row};
use crate::sandbox::ground::Ground;
use crate::sandbox::{self, Sandbox};
use crate::tree::MOST_SANDBOXES;
use crate::{clock, dial, places};

/// What the roster can be told.
pub(crate) enum Message {
    /// Make this sandbox. Its name, policy and arguments were checked.
    Create(Box<v1::CreateRequest>, Reply<Result<Entry, Refused>>),
    /// This one is deleted: nothing is left of it but its actor.
    Gone(String),
}

/// What it is born with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) host: Host,
    pub(crate) sandboxes: Dynamic,
    /// Its own.
    pub(crate) roster: Address<Message>,
}

pub(crate) struct Roster;

impl Actor for Roster {
    type Message = Message;
    type Arguments = Arguments;
    type State = Arguments;

    async fn start(_: &Me<Message>, arguments: Arguments) -> Result<Arguments, Fault> {
        let host = &arguments.host;
        let rows = host.ledger.rows().await?;
        sweep(host, &rows);
        for row in rows {
            match arguments.add(&row).await {
                Ok(_) => {}
                // Only this roster fell, and not the sandboxes before it: this one is still there.
                Err(Refusal::Duplicate) if host.directory.has(row.name()) => {}
                Err(refusal) => {
                    // Want of a resource is waited out, here as there.
                    let class = match &refusal {
                        Refusal::StartFailed(reason) => reason.class(),
                        Refusal::Full { .. }
                        | Refusal::Duplicate
                        | Refusal::Unknown
                        | Refusal::Down => Class::Failed,
                    };
                    let name = row.name();
                    return Err(Fault::new(class, format!("bring back {name}: {refusal}")));
                }
            }
        }
        Ok(arguments)
    }

    async fn handle(_: &Me<Message>, message: Message, state: &mut Arguments) -> Result<(), Fault> {
        match message {
            Message::Create(request, reply) => reply.send(state.create(*request).await),
            Message::Gone(id) => {
                state.host.directory.remove(&id);
                state.sandboxes.remove(&id);
            }
        }
        Ok(())
    }
}

impl Arguments {
    async fn create(&self, request: v1::CreateRequest) -> Result<Entry, Refused> {
        let (name, host) = (request.name.clone(), &self.host);
        if host.directory.has(&name) {
            return Err(Refused::NameTaken(name));
        }
        let full = || Refused::TooManySandboxes {
            name: name.clone(),
            most: MOST_SANDBOXES,
        };
        if host.directory.len() >= MOST_SANDBOXES {
            return Err(full());
        }
        let (row, revision) = fresh(request);
        let directory = host.places.sandbox_state(&row.id);
        places::own(&directory).map_err(|why| Refused::Host {
            what: format!("create {name}"),
            why: crate::chain(&why),
        })?;
        let undo = || {
            // What cannot be removed now is swept away at the next start.
            let _ = fs::remove_dir_all(&directory);
        };
        if let Err(why) = host.ledger.put(&row, Some(revision)).await {
            undo();
            return Err(Refused::Registry {
                what: "create a sandbox",
                why,
            });
        }
        match self.add(&row).await {
            Ok(entry) => Ok(entry),
            Err(refusal) => {
                undo();
                // It was never acknowledged: if this write fails too, it comes back at the next start, and can be deleted.
                let _ = host.ledger.remove(&row.id).await;
                match refusal {
                    Refusal::Full { .. } => Err(full()),
                    Refusal::Duplicate
                    | Refusal::Unknown
                    | Refusal::Down
                    | Refusal::StartFailed(_) => Err(Refused::Host {
                        what: format!("create {name}"),
                        why: refusal.to_string(),
                    }),
                }
            }
        }
    }

    async fn add(&self, row: &Row) -> Result<Entry, Refusal> {
        let posted = Arc::new(watch::Sender::new(Posted::default()));
        let arguments = sandbox::Arguments {
            host: self.host.clone(),
            id: row.id.clone(),
            posted: Arc::clone(&posted),
            roster: self.roster.clone(),
        };
        let socket = Ground(self.host.places.sandbox_runtime(&row.id)).keeper_socket();
        let child = Child::transient(&row.id).ping(sandbox::PING);
        let address = self.sandboxes.add::<Sandbox>(child, arguments).await?;
        let entry = Entry {
            id: row.id.clone(),
            name: row.name().to_owned(),
            address,
            posted,
            control: dial::lazily(socket.clone()),
            revising: Arc::default(),
            socket,
        };
        self.host.directory.insert(entry.clone());
        Ok(entry)
    }
}

/// The row of a new sandbox, and the first revision of its policy, which is kept beside it: nobody who looks at the row has to
/// carry the text along.
fn fresh(mut request: v1::CreateRequest) -> (Row, Revision) {
    let now = clock::wall_ms();
    let revision = Revision {
        yaml: std::mem::take(&mut request.policy),
        name: std::mem::take(&mut request.policy_name),
    };
    let row = Row {
        // The same kind of id: unique, in the order of time, 26 characters.
        id: Decision::new(clock::wall()).to_string(),
        request: Some(request),
        since_ms: now,
        created_ms: now,
        policy: 1,
        ..Row::default()
    };
    (row, revision)
}

/// Removes what a crash has left of sandboxes that are not in the registry.
fn sweep(host: &Host, rows: &[Row]) {
    for entry in host.directory.all() {
        if !rows.iter().any(|row| row.id == entry.id) {
            host.directory.remove(&entry.id);
        }
    }
    for (id, path) in host.places.sandboxes() {
        if rows.iter().any(|row| row.id == id) {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "removed what was left of a sandbox"),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "remove what was left of a sandbox");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_kept_once_and_not_in_the_row() {
        let request = v1::CreateRequest {
            name: "qa".to_owned(),
            policy: "version: 1\n".to_owned(),
            policy_name: "p.yaml".to_owned(),
            ..v1::CreateRequest::default()
        };

        let (row, revision) = fresh(request);

        assert_eq!((row.name(), row.policy), ("qa", 1));
        assert_eq!(
            (&*row.request().policy, &*row.request().policy_name),
            ("", "")
        );
        assert_eq!(
            (&*revision.yaml, &*revision.name),
            ("version: 1\n", "p.yaml")
        );
    }
}
