//! Does what a life wants done.

use std::io;
use std::time::Duration;

use holdfast_actor::{Fault, Me};
use holdfast_wire::shared::log;
use holdfast_wire::v1;
use holdfast_wire::v1::keeper_client::KeeperClient;
use tokio::time::timeout;

use super::{Message, State, ground};
use crate::life::{Command, End, Event, Why};
use crate::processes::named;
use crate::refused::Refused;
use crate::{dial, roster};

impl State {
    /// A generation that is about to begin has nothing of the one before.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        if self.life.epoch == 1 && self.commands.contains(&Command::Spawn) {
            self.last = None;
            self.boundary = None;
            self.row.main = None;
            self.row.token = ground::token()?;
            let boot = self.arguments.host.processes.boot();
            boot.clone_into(&mut self.row.boot);
        }
        Ok(())
    }

    pub(super) async fn obey(&mut self, me: &Me<Message>, command: Command) -> Result<(), Fault> {
        tracing::debug!(sandbox = self.row.name(), ?command, "life");
        match command {
            Command::Spawn => self.spawn(me).await,
            Command::KillKeeper => {
                if self.keeper.is_none() {
                    self.keeper = self.find_keeper()?;
                    self.watch_keeper(me);
                }
                if let Some(keeper) = &self.keeper {
                    keeper.kill();
                } else {
                    let boundary = self.boundary.is_some();
                    let why = Why::new("KeeperLost", "the keeper is gone");
                    self.step(Event::KeeperFell(End::Crashed { boundary, why }), me.now());
                }
                Ok(())
            }
            Command::KillBoundary => {
                if self.boundary.is_none() {
                    self.boundary = self.find_boundary()?;
                    self.watch_boundary(me);
                }
                match &self.boundary {
                    Some(boundary) => boundary.kill(),
                    None => self.step(Event::BoundaryFell, me.now()),
                }
                Ok(())
            }
            Command::Halt { grace } => {
                self.halt(me, grace);
                Ok(())
            }
            Command::Remove => self.remove(me).await,
        }
    }

    async fn spawn(&mut self, me: &Me<Message>) -> Result<(), Fault> {
        let host = self.arguments.host.clone();
        let revision = host.ledger.revision(&self.row.id, self.row.policy).await?;
        let state = host.places.sandbox_state(&self.row.id);
        let spec = v1::Spec {
            id: self.row.id.clone(),
            generation: self.life.generation,
            epoch: self.life.epoch,
            request: Some(self.row.request()),
            policy: Some(v1::PolicyRevision {
                revision: self.row.policy,
                yaml: revision.unwrap_or_default().yaml,
            }),
            gateway: bytes(host.places.socket()),
            state: bytes(state.clone()),
            token: self.row.token.clone(),
            chaos: host.chaos,
            reconnects: self
                .last
                .as_ref()
                .and_then(|last| last.link.as_ref())
                .map_or(0, |link| link.reconnects),
        };
        let ground = self.ground.clone();
        let processes = host.processes.clone();
        let runtime = tokio::runtime::Handle::current();
        let spawned = me.offload(move || {
            let _within = runtime.enter();
            crate::places::own(&state).map_err(|why| io::Error::other(crate::chain(&why)))?;
            let spec = ground
                .prepare(&spec)
                .map_err(named("prepare its directory"))?;
            processes.keeper(&ground.0, &spec, &state.join(log::KEEPER))
        });
        match spawned.await? {
            Ok(keeper) => {
                self.keeper = Some(keeper);
                self.watch_keeper(me);
            }
            Err(error) => {
                let why = Why::new("KeeperNotStarted", format!("start the keeper: {error}"));
                self.step(Event::NotSpawned(why), me.now());
            }
        }
        Ok(())
    }

    /// Asks the keeper to end everything. When it does not hear or does not obey, the life's deadline says what follows.
    fn halt(&self, me: &Me<Message>, grace: Duration) {
        let socket = self.ground.keeper_socket();
        let name = self.row.name().to_owned();
        me.spawn(async move {
            let halted = timeout(grace + PATIENCE, async {
                loop {
                    // Until its fence stands a keeper serves nobody.
                    if let Ok(channel) = dial::dial(&socket).await {
                        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                        let mut client = KeeperClient::new(channel);
                        return client.halt(v1::HaltRequest { grace_ms }).await;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            });
            match halted.await {
                Ok(Ok(_)) => {}
                Ok(Err(status)) => {
                    tracing::info!(
                        sandbox = name,
                        error = status.message(),
                        "halt through the keeper"
                    );
                }
                Err(_) => tracing::info!(
                    sandbox = name,
                    "halt through the keeper: it did not answer in time"
                ),
            }
            Ok(())
        });
    }

    async fn remove(&mut self, me: &Me<Message>) -> Result<(), Fault> {
        let host = self.arguments.host.clone();
        let id = self.row.id.clone();
        let places = host.places.clone();
        let cleared = me.offload(move || {
            let (runtime, state) = (places.sandbox_runtime(&id), places.sandbox_state(&id));
            ground::clear([&runtime, &state])
        });
        if let Err(error) = cleared.await? {
            tracing::error!(sandbox = self.row.name(), %error, "remove what is on disk; tried again");
            self.step(Event::NotRemoved, me.now());
            for waiting in self.waiting.drain(..) {
                waiting.reply.send(Err(Refused::Host {
                    what: format!("delete {}", self.row.name()),
                    why: format!("{error}; it is tried again"),
                }));
            }
            return Ok(());
        }
        host.ledger.remove(&self.row.id).await?;
        self.removed = true;
        host.directory.remove(&self.row.id);
        tracing::info!(sandbox = self.row.name(), "deleted");
        for waiting in self.waiting.drain(..) {
            waiting.reply.send(if waiting.removed {
                Ok(())
            } else {
                Err(Refused::Deleting(self.row.name().to_owned()))
            });
        }
        // The roster takes this actor out; a roster that is between two lives will not find it in the registry.
        let _ = self
            .arguments
            .roster
            .send(roster::Message::Gone(self.row.id.clone()));
        Ok(())
    }
}

fn bytes(path: std::path::PathBuf) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt as _;
    path.into_os_string().into_vec()
}

/// How long a keeper may take beyond the grace.
const PATIENCE: Duration = Duration::from_secs(5);

const AGAIN: Duration = Duration::from_millis(100);
