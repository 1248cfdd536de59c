//! The broker: hears of every call that the filter asks about, and answers each.
//!
//! ```text
//!  heard ──┬── refused by the table ────────────────────────> errno, one record
//!          ├── local, or not to be looked at ───────────────> goes on in the kernel
//!          └── a TCP connect ── Attempt ──> Waiting ──┬── Verdict ──> goes on, or errno
//!                                                     ├── a signal ──> made again after it
//!                                                     └── gone ──────> forgotten
//! ```
//!
//! Nothing waits here: a call that waits for its verdict is an entry in a table, and the next call is heard at once.
//! Going on is safe, because the sandbox's network has no way out but the keeper's listeners.
//!
//! A keeper that is gone takes its lane with it and leaves the table. While there is no lane, connects are entered and
//! wait; the next keeper is told of every one that has no verdict yet, as of a fresh one.

pub(crate) mod caller;
mod line;
mod ports;
mod waiting;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_kernel::handoff::{Received, Socket};
use holdfast_kernel::look::{self, Thread};
use holdfast_kernel::notify::{Call, Heard, Listener};
use holdfast_kernel::ready::{Later as _, Ready};
use holdfast_kernel::{Error, Result};
use holdfast_wire::v1::from_keeper::Kind as Heeded;
use holdfast_wire::v1::{self, FromBroker, FromKeeper};
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use tokio::sync::watch;

use self::caller::Subject;
use self::line::Line;
pub use self::ports::Ports;
use self::ports::Unopened;
pub use self::waiting::Waiting;
use crate::fence::calls::{self, Refusal};

/// What the broker is born with; its parent keeps it, so that a new broker goes on where the old one stopped.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// Where the kernel asks.
    pub listener: Arc<Listener>,
    /// Where verdicts come from, while there is a keeper.
    pub lanes: watch::Receiver<Option<Lane>>,
    /// The ports that are listened on.
    pub ports: Arc<Ports>,
    /// The launcher, as this process numbers it: no workload's ancestor.
    pub launcher: u32,
    /// The calls that wait, and what has to be told: they outlive a broker that falls.
    pub waiting: Arc<Mutex<Waiting>>,
    /// Whether the proof is over: before that nothing but the proof makes calls, and being refused is its purpose.
    pub proved: Arc<AtomicBool>,
    /// What has been counted.
    pub counts: Arc<Counts>,
}

/// The way to one keeper.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The epoch that it was given with: another one for each attach.
    pub number: u64,
    /// The broker's end.
    pub socket: Arc<Socket>,
}

/// What the broker counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Calls heard.
    pub notifications: AtomicU64,
    /// Calls refused.
    pub denied: AtomicU64,
    /// Harmless races: the caller was gone.
    pub races: AtomicU64,
    /// Calls that could not be answered for a reason of our own.
    pub faults: AtomicU64,
}

/// The broker at work.
struct Broker {
    listener: Ready<Arc<Listener>>,
    lane: Option<Line>,
    arguments: Arguments,
}

/// Serves until nobody is left under the filter, which is the sandbox's end.
pub async fn serve(arguments: Arguments) -> Result<()> {
    let mut lanes = arguments.lanes.clone();
    lanes.mark_changed();
    let mut broker = Broker {
        listener: Ready::reading(Arc::clone(&arguments.listener))?,
        lane: None,
        arguments,
    };
    let mut patrol = tokio::time::interval(PATROL);
    patrol.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut patrols = false;
    loop {
        let (has_room, has_work) = broker.look_at_what_waits();
        if has_work && !patrols {
            patrol.reset();
        }
        // A broker that is not asked anything sleeps.
        patrols = has_work;
        tokio::select! {
            biased;
            Ok(()) = lanes.changed() => {
                let lane = lanes.borrow_and_update().clone();
                broker.take(lane)?;
            }
            // Verdicts are taken in any case: a keeper that could not give them would take no attempts either.
            heeded = broker.heed() => match heeded {
                Ok(heeded) => broker.obey(heeded)?,
                Err(error) if is_gone(&error) => broker.lose(),
                Err(error) => return Err(error),
            },
            sent = broker.send() => match sent {
                Ok(()) => broker.said()?,
                Err(error) if error.is_later() => broker.wait_for_room()?,
                Err(error) if is_gone(&error) => broker.lose(),
                Err(error) => return Err(error),
            },
            heard = broker.listener.read(|listener| hear(listener)), if has_room => {
                match heard? {
                    Some(call) => broker.handle(&call)?,
                    None => return Ok(()),
                }
            }
            _ = patrol.tick(), if patrols => broker.patrol()?,
        }
    }
}

