//! What every keeper is handed: the sockets of the sandbox's network, which outlive them all.
//!
//! The boundary keeps one descriptor of each listener and of the names' sockets. So a connect waits in the backlog while no
//! keeper is there, and how many descriptors are open here does not depend on how many keepers there have been.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_kernel::descriptors::is_exhausted;
use holdfast_kernel::diag::Diag;
use holdfast_kernel::handoff::{self, Socket};
use holdfast_kernel::listen;
use holdfast_kernel::netlink::loopback::Own;
use holdfast_kernel::netlink::strays;
use holdfast_kernel::{Called, Result};
use holdfast_policy::Cidr;
use holdfast_wire::v1;
use holdfast_wire::v1::handoff::Kind;
use parking_lot::Mutex;

/// One message for a keeper, with its descriptors.
pub(crate) type Parcel = (Kind, Vec<Arc<OwnedFd>>);

/// The sockets of the sandbox's network.
#[derive(Debug)]
pub(crate) struct Stock {
    listeners: Mutex<Vec<(u16, Arc<OwnedFd>)>>,
    names: [Arc<OwnedFd>; 2],
}

impl Stock {
    /// Opens the names' sockets in this network namespace; no listener yet.
    pub(crate) fn open() -> Result<Self> {
        let datagrams = listen::udp(listen::DOMAIN)?;
        let streams = listen::tcp(listen::DOMAIN)?;
        Ok(Self {
            listeners: Mutex::default(),
            names: [Arc::new(datagrams.into()), Arc::new(streams.into())],
        })
    }

    /// Listens on `port` of every address. Answers what the present keeper has to be handed.
    pub(crate) fn listen(&self, port: u16) -> Result<Parcel> {
        let listener = Arc::new(OwnedFd::from(listen::tcp(port)?));
        self.listeners.lock().push((port, Arc::clone(&listener)));
        Ok(parcel(port, listener))
    }

    /// Listens for connections to ports on which nobody listens: those of programs that nobody may look at. Answers the port of its
    /// own that this takes; `None` where the kernel cannot lead them there.
    pub(crate) fn take_strays(&self, own: Own, listed: &[Cidr]) -> Result<Option<u16>> {
        let listener = listen::transparent()?;
        let port = listener.local_addr().called("getsockname")?.port();
        let led: Vec<_> = listed.iter().map(|it| (it.base(), it.length())).collect();
        match strays::lead(port, own, &led) {
            Ok(()) => {
                let listener = Arc::new(OwnedFd::from(listener));
                self.listeners.lock().push((port, listener));
                Ok(Some(port))
            }
            Err(error) if is_exhausted(error.errno()) => Err(error),
            Err(error) => {
                tracing::info!(%error, "a program that nobody may look at reaches the ports that rules name, and no other");
                Ok(None)
            }
        }
    }

    /// The listener on `port`, for a keeper that has missed it.
    pub(crate) fn listener(&self, port: u16) -> Option<Parcel> {
        let listeners = self.listeners.lock();
        let found = listeners.iter().find(|(open, _)| *open == port);
        found.map(|(port, listener)| parcel(*port, Arc::clone(listener)))
    }

    /// Everything for a keeper that has attached: its end of a fresh lane among it. Answers the broker's end, too.
    pub(crate) fn parcels(&self) -> Result<(Vec<Parcel>, Socket)> {
        let (ours, theirs) = handoff::pair()?;
        // What another keeper has asked of such a socket is no answer for this one, so it is opened anew.
        let diag = Diag::unconnected()?;
        let listeners = self.listeners.lock();
        let mut parcels: Vec<Parcel> = listeners
            .iter()
            .map(|(port, listener)| parcel(*port, Arc::clone(listener)))
            .collect();
        parcels.push((Kind::Names(v1::Names {}), self.names.to_vec()));
        parcels.push((Kind::Diag(v1::Diag {}), vec![Arc::new(diag)]));
        parcels.push((Kind::Lane(v1::Lane {}), vec![Arc::new(theirs.into())]));
        Ok((parcels, ours))
    }
}

/// Whether a program inside listens at `address`. Where that cannot be told, none does.
pub(crate) fn serves(address: SocketAddr) -> bool {
    let diag = Diag::unconnected().map(Diag::from);
    let found = diag.and_then(|mut diag| diag.is_listened_on(address));
    found.unwrap_or_else(|error| {
        tracing::warn!(%address, %error, "look for a listener inside");
        false
    })
}

fn parcel(port: u16, listener: Arc<OwnedFd>) -> Parcel {
    (
        Kind::Listener(v1::Listener { port: port.into() }),
        vec![listener],
    )
}
