//! The broker: hears of every call that the filter asks about, and answers each.
//!
//! ```text
//!  heard ──┬── refused by the table ────────────────────────> errno, one record
//!          ├── local, or not to be looked at ───────────────> goes on in the kernel
//!          └── a TCP connect ── Attempt ──> Waiting ──┬── Verdict ──> goes on, or errno
//!                                                     ├── a signal ──> goes on, Withheld ── Verdict ──> connects, or fails
//!                                                     └── gone ──────> forgotten
//! ```
//!
//! Nothing waits here: a call that waits for its verdict is an entry in a table, and the next call is heard at once.
//! Going on is safe, because the sandbox's network has no way out but the keeper's listeners.
//!
//! Until a call is heard, a signal makes the kernel give it up: the caller gets `EINTR` for a connect that was never under
//! way. So the broker has a thread of its own that waits in `poll(2)`, where the kernel wakes it on the caller's own core
//! (through epoll it does not), and every call is heard before the first one is handled.
//!
//! A keeper that is gone takes its lane with it and leaves the table. While there is no lane, connects are entered and
//! wait; the next keeper is told of every one that has no verdict yet, as of a fresh one.

pub(crate) mod caller;
mod patrol;
mod ports;
mod waiting;

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_actor::{Clock, Moment};
use holdfast_kernel::bell::Bell;
use holdfast_kernel::handoff::{Received, Socket};
use holdfast_kernel::look::Thread;
use holdfast_kernel::notify::{Call, Listener};
use holdfast_kernel::ready::Later as _;
use holdfast_kernel::{Called, Error, Result};
use holdfast_wire::v1::from_keeper::Kind as Heeded;
use holdfast_wire::v1::{self, FromBroker, FromKeeper};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use tokio::sync::watch;

use self::caller::Subject;
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
    lane: Option<Arc<Socket>>,
    arguments: Arguments,
}

/// What there is to do.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bell: PollFlags,
    lane: PollFlags,
    listener: PollFlags,
}

/// Serves on this thread until nobody is left under the filter, which is the sandbox's end, or until `bell` says so. It is
/// rung when there is another lane.
pub fn serve(mut arguments: Arguments, bell: &Bell) -> Result<()> {
    let clock = Clock::system();
    arguments.lanes.mark_changed();
    let mut broker = Broker {
        lane: None,
        arguments,
    };
    broker.follow();
    let mut patrol: Option<Moment> = None;
    loop {
        let is_full = !broker.tell()?;
        // A broker that is not asked anything sleeps.
        let has_work = broker.has_work();
        patrol = has_work.then(|| patrol.unwrap_or_else(|| clock.now() + PATROL));
        let seen = broker.wait(bell, is_full, patrol.map(|due| due - clock.now()))?;
        if seen.bell.intersects(PollFlags::POLLIN) && !bell.hush() {
            return Ok(());
        }
        // Before anything is told or heeded: a keeper that is fenced decides nothing more.
        broker.follow();
        if seen.listener.intersects(PollFlags::POLLIN) {
            broker.hear()?;
        } else if !broker.handle_next()? && !seen.listener.is_empty() {
            return Ok(());
        }
        if seen.lane.intersects(!PollFlags::POLLOUT) {
            broker.heed()?;
        }
        if patrol.is_some_and(|due| due <= clock.now()) {
            broker.patrol()?;
            patrol = None;
        }
    }
}

