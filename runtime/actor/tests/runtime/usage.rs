//! How an actor is written: a counter with a reader task, asked through its address.

use std::time::Duration;

use holdfast_actor::{
    Actor, Change, Child, End, Fault, Me, Reply, Seed, Strategy, Supervisor, Tree,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

struct Counter;

enum Message {
    /// So many bytes were read.
    Read(usize),
    /// How many were read so far?
    Total(Reply<usize>),
}

/// What the counter is born with: where its readers get their bytes.
#[derive(Clone)]
struct Arguments {
    chunk: usize,
    source: std::sync::Arc<tokio::sync::Mutex<tokio::io::DuplexStream>>,
}

impl Actor for Counter {
    type Message = Message;
    type Arguments = Arguments;
    type State = usize;

    async fn start(me: &Me<Message>, arguments: Arguments) -> Result<usize, Fault> {
        let handle = me.handle().clone();
        me.spawn(async move {
            let mut source = arguments.source.lock().await;
            let mut buffer = vec![0; arguments.chunk];
            loop {
                let read = source.read(&mut buffer).await?;
                if read == 0 {
                    return Ok(());
                }
                handle.send(Message::Read(read))?;
            }
        });
        Ok(0)
    }

    async fn handle(_: &Me<Message>, message: Message, total: &mut usize) -> Result<(), Fault> {
        match message {
            Message::Read(read) => *total += read,
            Message::Total(reply) => reply.send(*total),
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_actor_counts_what_its_reader_reads() {
    // Given a tree of one counter.
    let (mut far, near) = duplex(64);
    let spec = Supervisor::new("root", Strategy::OneForOne).child(Child::permanent("counter"));
    let mut tree = Tree::new(spec);
    let counter = tree.bind::<Counter>(
        "root/counter",
        Arguments {
            chunk: 16,
            source: std::sync::Arc::new(tokio::sync::Mutex::new(near)),
        },
    );
    let root = tree
        .start(Seed::new(1), |_: &Change| {})
        .await
        .expect("the tree is sound");
    root.up().await.expect("it starts");

    // When something is written.
    far.write_all(&[7; 40]).await.expect("the reader reads");

    // Then it is counted.
    let mut total = 0;
    while total < 40 {
        total = counter
            .ask(Message::Total, Duration::from_secs(5))
            .await
            .expect("the counter answers");
    }
    assert_eq!(total, 40);
    assert_eq!(root.shutdown().await, End::ShutDown);
}
