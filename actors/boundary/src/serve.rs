//! The serving half of the boundary's life: its runtime and its actors.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_actor::{Actor, Change, Dynamic, Fault, Me, Root, Seed, Tree};
use holdfast_kernel::bell::Bell;
use holdfast_kernel::fork;
use holdfast_kernel::handoff::{Received, Socket};
use holdfast_kernel::ready::Ready;
use holdfast_kernel::{Called, Error};
use holdfast_policy::Cidr;
use holdfast_wire::v1::from_launcher::Kind as Told;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, FromLauncher};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{oneshot, watch};

use crate::broker::{self, Counts, Ports, Waiting};
use crate::hold::{Hold, Parts};
use crate::holder::Origin;
use crate::inside::{Built, hand};
use crate::link::{self, Link};
use crate::pulse::{self, Pulse};
use crate::reading;
use crate::sessions::{Begun, Sessions, Unlaunched};
use crate::settle::settle;
use crate::stock;
use crate::tree;
use crate::worker::Worker;

/// Serves until the launcher is gone, or whoever its life depends on. Answers the process's status.
pub(crate) fn run(built: Built, keeper: Socket) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let served = runtime
        .called("start the runtime")
        .map_err(Fault::from)
        .and_then(|runtime| {
            runtime.spawn(settle());
            let served = runtime.block_on(serve(built, Arc::new(keeper)));
            // What it holds ends with the process: a keeper that finds its socket closed while this one lives has been
            // replaced by another.
            std::mem::forget(runtime);
            served
        });
    match served {
        Ok(()) => 0,
        Err(fault) => {
            tracing::error!(%fault, "the boundary ends");
            125
        }
    }
}

async fn serve(built: Built, keeper: Arc<Socket>) -> Result<(), Fault> {
    let (proved, proof) = oneshot::channel();
    let (root, hold, first, launcher) = start(built, &keeper, proved).await?;
    let gone = Ready::reading(launcher.pidfd)?;
    root.up()
        .await
        .map_err(|end| Fault::failed(format!("start its actors: {end:?}")))?;
    let gaps = match proof.await {
        Ok(gaps) if gaps.is_empty() => None,
        Ok(gaps) => Some(gaps.join("; ")),
        Err(_) => Some("the launcher is gone".to_owned()),
    };
    if let Some(message) = gaps {
        tracing::error!("the fence does not hold: {message}");
        let step = "prove the fence".to_owned();
        hand(&keeper, Kind::Fallen(v1::Fallen { step, message }), &[])?;
        return Ok(());
    }
    first();
    tokio::select! {
        () = hold.end.cancelled() => {}
        end = root.ended() => tracing::error!(?end, "the boundary's actors gave up"),
        _ = gone.readable() => tracing::info!("the launcher is gone, and with it the sandbox"),
    }
    Ok(())
}

/// Starts the boundary's actors. Answers what lets the first keeper attach, and the launcher's process.
async fn start(
    built: Built,
    keeper: &Arc<Socket>,
    proved: oneshot::Sender<Vec<String>>,
) -> Result<(Root, Arc<Hold>, impl FnOnce(), fork::Child), Fault> {
    let channel = Arc::new(Ready::new(Arc::new(built.channel))?);
    let mut tree = Tree::new(tree::boundary());
    let (lane, lanes) = watch::channel(None);
    let counts = Arc::new(Counts::default());
    let hold = Arc::new(Hold::new(Parts {
        sessions: Arc::new(Sessions::new(Arc::clone(&channel))),
        standing: v1::Standing {
            steps: built.steps,
            evidence: Some(built.evidence),
        },
        counts: Arc::clone(&counts),
        readers: tree.dynamic("boundary/sessions"),
        lookout: tree.lookout(),
        stock: Arc::new(built.stock),
        lane,
    }));
    let over = Arc::new(AtomicBool::new(false));
    tree.bind::<Launcher>(
        "boundary/launcher",
        LauncherArguments {
            channel,
            sessions: Arc::clone(&hold.sessions),
            pulse: Arc::clone(&hold.pulse),
            readers: hold.readers.clone(),
            proved: Arc::new(Mutex::new(Some(proved))),
            over: Arc::clone(&over),
        },
    );
    let ports = ports(&hold, built.ports, built.strays, built.listed);
    tree.bind::<Broker>(
        "boundary/broker",
        BrokerArguments {
            broker: broker::Arguments {
                listener: built.listener,
                lanes,
                ports: Arc::clone(&ports),
                launcher: built.launcher.pid.as_raw().unsigned_abs(),
                waiting: Arc::new(Mutex::new(Waiting::default())),
                proved: over,
                counts,
            },
            worker: Arc::new(built.worker),
        },
    );
    let guest = hold.welcome(Origin::Forked, Arc::clone(keeper));
    let standing = hold.standing.clone();
    tree.bind::<Link>(
        "boundary/service",
        link::Arguments {
            hold: Arc::clone(&hold),
            ports,
            on_link_loss: built.on_link_loss,
            lasts: built.life.lasts(),
        },
    );
    let root = tree
        .start(Seed::fresh(), observer(&hold))
        .await
        .map_err(|unfit| Fault::bug(unfit.to_string()))?;
    let first = move || {
        if let Some(guest) = guest {
            guest.post((Kind::Standing(standing), Vec::new()));
        }
    };
    Ok((root, hold, first, built.launcher))
}

