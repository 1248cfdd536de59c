//! The serving half of the boundary's life: its runtime and its actors.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_actor::{Actor, Child, Clock, Dynamic, Fault, Me, Root, Seed, Tree};
use holdfast_kernel::handoff::{self, Received, Socket};
use holdfast_kernel::ready::Ready;
use holdfast_kernel::{Called, Error};
use holdfast_policy::OnLinkLoss;
use holdfast_wire::MOST_BYTES;
use holdfast_wire::v1::boundary_server::BoundaryServer;
use holdfast_wire::v1::from_launcher::Kind as Told;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, FromLauncher, Handoff};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;

use crate::broker::{self, Counts, Ports, Waiting};
use crate::inside::{Built, hand, listen_on};
use crate::loss::{self, Heard};
use crate::service::Service;
use crate::sessions::{Reader, Sessions};
use crate::tree;

/// Serves until the launcher or the keeper is gone. Answers the process's status.
pub(crate) fn run(built: Built, keeper: Socket) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime
        .called("start the runtime")
        .map_err(Fault::from)
        .and_then(|runtime| runtime.block_on(serve(built, Arc::new(keeper))));
    match served {
        Ok(()) => 0,
        Err(fault) => {
            tracing::error!(%fault, "the boundary ends");
            125
        }
    }
}

async fn serve(built: Built, keeper: Arc<Socket>) -> Result<(), Fault> {
    let gone = Ready::reading(built.launcher.pidfd.try_clone().called("dup")?)?;
    let (proved, proof) = oneshot::channel();
    let root = start(&built, &keeper, proved).await?;
    root.up()
        .await
        .map_err(|end| Fault::failed(format!("start its actors: {end:?}")))?;
    let told = match proof.await {
        Ok(gaps) if gaps.is_empty() => Kind::Standing(v1::Standing {
            steps: built.steps,
            evidence: Some(built.evidence),
        }),
        Ok(gaps) => fallen("prove the fence", gaps.join("; ")),
        Err(_) => fallen("prove the fence", "the launcher is gone".to_owned()),
    };
    hand(&keeper, told, &[])?;
    tokio::select! {
        end = root.ended() => tracing::error!(?end, "the boundary's actors gave up"),
        _ = gone.readable() => {}
    }
    Ok(())
}

fn fallen(step: &str, message: String) -> Kind {
    Kind::Fallen(v1::Fallen {
        step: step.to_owned(),
        message,
    })
}

/// Starts the boundary's actors.
async fn start(
    built: &Built,
    keeper: &Arc<Socket>,
    proved: oneshot::Sender<Vec<String>>,
) -> Result<Root, Fault> {
    let channel = Arc::new(Ready::new(Arc::new(Socket::from(
        built.channel.as_fd().try_clone_to_owned().called("dup")?,
    )))?);
    let sessions = Arc::new(Sessions::new(Arc::clone(&channel)));
    let counts = Arc::new(Counts::default());
    let over = Arc::new(AtomicBool::new(false));
    let (ours, theirs) = handoff::pair()?;
    hand(keeper, Kind::Lane(v1::Lane {}), &[theirs.as_fd()])?;
    let mut tree = Tree::new(tree::boundary());
    let readers = tree.dynamic("boundary/sessions");
    let lookout = tree.lookout();
    tree.bind::<Launcher>(
        "boundary/launcher",
        LauncherArguments {
            channel,
            sessions: Arc::clone(&sessions),
            proved: Arc::new(Mutex::new(Some(proved))),
            over: Arc::clone(&over),
        },
    );
    let listen = {
        let keeper = Arc::clone(keeper);
        move |port| listen_on(&keeper, port)
    };
    tree.bind::<Broker>(
        "boundary/broker",
        broker::Arguments {
            listener: Arc::clone(&built.listener),
            lane: Arc::new(ours),
            ports: Arc::new(Ports::new(built.ports.iter().copied(), listen)),
            launcher: built.launcher.pid.as_raw().unsigned_abs(),
            waiting: Arc::new(Mutex::new(Waiting::default())),
            proved: Arc::clone(&over),
            counts: Arc::clone(&counts),
        },
    );
    tree.bind::<Link>(
        "boundary/service",
        LinkArguments {
            keeper: Arc::clone(keeper),
            service: Arc::new(Service {
                sessions,
                evidence: built.evidence.clone(),
                counts,
                holder: Mutex::new(None),
                heard: Heard::default(),
                clock: Clock::tokio(),
                readers,
                lookout,
            }),
            on_link_loss: built.on_link_loss,
        },
    );
    tree.start(Seed::fresh(), |change: &holdfast_actor::Change| {
        tracing::debug!(?change, "supervision");
    })
    .await
    .map_err(|unfit| Fault::bug(unfit.to_string()))
}

