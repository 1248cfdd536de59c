//! The ports that are listened on: those that a rule names, and those of wildcard rules as they are asked for.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use holdfast_kernel::listen::DOMAIN;
use holdfast_kernel::{Error, Result};
use parking_lot::Mutex;

use super::caller;

/// The ports that are listened on, and how to listen on one more.
pub struct Ports {
    open: Mutex<Open>,
    listen: Box<dyn Fn(u16) -> Result<()> + Send + Sync>,
}

#[derive(Debug)]
struct Open {
    ports: BTreeSet<u16>,
    /// How many of them were asked for.
    on_demand: usize,
}

/// Why nobody listens on a port.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unopened {
    /// A program that goes through the ports of a wildcard would take every descriptor.
    #[error(
        "{MOST_PORTS} ports are listened on for wildcard rules, and that is the most; name the port in a rule"
    )]
    TooMany,
    /// The kernel refuses.
    #[error("listen on it: {0}")]
    Refused(#[from] Error),
}

impl Ports {
    /// The ports in `open`, and `listen` for the ones that follow.
    pub fn new(
        open: impl IntoIterator<Item = u16>,
        listen: impl Fn(u16) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            open: Mutex::new(Open {
                ports: open.into_iter().collect(),
                on_demand: 0,
            }),
            listen: Box::new(listen),
        }
    }

    /// Whether a policy has a say on `address`: not on names, which the resolver judges, nor on the sandbox's own
    /// addresses where nothing is captured.
    pub(super) fn concern(&self, address: SocketAddr) -> bool {
        let port = address.port();
        let own = || caller::is_own(address.ip()) && !self.open.lock().ports.contains(&port);
        port != DOMAIN && !own()
    }

    /// Listens on `port` too.
    pub(super) fn open(&self, port: u16) -> std::result::Result<(), Unopened> {
        let mut open = self.open.lock();
        if open.ports.contains(&port) {
            return Ok(());
        }
        if open.on_demand >= MOST_PORTS {
            return Err(Unopened::TooMany);
        }
        (self.listen)(port)?;
        open.ports.insert(port);
        open.on_demand += 1;
        Ok(())
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ports").field(&self.open.lock()).finish()
    }
}

/// How many ports are listened on because somebody asked for them. Each is a descriptor here and two in the keeper, for good.
const MOST_PORTS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn ports_on_demand_are_bounded_and_those_of_rules_do_not_count() {
        let listened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&listened);
        let ports = Ports::new(1..=2000, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });

        for port in 3000..3000 + 1024 {
            assert!(ports.open(port).is_ok());
        }

        assert!(matches!(ports.open(5000), Err(Unopened::TooMany)));
        assert!(ports.open(3000).is_ok(), "it is open");
        assert!(ports.open(2000).is_ok(), "a rule names it");
        assert_eq!(listened.load(Ordering::Relaxed), MOST_PORTS);
    }

    #[test]
    fn a_port_that_cannot_be_listened_on_costs_no_place() {
        let ports = Ports::new([], |port| match port {
            7 => Err(Error::new("bind", libc::EADDRINUSE)),
            _ => Ok(()),
        });

        for _ in 0..=MOST_PORTS {
            assert!(matches!(ports.open(7), Err(Unopened::Refused(_))));
        }

        assert!(ports.open(8).is_ok());
    }
}
