//! Answers the broker: one packet in, one judgement, one packet out.
//!
//! A workload's thread stands still inside `connect()` until the answer is there, so nothing here waits for anything else: an attempt is judged where
//! it is read, its dial is begun at once, and only what the dial cannot say at its first look is answered later. While the broker does not take
//! its answers, nothing more is read.
//!
//! For the same reason the lane has a thread of its own ([`apart`]): among the relays of a shared runtime an attempt waits for its turn, which
//! measured as 250 µs for a connect instead of 90. It waits in `poll(2)`, for two descriptors: a runtime of its own would be three more.

use super::attempt::{Caller, Unheard};
use super::book::{Attempted, Event};
use super::counters::bump;
use super::desk::{Answer, Cookies, Desk};
use holdfast_clock::Clock;
use holdfast_kernel::bell::Bell;
use holdfast_kernel::{Called, Error, Result};
use holdfast_policy::Identity;
use holdfast_wire::v1::{self, from_broker::Kind, from_keeper};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use prost::Message;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// What the broker tells that is no business of an attempt.
#[derive(Debug)]
pub enum Aside {
    /// What it counted.
    Races(v1::Races),
    /// A port that somebody asked for and nobody can listen on.
    Unheard(v1::Unheard),
}

/// Hears it.
pub type Asides = Arc<dyn Fn(Aside) + Send + Sync>;

/// Serves the keeper's end of the decision lane, a connected `SOCK_SEQPACKET` socket, on a thread of its own until the broker closes it.
/// Dropped, it ends the thread.
pub async fn apart(
    socket: Arc<UnixStream>,
    desk: Arc<Desk>,
    cookies: Arc<dyn Cookies>,
    asides: Asides,
) -> Result<()> {
    socket.set_nonblocking(true).called("fcntl")?;
    let bell = Arc::new(Bell::new()?);
    desk.ring(Arc::clone(&bell));
    let clerk = Clerk {
        desk,
        cookies,
        asides,
        outbox: VecDeque::new(),
        packet: vec![0; PACKET].into_boxed_slice(),
        reply: Vec::new(),
    };
    let _until_dropped = bell.leash();
    let (tell, told) = oneshot::channel();
    let work = move || {
        // Nobody may want to know any more.
        drop(tell.send(serve(&socket, clerk, &bell)));
    };
    let thread = thread::Builder::new().name("lane".to_owned());
    thread.stack_size(STACK).spawn(work).called("clone3")?;
    let served = told.await;
    served.unwrap_or_else(|_| Err(Error::new("lane thread, which panicked", 0)))
}

fn serve(socket: &UnixStream, mut clerk: Clerk, bell: &Bell) -> Result<()> {
    let clock = Clock::system();
    let mut tick = clock.now() + TICK;
    loop {
        let blocked = !clerk.flush(socket)?;
        let wanted = if blocked {
            PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        };
        let mut all = [
            PollFd::new(socket.as_fd(), wanted),
            PollFd::new(bell.as_fd(), PollFlags::POLLIN),
        ];
        // Whole milliseconds, and never less than is left.
        let patience = tick - clock.now() + Duration::from_millis(1);
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        match poll(&mut all, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(fault) => return Err(fault).called("poll"),
        }
        let [ready, rung] = all.map(|one| one.any().unwrap_or(true));
        if rung && !bell.hush() {
            return Ok(());
        }
        if clock.now() >= tick {
            clerk.desk.pass(&*clerk.cookies);
            tick = clock.now() + TICK;
        }
        if ready && !blocked && !clerk.read(socket)? {
            return Ok(());
        }
    }
}

/// Reads, judges and answers, as long as that is possible without waiting.
struct Clerk {
    desk: Arc<Desk>,
    cookies: Arc<dyn Cookies>,
    asides: Asides,
    outbox: VecDeque<Answer>,
    packet: Box<[u8]>,
    reply: Vec<u8>,
}

impl Clerk {
    /// Reads a packet if there is one. False: the broker has closed its end.
    fn read(&mut self, socket: &UnixStream) -> Result<bool> {
        match { socket }.read(&mut self.packet) {
            Ok(0) => return Ok(false),
            Ok(length) => self.hear(length),
            Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {}
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            Err(fault) if fault.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
            Err(fault) => return Err(fault).called("read of the decision lane"),
        }
        Ok(true)
    }

