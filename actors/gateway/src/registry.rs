//! What the gateway remembers: every sandbox, durable before it is acknowledged.
//!
//! ```text
//! Put · Remove · Forget · Rows · Row · Revision ──▶ registry ──▶ (a thread for blocking work) ──▶ redb ──▶ disk ──▶ the reply
//! ```
//!
//! One write at a time, each of them a whole transaction: the process may be killed at any instant.

use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Address, Fault, Me, Reply, Unanswered};

pub(crate) mod row;
pub(crate) mod store;

use row::{Revision, Row};
use store::{Store, Unstored};

/// What the registry can be told.
pub(crate) enum Message {
    /// Keep this, with a revision of its policy if there is a new one.
    Put(Box<Row>, Option<Revision>, Reply<Result<(), Unstored>>),
    /// Forget this sandbox.
    Remove(String, Reply<Result<(), Unstored>>),
    /// Forget this revision of the policy of this sandbox.
    Forget(String, u64, Reply<Result<(), Unstored>>),
    /// All sandboxes.
    Rows(Reply<Result<Vec<Row>, Unstored>>),
    /// This sandbox.
    Row(String, Reply<Result<Option<Row>, Unstored>>),
    /// This revision of the policy of this sandbox.
    Revision(String, u64, Reply<Result<Option<Revision>, Unstored>>),
}

/// Writes to the disk, in order.
pub(crate) struct Registry;

impl Actor for Registry {
    type Message = Message;
    type Arguments = Arc<Store>;
    type State = Arc<Store>;

    async fn start(_: &Me<Message>, store: Arc<Store>) -> Result<Arc<Store>, Fault> {
        Ok(store)
    }

    async fn handle(
        me: &Me<Message>,
        message: Message,
        store: &mut Arc<Store>,
    ) -> Result<(), Fault> {
        let store = Arc::clone(store);
        me.offload(move || match message {
            Message::Put(row, revision, reply) => reply.send(store.put(&row, revision.as_ref())),
            Message::Remove(id, reply) => reply.send(store.remove(&id)),
            Message::Forget(id, number, reply) => reply.send(store.forget(&id, number)),
            Message::Rows(reply) => reply.send(store.rows()),
            Message::Row(id, reply) => reply.send(store.row(&id)),
            Message::Revision(id, number, reply) => reply.send(store.revision(&id, number)),
        })
        .await
    }
}

/// The way to the registry.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Address<Message>);

/// Something the registry did not do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unkept {
    #[error("reach the registry: {0}")]
    Unanswered(#[from] Unanswered),
    #[error(transparent)]
    Unstored(#[from] Unstored),
}

impl Ledger {
    pub(crate) fn new(address: Address<Message>) -> Self {
        Self(address)
    }

    /// Returns when it is on disk.
    pub(crate) async fn put(&self, row: &Row, revision: Option<Revision>) -> Result<(), Unkept> {
        let row = Box::new(row.clone());
        let put = |reply| Message::Put(row, revision, reply);
        Ok(self.0.ask(put, PATIENCE).await??)
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<(), Unkept> {
        let id = id.to_owned();
        Ok(self
            .0
            .ask(|reply| Message::Remove(id, reply), PATIENCE)
            .await??)
    }

    pub(crate) async fn forget(&self, id: &str, number: u64) -> Result<(), Unkept> {
        let id = id.to_owned();
        let ask = |reply| Message::Forget(id, number, reply);
        Ok(self.0.ask(ask, PATIENCE).await??)
    }

    pub(crate) async fn rows(&self) -> Result<Vec<Row>, Unkept> {
        Ok(self.0.ask(Message::Rows, PATIENCE).await??)
    }

    pub(crate) async fn row(&self, id: &str) -> Result<Option<Row>, Unkept> {
        let id = id.to_owned();
        Ok(self
            .0
            .ask(|reply| Message::Row(id, reply), PATIENCE)
            .await??)
    }

    pub(crate) async fn revision(&self, id: &str, number: u64) -> Result<Option<Revision>, Unkept> {
        let id = id.to_owned();
        let ask = |reply| Message::Revision(id, number, reply);
        Ok(self.0.ask(ask, PATIENCE).await??)
    }
}

/// How long a write may take; a disk that is slower is a fault of the host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
