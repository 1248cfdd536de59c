//! The listeners of a sandbox: those that its policy names from the start, and those that are opened on demand.
//!
//! ```text
//!  handed over ──┬── with its socket ──────────────────────────> a listener
//!                └── without: no descriptor was free ──> missed ── asked for, with backoff ──> handed over
//! ```
//!
//! The kernel drops a descriptor for which the receiver has no room. Nobody else would notice: the boundary's copy goes on
//! listening, and connects to that port would wait for ever. So what is missed is remembered until it has come.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use holdfast_actor::{Actor, Backoff, Child, Class, Dynamic, Fault, Me, Refusal};
use holdfast_observability::{Limiter, exhausted};
use parking_lot::Mutex;

use crate::arrivals::{Later, later};
use crate::coverage::Coverage;
use crate::egress::actor::{Kept, ListenerActor, ListenerArguments};
use crate::egress::desk::{Cookies, Desk};
use crate::health::Event;
use crate::link::{Client, Dialler};
use crate::pressure::Standings;
use crate::status::Vitals;

/// Gives every captured socket a listener.
pub(crate) struct Capture;

/// What it is born with. The sockets outlive it and their listeners.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) control: Client,
    pub(crate) dialler: Dialler,
    pub(crate) coverage: Arc<Coverage>,
    /// Nobody's in a sandbox whose policy stays what the fence was built for.
    pub(crate) vitals: Option<Vitals>,
    pub(crate) captured: Arc<Mutex<Captured>>,
    pub(crate) listeners: Dynamic,
    pub(crate) desk: Arc<Desk>,
    pub(crate) cookies: Arc<dyn Cookies>,
    pub(crate) standings: Standings,
}

/// What has been handed over so far.
pub(crate) struct Captured {
    sockets: Vec<(u16, Arc<Kept<TcpListener>>)>,
    /// The ports whose sockets have still to come.
    missed: BTreeSet<u16>,
}

impl Captured {
    /// These sockets, each with its port.
    pub(crate) fn of(sockets: Vec<(u16, OwnedFd)>) -> Self {
        let kept = |(port, socket): (_, OwnedFd)| (port, Arc::new(Kept(Arc::new(socket.into()))));
        Self {
            sockets: sockets.into_iter().map(kept).collect(),
            missed: BTreeSet::new(),
        }
    }

    /// The socket of `port` has come. `None`: it was here.
    fn keep(&mut self, port: u16, socket: OwnedFd) -> Option<Arc<Kept<TcpListener>>> {
        self.missed.remove(&port);
        if self.sockets.iter().any(|(known, _)| *known == port) {
            return None;
        }
        let socket = Arc::new(Kept(Arc::new(socket.into())));
        self.sockets.push((port, Arc::clone(&socket)));
        Some(socket)
    }

    /// The socket of `port` has been dropped on its way.
    fn miss(&mut self, port: u16) {
        if self.sockets.iter().all(|(known, _)| *known != port) {
            self.missed.insert(port);
        }
    }
}

impl Actor for Capture {
    type Message = Infallible;
    type Arguments = Arguments;
    type State = ();

    async fn start(me: &Me<Self::Message>, arguments: Arguments) -> Result<(), Fault> {
        if let Some(vitals) = arguments.vitals.clone() {
            let (coverage, control) = (Arc::clone(&arguments.coverage), arguments.control.clone());
            let dice = me.seed().dice();
            me.spawn(async move {
                coverage.serve(control, &vitals, dice).await;
                Ok(())
            });
        }
        let this = me.clone();
        me.spawn(async move { arguments.serve(&this).await });
        Ok(())
    }

    async fn handle(_: &Me<Self::Message>, never: Self::Message, (): &mut ()) -> Result<(), Fault> {
        match never {}
    }
}

impl Arguments {
    async fn serve(self, me: &Me<Infallible>) -> Result<(), Fault> {
        let known = self.captured.lock().sockets.clone();
        for (port, socket) in known {
            self.listen(me, port, socket).await?;
        }
        let (mut dice, mut failures) = (me.seed().dice(), 0);
        let mut complaints = Limiter::default();
        loop {
            let missed = self.captured.lock().missed.clone();
            let pause = BACKOFF.delay(failures, &mut dice);
            tokio::select! {
                handed = later(self.dialler.handoff()) => match handed? {
                    Some(Later::Listener(port, Some(socket))) => {
                        failures = 0;
                        let fresh = self.captured.lock().keep(port, socket);
                        if let Some(socket) = fresh {
                            self.listen(me, port, socket).await?;
                        }
                    }
                    Some(Later::Listener(port, None)) => {
                        self.captured.lock().miss(port);
                        if let Some(held_back) = complaints.admit(me.now().since_origin()) {
                            exhausted!(port, held_back, "take a listener: too many open files; its connections wait, and it is asked for again");
                        }
                    }
                    Some(Later::Changed(changed)) => {
                        if let Some(vitals) = &self.vitals {
                            vitals.note(Event::Boundary(changed));
                        }
                    }
                    None => break,
                },
                () = tokio::time::sleep(pause), if !missed.is_empty() => {
                    failures = failures.saturating_add(1);
                    for port in missed {
                        // A boundary that is gone has closed the socket, and the next look at it says so.
                        let _ = self.dialler.miss(port).await;
                    }
                }
            }
        }
        // Whether the boundary is dead or another's, the link finds out and says.
        self.dialler.closed();
        Ok(())
    }

    async fn listen(
        &self,
        me: &Me<Infallible>,
        port: u16,
        source: Arc<Kept<TcpListener>>,
    ) -> Result<(), Fault> {
        let standings = self.standings.clone();
        let standing = standings.of(port);
        me.spawn(async move {
            standings.follow(port).await;
            Ok(())
        });
        let arguments = ListenerArguments {
            source,
            desk: Arc::clone(&self.desk),
            cookies: Arc::clone(&self.cookies),
            standing,
        };
        let child = Child::permanent(&port.to_string());
        match self.listeners.add::<ListenerActor>(child, arguments).await {
            // Listeners outlive this actor's restart.
            Ok(_) | Err(Refusal::Duplicate) => Ok(()),
            Err(refusal) => Err(unheard(port, &refusal)),
        }
    }
}

/// Why nobody listens on `port`. For want of a descriptor this is tried again, for as long as it takes.
fn unheard(port: u16, refusal: &Refusal) -> Fault {
    let class = match refusal {
        Refusal::StartFailed(reason) => reason.class(),
        Refusal::Unknown | Refusal::Full { .. } | Refusal::Duplicate | Refusal::Down => {
            Class::Failed
        }
    };
    Fault::new(class, format!("listen on port {port}: {refusal}"))
}

/// Between two times that what was missed is asked for.
const BACKOFF: Backoff = Backoff::between(Duration::from_millis(50), Duration::from_secs(1));

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("opened").into()
    }

    #[test]
    fn what_is_missed_is_remembered_until_it_has_come_and_kept_once() {
        let mut captured = Captured::of(vec![(443, socket())]);

        captured.miss(443);
        captured.miss(8080);

        assert_eq!(Vec::from_iter(captured.missed.clone()), [8080]);
        assert!(captured.keep(8080, socket()).is_some());
        assert!(captured.keep(8080, socket()).is_none(), "it was here");
        assert!(captured.missed.is_empty());
        assert_eq!(captured.sockets.len(), 2);
    }
}
