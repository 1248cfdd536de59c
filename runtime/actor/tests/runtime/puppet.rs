//! An actor that does as it is told, and a stage that remembers what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_actor::{
    Actor, Address, Backoff, Change, Child, Fault, Handle, Lookout, Me, Path, Reply, Root, Seed,
    Strategy, Supervisor, Tree, What,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Long enough for anything here; only a hang takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_hours(1);

pub(crate) struct Puppet;

/// What a puppet can be told.
pub(crate) enum Message {
    /// Answer.
    Echo(Reply<u64>),
    /// Fail with this.
    Fail(Fault),
    /// Panic.
    Panic,
    /// End in good order.
    End,
    /// Do nothing until the gate opens.
    Hang(Arc<Notify>),
    /// Block the thread until somebody sends something or is gone.
    Block(std::sync::mpsc::Receiver<()>),
    /// Start this task.
    Spawn(Job),
    /// Remember this.
    Note(&'static str),
    /// Remember this after a while.
    Later(Duration, &'static str),
    /// Do this on a thread for it.
    Offload(Box<dyn FnOnce() + Send>),
}

pub(crate) type Job = Box<
    dyn FnOnce(Me<Message>) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>
        + Send,
>;

/// What a start comes to; asked at each start with its number, from one.
pub(crate) type Opening = Arc<dyn Fn(usize) -> Result<(), Fault> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) log: Log,
    pub(crate) opening: Opening,
    pub(crate) starts: Arc<AtomicUsize>,
    /// How long the stop hook takes.
    pub(crate) farewell: Duration,
}

impl Arguments {
    pub(crate) fn new(log: &Log) -> Self {
        Self {
            log: log.clone(),
            opening: Arc::new(|_| Ok(())),
            starts: Arc::default(),
            farewell: Duration::ZERO,
        }
    }

    pub(crate) fn opening(
        self,
        opening: impl Fn(usize) -> Result<(), Fault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            opening: Arc::new(opening),
            ..self
        }
    }

    pub(crate) fn farewell(self, farewell: Duration) -> Self {
        Self { farewell, ..self }
    }
}

pub(crate) struct State {
    arguments: Arguments,
    path: Path,
    life: u64,
}

impl Drop for State {
    fn drop(&mut self) {
        self.arguments.log.note(&self.path, "dropped");
    }
}

impl Actor for Puppet {
    type Message = Message;
    type Arguments = Arguments;
    type State = State;

    const MAILBOX: usize = 4;

    async fn start(me: &Me<Message>, arguments: Arguments) -> Result<State, Fault> {
        let number = arguments.starts.fetch_add(1, Ordering::SeqCst) + 1;
        arguments.log.note(me.path(), "start");
        (arguments.opening)(number)?;
        Ok(State {
            path: me.path().clone(),
            life: me.handle().generation().0,
            arguments,
        })
    }

    async fn handle(me: &Me<Message>, message: Message, state: &mut State) -> Result<(), Fault> {
        match message {
            Message::Echo(reply) => reply.send(state.life),
            Message::Fail(fault) => return Err(fault),
            Message::Panic => panic!("a mistake of ours"),
            Message::End => me.end(),
            Message::Hang(gate) => gate.notified().await,
            Message::Block(gate) => {
                let _ = gate.recv();
            }
            Message::Spawn(job) => {
                me.spawn(job(me.clone()));
            }
            Message::Note(text) => state.arguments.log.note(me.path(), text),
            Message::Later(delay, text) => {
                me.after(delay, Message::Note(text));
            }
            Message::Offload(work) => {
                let task = me.clone();
                me.spawn(async move { task.offload(work).await });
            }
        }
        Ok(())
    }

    async fn stop(me: &Me<Message>, state: State) {
        state.arguments.log.note(me.path(), "stopping");
        tokio::time::sleep(state.arguments.farewell).await;
        state.arguments.log.note(me.path(), "stop");
    }
}

/// What happened, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, path: &Path, what: &str) {
        self.0.lock().push(format!("{} {what}", path.id()));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// The lines that end with this word.
    pub(crate) fn with(&self, word: &str) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|line| line.ends_with(&format!(" {word}")));
        lines
    }
}

/// A running tree whose changes can be waited for.
pub(crate) struct Stage {
    pub(crate) root: Root,
    pub(crate) lookout: Lookout,
    pub(crate) log: Log,
    changes: watch::Receiver<Vec<Change>>,
}

impl Stage {
    pub(crate) async fn set(tree: Tree, log: &Log) -> Self {
        let (tell, changes) = watch::channel(Vec::new());
        let observer = move |change: &Change| {
            tell.send_modify(|changes: &mut Vec<Change>| changes.push(change.clone()));
        };
        let lookout = tree.lookout();
        let root = tree
            .start(Seed::new(1), observer)
            .await
            .expect("the tree is sound");
        Self {
            root,
            lookout,
            log: log.clone(),
            changes,
        }
    }

    /// A tree of one puppet, up.
    pub(crate) async fn one(child: Child) -> (Self, Address<Message>) {
        let log = Log::default();
        let path = format!("root/{}", child.id);
        let spec = Supervisor::new("root", Strategy::OneForOne).child(child);
        let mut tree = Tree::new(spec);
        let address = tree.bind::<Puppet>(&path, Arguments::new(&log));
        let stage = Self::set(tree, &log).await;
        stage.root.up().await.expect("it starts");
        (stage, address)
    }

    /// Waits for the `count`th change of this child that is so.
    pub(crate) async fn until(
        &self,
        path: &str,
        count: usize,
        wanted: impl Fn(&What) -> bool,
    ) -> Change {
        let mut changes = self.changes.clone();
        let nth = |changes: &Vec<Change>| {
            changes
                .iter()
                .filter(|change| change.path.as_str() == path && wanted(&change.what))
                .nth(count - 1)
                .cloned()
        };
        let found = changes.wait_for(|changes| nth(changes).is_some());
        let found = tokio::time::timeout(PATIENCE, found).await;
        let changes = found.expect("it happens").expect("the tree runs").clone();
        nth(&changes).expect("it was found")
    }

    pub(crate) async fn up(&self, path: &str, count: usize) {
        self.until(path, count, |what| *what == What::Up).await;
    }

    pub(crate) async fn fell(&self, path: &str, count: usize) -> Change {
        self.until(path, count, |what| matches!(what, What::Fell { .. }))
            .await
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Change) -> bool) -> usize {
        let changes = self.changes.borrow();
        changes.iter().filter(|change| wanted(change)).count()
    }
}

/// Which life answers.
pub(crate) async fn life(address: &Address<Message>) -> u64 {
    address
        .ask(Message::Echo, PATIENCE)
        .await
        .expect("it answers")
}

pub(crate) fn handle(address: &Address<Message>) -> Handle<Message> {
    address.handle().expect("somebody lives there")
}

/// One delay, always the same.
pub(crate) fn steady(delay: Duration) -> Backoff {
    Backoff::between(delay, delay)
}

pub(crate) fn child(id: &str) -> Child {
    Child::permanent(id).backoff(steady(Duration::from_secs(1)))
}