/// Hears what the launcher tells.
struct Launcher;

#[derive(Clone)]
struct LauncherArguments {
    channel: Arc<Ready<Arc<Socket>>>,
    sessions: Arc<Sessions>,
    proved: Arc<Mutex<Option<oneshot::Sender<Vec<String>>>>>,
    over: Arc<AtomicBool>,
}

impl Actor for Launcher {
    type Message = ();
    type Arguments = LauncherArguments;
    type State = ();

    async fn start(me: &Me<()>, arguments: LauncherArguments) -> Result<(), Fault> {
        me.spawn(async move {
            while let Some((told, descriptor)) = arguments.hear().await? {
                arguments.dispatch(told, descriptor);
            }
            // With process 1 every process of the sandbox is gone.
            Err(Fault::last("the launcher is gone"))
        });
        Ok(())
    }

    async fn handle(_: &Me<()>, (): (), (): &mut ()) -> Result<(), Fault> {
        Ok(())
    }
}

impl LauncherArguments {
    async fn hear(&self) -> Result<Option<(Told, Option<OwnedFd>)>, Error> {
        let mut buffer = [0; 4096];
        loop {
            let received = self
                .channel
                .read(|socket| socket.try_receive(&mut buffer))
                .await?;
            let (length, descriptors) = match received {
                Received::Packet {
                    length,
                    descriptors,
                } => (length, descriptors),
                Received::Exhausted { length } => (length, Vec::new()),
                Received::Closed => return Ok(None),
            };
            let told = FromLauncher::decode(&buffer[..length])
                .ok()
                .and_then(|told| told.kind);
            if let Some(told) = told {
                return Ok(Some((told, descriptors.into_iter().next())));
            }
        }
    }

    fn dispatch(&self, told: Told, descriptor: Option<OwnedFd>) {
        match told {
            Told::Proof(proof) => {
                self.over.store(true, Ordering::Relaxed);
                if let Some(proved) = self.proved.lock().take() {
                    let _ = proved.send(proof.gaps);
                }
            }
            Told::Started(started) => self.sessions.answered(started.session, Ok(descriptor)),
            Told::NotStarted(refused) => self.sessions.answered(refused.session, Err(refused)),
            Told::Ended(ended) => self.sessions.ended(ended.session, ended.exit),
            // The building is over when there is an actor to hear of it.
            Told::Built(_) | Told::BuildFailed(_) => {}
        }
    }
}

/// Answers the filter's questions.
struct Broker;

impl Actor for Broker {
    type Message = ();
    type Arguments = broker::Arguments;
    type State = ();

    async fn start(me: &Me<()>, arguments: broker::Arguments) -> Result<(), Fault> {
        me.spawn(async move {
            broker::serve(arguments).await?;
            Err(Fault::last("nobody is left under the filter"))
        });
        Ok(())
    }

    async fn handle(_: &Me<()>, (): (), (): &mut ()) -> Result<(), Fault> {
        Ok(())
    }
}

/// Takes connections from the keeper and serves them.
struct Link;