impl Broker {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.arguments.waiting.lock()
    }

    /// Waits until there is something to do, for `patience` at most.
    fn wait(&self, bell: &Bell, is_full: bool, patience: Option<Duration>) -> Result<Seen> {
        let (bell, nothing) = (bell.as_fd(), PollFlags::empty());
        let (has_room, has_heard) = {
            let waiting = self.waiting();
            (waiting.has_room(), waiting.has_heard())
        };
        let (lane, of_lane) = match &self.lane {
            // Verdicts are taken in any case: a keeper that could not give them would take no attempts either.
            Some(lane) if is_full => (lane.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT),
            Some(lane) => (lane.as_fd(), PollFlags::POLLIN),
            None => (bell, nothing),
        };
        let (listener, of_listener) = if has_room {
            (self.arguments.listener.as_fd(), PollFlags::POLLIN)
        } else {
            (bell, nothing)
        };
        let mut all = [
            PollFd::new(bell, PollFlags::POLLIN),
            PollFd::new(lane, of_lane),
            PollFd::new(listener, of_listener),
        ];
        let patience = match patience {
            _ if has_heard => PollTimeout::ZERO,
            // Whole milliseconds, and never less than is left.
            Some(left) => {
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO)
            }
            None => PollTimeout::NONE,
        };
        match poll(&mut all, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(fault) => return Err(fault).called("poll"),
        }
        let [bell, lane, listener] = all.map(|one| one.revents().unwrap_or(nothing));
        Ok(Seen {
            bell,
            lane,
            listener,
        })
    }

    /// Speaks over the lane of the present keeper from now on.
    fn follow(&mut self) {
        // Whoever gives lanes may be gone; then there is no other one.
        if !self.arguments.lanes.has_changed().unwrap_or(false) {
            return;
        }
        let lane = self.arguments.lanes.borrow_and_update().clone();
        match lane {
            Some(Lane { number, socket }) => {
                self.lane = Some(socket);
                self.waiting().speak(number);
            }
            None => self.lose(),
        }
    }

    /// The keeper is gone. What was refused stays to be told; calls that wait are told to the next one.
    fn lose(&mut self) {
        self.lane = None;
        self.waiting().fall_silent();
    }

    /// Tells the keeper, if there is one, what it has to be told. False: it has to take some of it first.
    fn tell(&mut self) -> Result<bool> {
        while let Some(lane) = &self.lane {
            let first = self.waiting().first();
            if first.is_none() {
                break;
            }
            let bytes = FromBroker { kind: first }.encode_to_vec();
            match lane.try_send(&bytes, &[]) {
                Ok(()) => self.waiting().told(),
                Err(error) if error.is_later() => return Ok(false),
                Err(error) if is_gone(&error) => self.lose(),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes one word of the keeper.
    fn heed(&mut self) -> Result<()> {
        let Some(lane) = &self.lane else {
            return Ok(());
        };
        match heed(lane) {
            Ok(heeded) => self.obey(heeded),
            Err(error) if error.is_later() => Ok(()),
            Err(error) if is_gone(&error) => {
                self.lose();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes a call from the kernel, which from now on holds back the signals that do not kill its caller.
    fn hear(&self) -> Result<()> {
        if let Some(call) = self.arguments.listener.take()? {
            self.waiting().hear(call);
        }
        Ok(())
    }

    /// Handles the call that was heard first. False: there is none.
    fn handle_next(&self) -> Result<bool> {
        let next = self.waiting().next_heard();
        match next {
            Some(call) => self.handle(&call).map(|()| true),
            None => Ok(false),
        }
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
            if !self.arguments.listener.is_pending(call.id) {
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
            self.waiting().enter(caller::descriptor(call), attempt);
            return Ok(());
        }
        // Not to be looked at, gone, or no business of a policy: the kernel answers, and what it lets through is judged
        // where it arrives.
        self.answered(self.arguments.listener.let_go(call.id)?);
        Ok(())
    }

    /// Refuses a call that no policy allows; the keeper is told, so that it leaves a record.
    fn refuse(&self, call: &Call, refusal: Refusal, thread: Option<&Thread>) -> Result<()> {
        let caller = thread.map(|thread| caller::caller(thread, self.arguments.launcher));
        self.arguments.counts.denied.fetch_add(1, Ordering::Relaxed);
        // Asked for first: a proof that has its answer may be over.
        let is_proved = self.arguments.proved.load(Ordering::Relaxed);
        self.answered(self.arguments.listener.refuse(call.id, refusal.errno)?);
        if is_proved {
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
        let Some((attempt, withheld)) = self.waiting().settle(verdict.id) else {
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
        if errno != 0 {
            self.arguments.counts.denied.fetch_add(1, Ordering::Relaxed);
        }
        let listener = &self.arguments.listener;
        match withheld {
            Some(socket) => self.end(&socket, errno == 0),
            None if errno == 0 => self.answered(listener.let_go(verdict.id)?),
            None => self.answered(listener.refuse(verdict.id, errno)?),
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

    /// Whether a patrol has anything to do: a call waits, or the keeper has to be told of races. Those are told by the patrol,
    /// many at a time: there may be thousands.
    fn has_work(&self) -> bool {
        let waiting = self.waiting();
        waiting.has_calls() || waiting.owes_races(self.races())
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