/// The ports that are listened on: those that are `named`, that of the strays, and others on demand. The addresses in `hosts`
/// are the host's, wherever no program inside serves.
fn ports(hold: &Arc<Hold>, named: Vec<u16>, strays: Option<u16>, hosts: Vec<Cidr>) -> Arc<Ports> {
    let hold = Arc::clone(hold);
    let listen = move |port| hold.listen(port);
    let ports = Ports::new(named.into_iter().chain(strays), listen);
    let ports = ports.for_hosts(hosts, stock::serves);
    Arc::new(ports.with_strays(strays.is_some()))
}

/// Hears of each change in the tree, and has the keeper told.
fn observer(hold: &Arc<Hold>) -> impl Fn(&Change) + Send + Sync + use<> {
    let hold = Arc::clone(hold);
    move |change: &Change| {
        tracing::debug!(?change, "supervision");
        if let Some(changed) = tree::news(change) {
            hold.tell(changed);
        }
    }
}

/// Hears what the launcher tells.
struct Launcher;

#[derive(Clone)]
struct LauncherArguments {
    channel: Arc<Ready<Arc<Socket>>>,
    sessions: Arc<Sessions>,
    pulse: Arc<Pulse>,
    readers: Dynamic,
    proved: Arc<Mutex<Option<oneshot::Sender<Vec<String>>>>>,
    over: Arc<AtomicBool>,
}

impl Actor for Launcher {
    type Message = ();
    type Arguments = LauncherArguments;
    type State = ();

    async fn start(me: &Me<()>, arguments: LauncherArguments) -> Result<(), Fault> {
        let this = me.clone();
        if arguments.over.load(Ordering::Relaxed) {
            arguments.feel(me);
        }
        me.spawn(async move {
            while let Some((told, descriptor)) = arguments.hear().await? {
                if let Some(begun) = arguments.dispatch(&this, told, descriptor) {
                    this.spawn(attend(arguments.clone(), begun));
                }
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

    /// The throwaway child has come back.
    fn proven(&self, proof: v1::Proof) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(proved) = self.proved.lock().take() {
            let _ = proved.send(proof.gaps);
        }
    }

    /// Asks for signs of life from now on.
    fn feel(&self, me: &Me<()>) {
        let (pulse, sessions) = (Arc::clone(&self.pulse), Arc::clone(&self.sessions));
        let clock = me.clock().clone();
        me.spawn(async move {
            // One that cannot be asked is gone, and whoever hears it hears that.
            let _ = pulse::feel(&pulse, &sessions, &clock).await;
            Ok(())
        });
    }

    /// Answers a session that has begun.
    fn dispatch(&self, me: &Me<()>, told: Told, descriptor: Option<OwnedFd>) -> Option<Begun> {
        match told {
            Told::Proof(proof) => {
                self.proven(proof);
                // It answers nothing while it proves.
                self.feel(me);
            }
            Told::Pong(_) => self.pulse.heard(),
            Told::Started(started) => return self.sessions.started(started.session, descriptor),
            Told::NotStarted(refused) => self.sessions.refused(refused),
            Told::Ended(ended) => self.sessions.ended(ended),
            // The building is over when there is an actor to hear of it.
            Told::Built(_) | Told::BuildFailed(_) => {}
        }
        None
    }
}

/// Gives a session that has begun an actor that reads its output, and tells who asked for it.
async fn attend(arguments: LauncherArguments, mut begun: Begun) -> Result<(), Fault> {
    let (id, readers) = (begun.id, std::mem::take(&mut begun.readers));
    match reading::read(&arguments.readers, id, readers).await {
        Ok(()) => begun.tell(Ok(id)),
        Err(fault) => {
            begun.tell(Err(Unlaunched::too_many(fault.to_string())));
            arguments.sessions.signal(id, libc::SIGKILL, true).await?;
        }
    }
    Ok(())
}

/// Answers the filter's questions.
struct Broker;

#[derive(Clone)]
struct BrokerArguments {
    broker: broker::Arguments,
    /// Where it works. What a predecessor is at ends first, so that there is never more than one who receives.
    worker: Arc<Worker>,
}

impl Actor for Broker {
    type Message = ();
    type Arguments = BrokerArguments;
    type State = ();

    async fn start(me: &Me<()>, arguments: BrokerArguments) -> Result<(), Fault> {
        let BrokerArguments { broker, worker } = arguments;
        let (bell, mut lanes) = (Arc::new(Bell::new()?), broker.lanes.clone());
        me.spawn(async move {
            let _until_dropped = bell.leash();
            let heard = Arc::clone(&bell);
            let mut served = worker.give(move || broker::serve(broker, &heard));
            loop {
                tokio::select! {
                    served = &mut served => {
                        served.map_err(|_| Fault::bug("the broker panicked"))??;
                        return Err(Fault::last("nobody is left under the filter"));
                    }
                    Ok(()) = lanes.changed() => bell.ring(),
                }
            }
        });
        Ok(())
    }

    async fn handle(_: &Me<()>, (): (), (): &mut ()) -> Result<(), Fault> {
        Ok(())
    }
}
