//! What the book is told and what it asks for.

use super::super::attempt::{Call, Caller, Cookie, Failure, Grant, Report, Serial, Unheard};
use holdfast_observability::Place;
use holdfast_policy::Destination;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

/// What the shell holds and the book only passes on.
pub trait Hands: Debug {
    /// A dialled connection.
    type Upstream: Debug;
    /// An accepted connection that waits for its upstream.
    type Waiter: Debug;
    /// Room for one audit record.
    type Slot: Debug;

    /// Names the room.
    fn place(slot: &Self::Slot) -> Place;
}

/// What happened.
#[derive(Debug)]
pub enum Event<H: Hands> {
    /// The broker saw a `connect()`.
    Attempted(Attempted<H>),
    /// A dial brought a connection.
    Dialled {
        /// Of which dial.
        serial: Serial,
        /// The connection.
        upstream: H::Upstream,
        /// Where it leads.
        address: SocketAddr,
    },
    /// A dial brought none.
    DialFailed {
        /// Which dial.
        serial: Serial,
        /// Why.
        failure: Failure,
    },
    /// A dial takes time, and its caller does not want to wait.
    Released {
        /// Which dial.
        serial: Serial,
    },
    /// There was no room to dial ahead: the connection waits in the backlog, and is dialled for when it is accepted.
    Deferred {
        /// Which dial.
        serial: Serial,
    },
    /// A connection arrived.
    Accepted(Accepted<H>),
    /// A connection arrived that was reset already: it needs nothing, and nobody can tell any more whose it was.
    Reset {
        /// Where to, as the kernel has it.
        destination: SocketAddr,
    },
    /// The kernel knows no socket of these attempts, which were [`doubtful`](super::Book::doubtful) before it was asked.
    Missing {
        /// Which attempts.
        serials: Vec<Serial>,
    },
    /// The caller of a pending `connect()` was interrupted or is gone.
    Gone {
        /// Which call.
        call: Call,
    },
    /// A call that was let go failed all the same.
    Unheard {
        /// Which call.
        call: Call,
        /// Why.
        why: Unheard,
    },
    /// An accepted connection ended, relayed or not.
    Closed {
        /// Which attempt.
        serial: Serial,
    },
    /// Time has passed, and every connection that has come was accepted: what is overdue does not come.
    Passed,
    /// Time has passed while connections wait in the backlog: what is overdue may be among them. It keeps its caller, and gives back its upstream.
    Held,
    /// Another policy is in force.
    Revised,
    /// The sandbox has ended: nothing that is pending comes any more.
    Over,
}

/// An announcement.
#[derive(Debug)]
pub struct Attempted<H: Hands> {
    /// The call to answer.
    pub call: Call,
    /// The thread that makes it, if that is known.
    pub thread: Option<u32>,
    /// The caller's socket, if it could be looked at.
    pub cookie: Option<Cookie>,
    /// Where to, if the caller's memory could be read.
    pub hint: Option<SocketAddr>,
    /// Does the caller wait for the outcome?
    pub blocking: bool,
    /// How long it is willing to wait.
    pub patience: Option<Duration>,
    /// Who.
    pub caller: Caller,
    /// Room for the record; without it nothing is allowed.
    pub slot: Option<H::Slot>,
}

/// An arrival.
#[derive(Debug)]
pub struct Accepted<H: Hands> {
    /// The workload's socket, if the kernel still knows it.
    pub cookie: Option<Cookie>,
    /// Where to, as the kernel has it.
    pub destination: SocketAddr,
    /// The connection.
    pub waiter: H::Waiter,
    /// Room for the record, used if the arrival was not announced.
    pub slot: Option<H::Slot>,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command<H: Hands> {
    /// Let the call continue (0) or fail.
    Answer {
        /// Which call.
        call: Call,
        /// 0, or what it fails with.
        errno: i32,
        /// A listener on this port must stand before the call continues.
        capture: Option<u16>,
    },
    /// Note what will be owed, then connect to the target under the grant, and tell how it went.
    Dial(Dial),
    /// Nobody waits for this dial any more.
    Cancel(Serial),
    /// The accepted connection waits for a dial that is under way.
    Await(Serial),
    /// Carry bytes between the two.
    Relay {
        /// Which attempt; to be told when it closes.
        serial: Serial,
        /// The accepted connection.
        waiter: H::Waiter,
        /// The dialled one.
        upstream: H::Upstream,
    },
    /// Reset the accepted connection.
    Refuse(H::Waiter),
    /// Reset an open connection on both sides.
    Close(Serial),
    /// Write the audit record.
    Record {
        /// The room it was promised; none for a refusal, which needs no promise.
        slot: Option<H::Slot>,
        /// What to write.
        report: Box<Report>,
    },
}

/// An order to dial.
#[derive(Debug, Clone)]
pub struct Dial {
    /// To be told with the outcome.
    pub serial: Serial,
    /// Name or address.
    pub target: Destination,
    /// The address that stood for it: gives the port, and for a name the family.
    pub destination: SocketAddr,
    /// Under which rule.
    pub grant: Grant,
    /// How long the caller waits.
    pub patience: Option<Duration>,
    /// Who waits.
    pub waiting: Waiting,
    /// The room for its record.
    pub place: Place,
    /// What is on record if this process does not live to see the outcome.
    pub owed: Box<Report>,
}

/// Who waits for a dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// A caller inside `connect()`.
    Blocked,
    /// A caller who wants an answer at once: [`Event::Released`] when there is none yet.
    Impatient,
    /// An accepted connection.
    Connected,
}

/// How often what is rare has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attempts that found the book full.
    pub crowded: u64,
    /// Connections that arrived elsewhere than announced.
    pub races: u64,
    /// Connections that nobody had announced.
    pub unannounced: u64,
    /// Attempts whose connection did not come in time.
    pub expired: u64,
    /// Attempts whose connection, as the kernel said, could not come any more.
    pub missing: u64,
}
