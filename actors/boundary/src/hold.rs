//! What the boundary is to its keepers: who holds it, and what the holder is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_actor::{Clock, Dynamic, Lookout};
use holdfast_kernel::Result;
use holdfast_kernel::descriptors::{self, Ledger};
use holdfast_kernel::handoff::Socket;
use holdfast_wire::v1;
use holdfast_wire::v1::handoff::Kind;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::broker::{Counts, Lane};
use crate::guest::Guest;
use crate::holder::{Holder, Origin, Refusal, Seat};
use crate::loss::Heard;
use crate::pulse::Pulse;
use crate::sessions::Sessions;
use crate::stock::Stock;

/// Everything that outlives a keeper.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) sessions: Arc<Sessions>,
    /// How the fence was built, and what was measured.
    pub(crate) standing: v1::Standing,
    pub(crate) counts: Arc<Counts>,
    /// When the keeper gave its last sign of life.
    pub(crate) heard: Heard,
    pub(crate) clock: Clock,
    /// The actors that read the sessions.
    pub(crate) readers: Dynamic,
    /// Sees the boundary's own tree.
    pub(crate) lookout: Lookout,
    /// The launcher's signs of life.
    pub(crate) pulse: Arc<Pulse>,
    /// Descriptors are promised before they are opened.
    pub(crate) ledger: Arc<Ledger>,
    /// Cancelled when the sandbox shall end.
    pub(crate) end: CancellationToken,
    pub(crate) stock: Arc<Stock>,
    /// Where the broker finds the lane of the present holder.
    pub(crate) lane: watch::Sender<Option<Lane>>,
    holder: Mutex<Holder>,
    guests: Mutex<Vec<Arc<Guest>>>,
    next: AtomicU64,
}

/// The parts that others share.
pub(crate) struct Parts {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) standing: v1::Standing,
    pub(crate) counts: Arc<Counts>,
    pub(crate) readers: Dynamic,
    pub(crate) lookout: Lookout,
    pub(crate) stock: Arc<Stock>,
    pub(crate) lane: watch::Sender<Option<Lane>>,
}

/// Why a keeper could not be given the boundary.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unheld {
    /// It may not have it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What it has to be given cannot be had now; nothing has changed.
    #[error("open what a keeper is given: {}", .0.told())]
    Exhausted(#[from] holdfast_kernel::Error),
}

impl Hold {
    /// Nobody's, so far.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            sessions,
            standing,
            counts,
            readers,
            lookout,
            stock,
            lane,
        } = parts;
        Self {
            sessions,
            standing,
            counts,
            heard: Heard::default(),
            clock: Clock::tokio(),
            readers,
            lookout,
            pulse: Arc::default(),
            ledger: Arc::default(),
            end: CancellationToken::new(),
            stock,
            lane,
            holder: Mutex::default(),
            guests: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// One who comes with `socket`; `None` when too many are there.
    pub(crate) fn welcome(&self, origin: Origin, socket: Arc<Socket>) -> Option<Arc<Guest>> {
        let mut guests = self.guests.lock();
        if guests.len() >= MOST_GUESTS {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let guest = Arc::new(Guest::new(Seat { number, origin }, socket));
        guests.push(Arc::clone(&guest));
        Some(guest)
    }

    /// Those who are there.
    pub(crate) fn guests(&self) -> Vec<Arc<Guest>> {
        self.guests.lock().clone()
    }

    /// How often the boundary went from one keeper to the next.
    pub(crate) fn takeovers(&self) -> u64 {
        self.holder.lock().takeovers()
    }

    /// Gives the boundary to `guest`, which is then handed everything; its predecessor is cut off.
    pub(crate) fn attach(
        &self,
        guest: &Guest,
        epoch: u64,
        token: &[u8],
    ) -> std::result::Result<(), Unheld> {
        // Nothing is listened on between what is opened for it and its hold.
        let guests = self.guests.lock();
        // Opened first: a shortage must not cost the holder its hold.
        let (parcels, lane) = self.stock.parcels()?;
        let fenced = self.holder.lock().attach(guest.seat, epoch, token)?;
        guest.attached();
        if let Some(number) = fenced {
            tracing::info!(epoch, "a keeper takes over, its predecessor is fenced");
            if let Some(old) = guests.iter().find(|guest| guest.seat.number == number) {
                old.dismiss();
            }
        } else {
            tracing::info!(epoch, "a keeper holds the boundary");
        }
        for parcel in parcels {
            guest.post(parcel);
        }
        guest.post((Kind::Standing(self.standing.clone()), Vec::new()));
        self.lane.send_replace(Some(Lane {
            number: epoch,
            socket: Arc::new(lane),
        }));
        self.heard.note(self.clock.now());
        Ok(())
    }

    /// Whether nobody has ever attached.
    pub(crate) fn is_new(&self) -> bool {
        self.holder.lock().is_new()
    }

    /// Whether `guest` holds the boundary.
    pub(crate) fn check(&self, guest: &Guest) -> std::result::Result<(), Refusal> {
        self.holder
            .lock()
            .check(guest.seat.number, guest.is_attached())
    }

    /// `guest` is gone, whoever ended it.
    pub(crate) fn leave(&self, guest: &Guest) {
        guest.dismiss();
        self.guests
            .lock()
            .retain(|other| other.seat.number != guest.seat.number);
        if self.holder.lock().vacate(guest.seat.number) {
            tracing::warn!("the keeper is gone: connects wait for the next one");
            self.lane.send_replace(None);
        }
    }

    /// How many descriptors this process has open; not told when that cannot be found out.
    pub(crate) fn descriptors(&self) -> Option<v1::Descriptors> {
        let seen = descriptors::observe().ok()?;
        Some(v1::Descriptors {
            limit: seen.limit,
            used: seen.used,
            high_water: seen.high_water,
            shed: self.ledger.refused(),
            waiting: 0,
        })
    }

    /// Listens on `port` too, for the present holder and all that follow.
    pub(crate) fn listen(&self, port: u16) -> Result<()> {
        let guests = self.guests.lock();
        let parcel = self.stock.listen(port)?;
        if let Some(holder) = guests.iter().find(|guest| self.check(guest).is_ok()) {
            holder.post(parcel);
        }
        Ok(())
    }

    /// Tells the holder of a change in the boundary's tree.
    pub(crate) fn tell(&self, changed: v1::Changed) {
        let guests = self.guests.lock();
        if let Some(holder) = guests.iter().find(|guest| self.check(guest).is_ok()) {
            holder.tell(Kind::Changed(changed));
        }
    }

    /// Hands `guest` the listener on `port` once more, if that is open and it holds the boundary.
    pub(crate) fn listener(&self, guest: &Guest, port: u16) {
        if self.check(guest).is_ok()
            && let Some(parcel) = self.stock.listener(port)
        {
            guest.post(parcel);
        }
    }
}

/// How many keepers may be there at a time: one holds, another takes over, and who does not attach has to go.
const MOST_GUESTS: usize = 8;