    fn hear(&mut self, length: usize) {
        let read = v1::FromBroker::decode(&self.packet[..length]);
        match read.ok().and_then(|message| message.kind) {
            Some(Kind::Attempt(attempt)) => self.attempt(attempt),
            Some(Kind::Gone(gone)) => {
                let left = self.desk.step(ended(gone));
                self.outbox.extend(left.answers);
            }
            Some(Kind::Refused(refused)) => self.desk.refused(refused),
            Some(Kind::Races(races)) => (self.asides)(Aside::Races(races)),
            Some(Kind::Unheard(unheard)) => (self.asides)(Aside::Unheard(unheard)),
            None => bump(&self.desk.counters.malformed),
        }
    }

    fn attempt(&mut self, attempt: v1::Attempt) {
        if self.desk.is_canary(&attempt, attempt.destination()) {
            let (call, errno, capture) = (attempt.id, 0, None);
            self.outbox.push_back(Answer {
                call,
                errno,
                capture,
            });
            return;
        }
        let attempted = attempted(attempt, self.desk.slot());
        let left = self.desk.step(Event::Attempted(attempted));
        self.outbox.extend(left.answers);
        if let Some(order) = left.dial {
            self.outbox.extend(self.desk.dial_ahead(order));
        }
        if left.short {
            self.desk.look_for_missing(&*self.cookies);
        }
    }

    /// Sends what is to be said. False: the broker has to take some of it first.
    fn flush(&mut self, socket: &UnixStream) -> Result<bool> {
        while let Some(answer) = self.outbox.pop_front().or_else(|| self.desk.next_errand()) {
            encode(answer, &mut self.reply);
            match { socket }.write(&self.reply) {
                Ok(_) => {}
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {
                    self.outbox.push_front(answer);
                    return Ok(false);
                }
                Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {
                    self.outbox.push_front(answer);
                }
                // The read says in order that the broker is gone.
                Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => {}
                Err(fault) => return Err(fault).called("write to the decision lane"),
            }
        }
        Ok(true)
    }
}

fn ended<H: super::book::Hands>(gone: v1::Gone) -> Event<H> {
    let v1::Gone {
        id: call,
        errno,
        detail,
    } = gone;
    if errno == 0 {
        Event::Gone { call }
    } else {
        let why = Unheard { errno, detail };
        Event::Unheard { call, why }
    }
}

fn attempted<H>(attempt: v1::Attempt, slot: Option<H::Slot>) -> Attempted<H>
where
    H: super::book::Hands,
{
    // An address that is none is as good as one that could not be read: the kernel will say what it makes of it.
    let hint = attempt.destination();
    let v1::Attempt {
        id,
        cookie,
        blocking,
        timeout_us,
        caller,
        thread,
        ..
    } = attempt;
    let caller = caller.unwrap_or_default();
    let identity = if caller.observed {
        Identity::Observed {
            executable: caller.executable,
            ancestors: caller.ancestors,
        }
    } else {
        Identity::Unobservable
    };
    Attempted {
        call: id,
        thread: (thread != 0).then_some(thread),
        cookie: NonZeroU64::new(cookie),
        hint,
        blocking,
        patience: (timeout_us > 0).then(|| Duration::from_micros(timeout_us)),
        caller: Caller {
            identity,
            pid: Some(caller.pid).filter(|pid| *pid != 0),
        },
        slot,
    }
}

fn encode(answer: Answer, reply: &mut Vec<u8>) {
    let Answer {
        call,
        errno,
        capture,
    } = answer;
    let verdict = v1::Verdict {
        id: call,
        errno,
        capture_port: capture.map_or(0, u32::from),
    };
    reply.clear();
    let message = v1::FromKeeper {
        kind: Some(from_keeper::Kind::Verdict(verdict)),
    };
    // A vector grows as needed, so there is always room.
    let _ = message.encode(reply);
}

/// The longest packet: a caller with all its ancestors.
pub const PACKET: usize = 64 << 10;
/// The lane's thread calls nothing that is deep.
const STACK: usize = 512 << 10;
/// How often attempts whose connection did not come are looked for.
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