#[derive(Clone)]
struct LinkArguments {
    keeper: Arc<Socket>,
    service: Arc<Service>,
    on_link_loss: OnLinkLoss,
}

impl Actor for Link {
    type Message = ();
    type Arguments = LinkArguments;
    type State = ();

    async fn start(me: &Me<()>, arguments: LinkArguments) -> Result<(), Fault> {
        let service = Arc::clone(&arguments.service);
        if arguments.on_link_loss == OnLinkLoss::Freeze {
            let sessions = Arc::clone(&service.sessions);
            me.spawn(loss::freeze(
                service.heard.clone(),
                sessions,
                me.clock().clone(),
            ));
        }
        let (dialled, connections) = mpsc::channel(MOST_DIALS);
        let keeper = Ready::reading(arguments.keeper)?;
        me.spawn(async move {
            loop {
                match accept(&keeper).await? {
                    Some(stream) => {
                        let _ = dialled.send(Ok::<_, std::io::Error>(stream)).await;
                    }
                    None => return Err(Fault::last("the keeper is gone")),
                }
            }
        });
        me.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(
                    BoundaryServer::from_arc(service)
                        .max_decoding_message_size(MOST_BYTES)
                        .max_encoding_message_size(MOST_BYTES),
                )
                .serve_with_incoming(ReceiverStream::new(connections))
                .await?;
            Ok(())
        });
        Ok(())
    }

    async fn handle(_: &Me<()>, (): (), (): &mut ()) -> Result<(), Fault> {
        Ok(())
    }
}

/// The next connection that the keeper has dialled; `None` when it is gone.
async fn accept(keeper: &Ready<Arc<Socket>>) -> Result<Option<UnixStream>, Fault> {
    let mut buffer = [0; 256];
    loop {
        let received = keeper
            .read(|socket| socket.try_receive(&mut buffer))
            .await?;
        let (length, descriptors) = match received {
            Received::Packet {
                length,
                descriptors,
            } => (length, descriptors),
            Received::Exhausted { .. } => {
                return Err(Fault::exhausted(
                    "receive a connection: too many open files",
                ));
            }
            Received::Closed => return Ok(None),
        };
        let kind = Handoff::decode(&buffer[..length])
            .ok()
            .and_then(|handoff| handoff.kind);
        if let (Some(Kind::Dial(_)), Some(stream)) = (kind, descriptors.into_iter().next()) {
            let stream = StdStream::from(stream);
            stream.set_nonblocking(true)?;
            return Ok(Some(UnixStream::from_std(stream)?));
        }
    }
}

/// Reads one session's output.
pub(crate) struct Session;

/// What is read; taken by the actor, which is never started again.
#[derive(Clone)]
pub(crate) struct SessionArguments(Arc<Mutex<Vec<Reader>>>);

impl Actor for Session {
    type Message = ();
    type Arguments = SessionArguments;
    type State = ();

    async fn start(me: &Me<()>, arguments: SessionArguments) -> Result<(), Fault> {
        let readers = std::mem::take(&mut *arguments.0.lock());
        let this = me.clone();
        me.spawn(async move {
            futures_util::future::join_all(readers.into_iter().map(Reader::run)).await;
            this.end();
            Ok(())
        });
        Ok(())
    }

    async fn handle(_: &Me<()>, (): (), (): &mut ()) -> Result<(), Fault> {
        Ok(())
    }
}

/// Gives the session `id` an actor that reads its output.
pub(crate) async fn read(sessions: &Dynamic, id: u64, readers: Vec<Reader>) -> Result<(), Fault> {
    let child = Child::temporary(&id.to_string());
    let arguments = SessionArguments(Arc::new(Mutex::new(readers)));
    sessions
        .add::<Session>(child, arguments)
        .await
        .map(drop)
        .map_err(|refusal| Fault::exhausted(refusal.to_string()))
}

/// How many connections may wait to be served.
const MOST_DIALS: usize = 64;