impl Broker {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.arguments.waiting.lock()
    }

    /// Speaks over `lane` from now on.
    fn take(&mut self, lane: Option<Lane>) -> Result<()> {
        match lane {
            Some(Lane { number, socket }) => {
                self.lane = Some(Line::new(socket)?);
                self.waiting().speak(number);
            }
            None => self.lose(),
        }
        Ok(())
    }

    /// The keeper is gone. What was refused stays to be told; calls that wait are told to the next one.
    fn lose(&mut self) {
        self.lane = None;
        self.waiting().fall_silent();
    }

    /// The next word of the keeper, if there is one.
    async fn heed(&self) -> Result<Option<FromKeeper>> {
        match &self.lane {
            Some(lane) => lane.read(heed).await,
            None => std::future::pending().await,
        }
    }

    /// Tells the keeper, if there is one, what comes first, as soon as it has room; "not now" means that it has to be waited for.
    async fn send(&self) -> Result<()> {
        let first = self.waiting().first();
        match (&self.lane, first) {
            (Some(lane), told @ Some(_)) => {
                let bytes = FromBroker { kind: told }.encode_to_vec();
                lane.send(&bytes).await
            }
            (_, None) | (None, _) => std::future::pending().await,
        }
    }

    /// The keeper has what came first.
    fn said(&mut self) -> Result<()> {
        self.waiting().told();
        self.lane = self.lane.take().map(Line::roomy).transpose()?;
        Ok(())
    }

    /// The keeper has no room for what comes first.
    fn wait_for_room(&mut self) -> Result<()> {
        self.lane = self.lane.take().map(Line::full).transpose()?;
        Ok(())
    }

    /// Answers a call, or enters it until the keeper has.
    fn handle(&self, call: &Call) -> Result<()> {
        self.arguments
            .counts
            .notifications
            .fetch_add(1, Ordering::Relaxed);
        let thread = Thread::hold(call.tid);
        if let Some(refusal) = calls::refusal(call) {
            return self.refuse(call, refusal, thread.ok().as_ref());
        }
        if let Ok(thread) = thread
            && let Ok(Subject::Stream {
                cookie,
                address,
                blocking,
                timeout,
            }) = caller::subject(call, &thread)
            && self.arguments.ports.concern(address)
        {
            let caller = Some(caller::caller(&thread, self.arguments.launcher));
            // What has been read is the caller's only if the call still waits: a thread's number is used again.
            if !self.listener.inner().is_pending(call.id) {
                self.answered(false);
                return Ok(());
            }
            let attempt = v1::Attempt {
                id: call.id,
                cookie,
                address: octets(address.ip()),
                port: address.port().into(),
                blocking,
                timeout_us: timeout.map_or(0, micros),
                caller,
                thread: call.tid,
            };
            self.waiting().enter(call.tid, attempt);
            return Ok(());
        }
        // Not to be looked at, gone, or no business of a policy: the kernel answers, and what it lets through is judged
        // where it arrives.
        self.answered(self.listener.inner().let_go(call.id)?);
        Ok(())
    }

    /// Refuses a call that no policy allows; the keeper is told, so that it leaves a record.
    fn refuse(&self, call: &Call, refusal: Refusal, thread: Option<&Thread>) -> Result<()> {
        let caller = thread.map(|thread| caller::caller(thread, self.arguments.launcher));
        self.arguments.counts.denied.fetch_add(1, Ordering::Relaxed);
        self.answered(self.listener.inner().refuse(call.id, refusal.errno)?);
        if self.arguments.proved.load(Ordering::Relaxed) {
            self.waiting().refused(v1::Refused {
                syscall: refusal.name.to_owned(),
                detail: calls::detail(call, refusal.name),
                errno: refusal.errno,
                caller,
            });
        }
        Ok(())
    }

    /// Obeys a verdict.
    fn obey(&self, heeded: Option<FromKeeper>) -> Result<()> {
        let Some(FromKeeper {
            kind: Some(Heeded::Verdict(verdict)),
        }) = heeded
        else {
            return Ok(());
        };
        let Some(attempt) = self.waiting().settle(verdict.id) else {
            return Ok(());
        };
        let mut errno = verdict.errno;
        if verdict.capture_port != 0
            && let Some(destination) = attempt.destination()
            && let Err(unopened) = self.arguments.ports.open(destination)
        {
            errno = libc::EADDRNOTAVAIL;
            self.unheard(destination.port(), &unopened, errno, verdict.id);
        }
        let listener = self.listener.inner();
        if errno == 0 {
            self.answered(listener.let_go(verdict.id)?);
        } else {
            self.arguments.counts.denied.fetch_add(1, Ordering::Relaxed);
            self.answered(listener.refuse(verdict.id, errno)?);
        }
        Ok(())
    }

    /// An allowed connect fails, because nobody can listen where it leads; the keeper, which may have dialled for it, records it.
    fn unheard(&self, port: u16, unopened: &Unopened, errno: i32, id: u64) {
        let mut waiting = self.waiting();
        match unopened {
            Unopened::TooMany => {}
            Unopened::Refused(error) => {
                tracing::warn!(port, %error, "listen on demand");
                self.arguments.counts.faults.fetch_add(1, Ordering::Relaxed);
                waiting.unheard(ports::unheard_on(port, error.errno()));
            }
        }
        let detail = format!("connect(port {port}): {unopened}");
        waiting.gone(v1::Gone { id, errno, detail });
    }

    /// Looks after some of the calls that wait: their callers may be gone, or have a signal to handle.
    fn patrol(&self) -> Result<()> {
        let listener = self.listener.inner();
        let mut waiting = self.waiting();
        for (id, tid) in waiting.round() {
            if !listener.is_pending(id) || look::has_signal(tid).unwrap_or(false) {
                waiting.forget(id);
                self.answered(listener.interrupt(id)?);
            }
        }
        waiting.races(self.races());
        Ok(())
    }

    /// Whether one more call may be heard, and whether a patrol has anything to do: a call waits, or the keeper has to be told of
    /// races. Those are told by the patrol, many at a time: there may be thousands.
    fn look_at_what_waits(&self) -> (bool, bool) {
        let waiting = self.waiting();
        let has_work = waiting.has_calls() || waiting.owes_races(self.races());
        (waiting.has_room(), has_work)
    }

    fn races(&self) -> u64 {
        self.arguments.counts.races.load(Ordering::Relaxed)
    }

    fn answered(&self, in_time: bool) {
        if !in_time {
            self.arguments.counts.races.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The next call; `None` when nobody is left under the filter.
fn hear(listener: &Listener) -> Result<Option<Call>> {
    match listener.hear()? {
        Heard::Call(call) => Ok(Some(call)),
        Heard::Nothing => Err(Error::new("poll", libc::EAGAIN)),
        Heard::Over => Ok(None),
    }
}

/// The next word of the keeper.
fn heed(lane: &Socket) -> Result<Option<FromKeeper>> {
    let mut buffer = [0; 256];
    match lane.try_receive(&mut buffer)? {
        Received::Packet { length, .. } | Received::Exhausted { length } => {
            Ok(FromKeeper::decode(&buffer[..length]).ok())
        }
        Received::Closed => Err(Error::new("recvmsg of the lane", libc::EPIPE)),
    }
}

/// Whether the keeper at the other end of the lane is gone.
fn is_gone(error: &Error) -> bool {
    matches!(error.errno(), libc::EPIPE | libc::ECONNRESET)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How often the calls that wait are looked after.
const PATROL: Duration = Duration::from_millis(50);
