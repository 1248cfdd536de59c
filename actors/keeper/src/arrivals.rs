//! What the boundary hands over: the news that the fence stands or has fallen, and after the attach its sockets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_actor::Fault;
use holdfast_kernel::handoff::{Received, Socket};
use holdfast_kernel::ready::Ready;
use holdfast_wire::v1::handoff::Kind;
use holdfast_wire::v1::{self, Handoff};
use prost::Message;

/// Everything a keeper works with, once the fence stands.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Listening sockets of the sandbox's network, with their ports.
    pub(crate) listeners: Vec<(u16, OwnedFd)>,
    /// UDP and TCP on port 53.
    pub(crate) names: (OwnedFd, OwnedFd),
    /// Answers for the sandbox's sockets.
    pub(crate) diag: OwnedFd,
    /// The decision lane.
    pub(crate) lane: OwnedFd,
    /// How the fence was built, and what was measured.
    pub(crate) standing: v1::Standing,
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Unbuilt {
    /// A step of the fence failed; nothing was started.
    #[error("{step}: {message}")]
    Fence {
        /// What was being done.
        step: String,
        /// Why it failed.
        message: String,
    },
    /// The boundary ended without a word.
    #[error("the boundary ended before the fence stood")]
    Gone,
    /// The keeper's own half could not be started.
    #[error("start the keeper: {0}")]
    Keeper(Fault),
    /// The boundary refuses this keeper.
    #[error(transparent)]
    Link(#[from] crate::link::Unlinked),
}

impl From<Fault> for Unbuilt {
    fn from(fault: Fault) -> Self {
        Self::Keeper(fault)
    }
}

/// Waits until the boundary can be attached to.
pub(crate) async fn stands(handoff: &Ready<Arc<Socket>>) -> Result<(), Unbuilt> {
    loop {
        match next(handoff).await?.ok_or(Unbuilt::Gone)?.0 {
            Kind::Standing(_) => return Ok(()),
            Kind::Fallen(v1::Fallen { step, message }) => {
                return Err(Unbuilt::Fence { step, message });
            }
            // Nothing else comes before.
            Kind::Listener(_)
            | Kind::Names(_)
            | Kind::Diag(_)
            | Kind::Lane(_)
            | Kind::Dial(_)
            | Kind::Mapped(_)
            | Kind::Changed(_) => {}
        }
    }
}

/// Takes what the boundary hands over to the keeper that has attached.
pub(crate) async fn gather(handoff: &Ready<Arc<Socket>>) -> Result<Arrivals, Unbuilt> {
    let (mut listeners, mut names, mut diag, mut lane) = (Vec::new(), None, None, None);
    loop {
        let (kind, descriptors) = next(handoff).await?.ok_or(Unbuilt::Gone)?;
        let mut descriptors = descriptors.into_iter();
        let mut take = || {
            descriptors
                .next()
                .ok_or_else(|| Fault::exhausted("receive a socket: too many open files"))
        };
        match kind {
            Kind::Listener(listener) => listeners.push((port(listener), take()?)),
            Kind::Names(_) => names = Some((take()?, take()?)),
            Kind::Diag(_) => diag = Some(take()?),
            Kind::Lane(_) => lane = Some(take()?),
            Kind::Fallen(v1::Fallen { step, message }) => {
                return Err(Unbuilt::Fence { step, message });
            }
            Kind::Standing(standing) => {
                let (Some(names), Some(diag), Some(lane)) = (names, diag, lane) else {
                    return Err(Fault::bug("the boundary stands without its sockets").into());
                };
                return Ok(Arrivals {
                    listeners,
                    names,
                    diag,
                    lane,
                    standing,
                });
            }
            // These go the other way; how its actors stand comes with the first beat.
            Kind::Dial(_) | Kind::Mapped(_) | Kind::Changed(_) => {}
        }
    }
}

/// What comes while the keeper serves.
pub(crate) enum Later {
    /// A listener that was opened on demand, by its port; without its socket when there was no descriptor for it.
    Listener(u16, Option<OwnedFd>),
    /// Something happened to an actor of the boundary.
    Changed(v1::Changed),
}

/// What comes next while the keeper serves; `None` when the boundary is gone.
pub(crate) async fn later(handoff: &Ready<Arc<Socket>>) -> Result<Option<Later>, Fault> {
    while let Some((kind, descriptors)) = next(handoff).await? {
        match kind {
            Kind::Listener(listener) => {
                let socket = descriptors.into_iter().next();
                return Ok(Some(Later::Listener(port(listener), socket)));
            }
            Kind::Changed(changed) => return Ok(Some(Later::Changed(changed))),
            // Nothing else comes afterwards.
            Kind::Names(_)
            | Kind::Diag(_)
            | Kind::Lane(_)
            | Kind::Standing(_)
            | Kind::Fallen(_)
            | Kind::Dial(_)
            | Kind::Mapped(_) => {}
        }
    }
    Ok(None)
}

/// What comes next. Of what this process had no descriptors for only the word has come.
async fn next(handoff: &Ready<Arc<Socket>>) -> Result<Option<(Kind, Vec<OwnedFd>)>, Fault> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let received = handoff
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
        if let Some(kind) = Handoff::decode(&buffer[..length])
            .ok()
            .and_then(|told| told.kind)
        {
            return Ok(Some((kind, descriptors)));
        }
    }
}

/// Ports travel as 32 bits.
fn port(listener: v1::Listener) -> u16 {
    u16::try_from(listener.port).unwrap_or_default()
}
