//! The ports that are listened on: those that a rule names, and those of wildcard rules as they are asked for.
//!
//! ```text
//!  named by a rule ──┐                ┌── nobody has it ──> open, for good
//!  asked for ────────┴── listen ──────┤
//!                            ▲        └── a socket inside has it, no descriptor …  ──> unheard, and told
//!                            └──────── asked for again, the next beat ────────────────────┘
//! ```
//!
//! Where the kernel can lead connections that nobody listens for, a wildcard rule has one listener more, which takes all those: of
//! programs that nobody may look at, and of others when so many ports have been asked for that no further one is opened.
//!
//! The sandbox's own addresses are its own, but for those that rules list at every port: there a port is the host's, unless a program
//! inside listens on it.
//!
//! A port that is unheard costs the sandbox its Ready, so it is tried again until it is open, or until a revision comes that does not
//! name it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use holdfast_kernel::listen::DOMAIN;
use holdfast_kernel::{Error, Result};
use holdfast_policy::Cidr;
use holdfast_wire::v1;
use parking_lot::Mutex;

use super::caller;

/// The ports that are listened on, and how to listen on one more.
pub struct Ports {
    open: Mutex<Open>,
    listen: Box<dyn Fn(u16) -> Result<()> + Send + Sync>,
    serves: Box<dyn Fn(SocketAddr) -> bool + Send + Sync>,
    /// Whether connections to ports on which nobody listens are captured, too.
    strays: bool,
}

#[derive(Debug)]
struct Open {
    ports: BTreeSet<u16>,
    /// How many of them were asked for.
    on_demand: usize,
    /// Those that are wanted, and why nobody listens there.
    unheard: BTreeMap<u16, Missing>,
    /// Addresses that rules list at every port.
    listed: Vec<Cidr>,
}

/// A port that nobody listens on.
#[derive(Debug)]
struct Missing {
    errno: i32,
    wanted: Wanted,
}

/// Who wants a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A rule names it.
    Named,
    /// Somebody connected to it under a rule for every port.
    Asked,
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
                unheard: BTreeMap::new(),
                listed: Vec::new(),
            }),
            listen: Box::new(listen),
            serves: Box::new(|_| false),
            strays: false,
        }
    }

    /// The same, where connections to ports on which nobody listens `are_captured`, too.
    #[must_use]
    pub fn with_strays(self, are_captured: bool) -> Self {
        Self {
            strays: are_captured,
            ..self
        }
    }

    /// The same, where the addresses in `listed` are the host's at every port but those at which a program inside `serves`.
    #[must_use]
    pub fn for_hosts(
        mut self,
        listed: Vec<Cidr>,
        serves: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.open.get_mut().listed = listed;
        self.serves = Box::new(serves);
        self
    }

    /// Whether a policy has a say on `address`: not on names, which the resolver judges, nor on the sandbox's own
    /// addresses where nothing is captured and nobody is asked for.
    pub(super) fn concern(&self, address: SocketAddr) -> bool {
        let port = address.port();
        if port == DOMAIN || !caller::is_own(address.ip()) {
            return port != DOMAIN;
        }
        let (captured, listed) = {
            let open = self.open.lock();
            (open.ports.contains(&port), open.lists(address.ip()))
        };
        captured || (listed && !(self.serves)(address))
    }

    /// Listens on the port of `destination` too, which somebody asks for.
    pub(super) fn open(&self, destination: SocketAddr) -> std::result::Result<(), Unopened> {
        let mut open = self.open.lock();
        let port = destination.port();
        let named = open.unheard.get(&port).map(|missing| missing.wanted);
        let wanted = named.unwrap_or(Wanted::Asked);
        self.listen_on(&mut open, port, wanted, &[destination.ip()])
    }

    /// Listens on all of `named` too, which are the ports that rules name now; `listed` are the addresses that they list at every
    /// port. Answers those that nobody can listen on.
    pub(crate) fn cover(&self, named: &BTreeSet<u16>, listed: Vec<Cidr>) -> Vec<v1::Unheard> {
        let mut open = self.open.lock();
        open.listed = listed;
        open.unheard.clear();
        for port in named {
            // What stands in the way is among the answers.
            let _ = self.listen_on(&mut open, *port, Wanted::Named, &EVERY);
        }
        open.told()
    }

    /// Tries each port that nobody listens on once more. Answers those that are left.
    pub(crate) fn try_again(&self) -> Vec<v1::Unheard> {
        let mut open = self.open.lock();
        let unheard: Vec<_> = open
            .unheard
            .iter()
            .map(|(port, missing)| (*port, missing.wanted))
            .collect();
        for (port, wanted) in unheard {
            let _ = self.listen_on(&mut open, port, wanted, &EVERY);
        }
        open.told()
    }

    /// Listens on `port`, which is wanted for the addresses `of`.
    fn listen_on(
        &self,
        open: &mut Open,
        port: u16,
        wanted: Wanted,
        of: &[IpAddr],
    ) -> std::result::Result<(), Unopened> {
        if open.ports.contains(&port) {
            return Ok(());
        }
        if wanted == Wanted::Asked && open.on_demand >= MOST_PORTS {
            open.unheard.remove(&port);
            return if self.strays {
                Ok(())
            } else {
                Err(Unopened::TooMany)
            };
        }
        if let Err(error) = (self.listen)(port) {
            // It may be but the own end of a connection that a program has: then what is meant for it is a stray.
            let is_served = || of.iter().any(|ip| (self.serves)((*ip, port).into()));
            if self.strays && error.errno() == libc::EADDRINUSE && !is_served() {
                open.unheard.remove(&port);
                return Ok(());
            }
            open.miss(port, error.errno(), wanted);
            return Err(error.into());
        }
        open.unheard.remove(&port);
        open.ports.insert(port);
        open.on_demand += usize::from(wanted == Wanted::Asked);
        Ok(())
    }
}

impl Open {
    fn lists(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.listed.iter().any(|range| range.contains(address))
    }

    /// Nobody can listen on `port`. Of those that were asked for only so many are remembered: a program may ask for all there are.
    fn miss(&mut self, port: u16, errno: i32, wanted: Wanted) {
        let many = self.unheard.len() >= MOST_UNHEARD;
        match self.unheard.entry(port) {
            Entry::Occupied(mut known) => known.get_mut().errno = errno,
            Entry::Vacant(_) if many && wanted == Wanted::Asked => {}
            Entry::Vacant(fresh) => {
                fresh.insert(Missing { errno, wanted });
            }
        }
    }

    fn told(&self) -> Vec<v1::Unheard> {
        let unheard = self.unheard.iter();
        unheard
            .map(|(port, missing)| unheard_on(*port, missing.errno))
            .collect()
    }
}

/// Nobody can listen on `port`, for this reason, as the keeper is told it.
pub(super) fn unheard_on(port: u16, errno: i32) -> v1::Unheard {
    v1::Unheard {
        port: port.into(),
        errno,
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ports").field(&self.open.lock()).finish()
    }
}

/// Where a program listens that listens at every address.
const EVERY: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    IpAddr::V6(Ipv6Addr::UNSPECIFIED),
];

/// How many ports are listened on because somebody asked for them. Each is a descriptor here and two in the keeper, for good.
const MOST_PORTS: usize = 1024;

/// How many ports that nobody can listen on are tried again, besides those that rules name.
const MOST_UNHEARD: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Somewhere in the world.
    fn at(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn ports_on_demand_are_bounded_and_those_of_rules_do_not_count() {
        let listened = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&listened);
        let ports = Ports::new(1..=2000, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });

        for port in 3000..3000 + 1024 {
            assert!(ports.open(at(port)).is_ok());
        }

        assert!(matches!(ports.open(at(5000)), Err(Unopened::TooMany)));
        assert!(ports.open(at(3000)).is_ok(), "it is open");
        assert!(ports.open(at(2000)).is_ok(), "a rule names it");
        assert_eq!(listened.load(Ordering::Relaxed), MOST_PORTS);
    }

    #[test]
    fn a_port_that_cannot_be_listened_on_costs_no_place() {
        let ports = Ports::new([], |port| match port {
            7 => Err(Error::new("bind", libc::EADDRINUSE)),
            _ => Ok(()),
        });

        for _ in 0..=MOST_PORTS {
            assert!(matches!(ports.open(at(7)), Err(Unopened::Refused(_))));
        }

        assert!(ports.open(at(8)).is_ok());
    }

    #[test]
    fn a_port_that_is_held_is_told_until_it_is_let_go() {
        let held = Arc::new(Mutex::new(BTreeSet::from([8443, 9000])));
        let holding = Arc::clone(&held);
        let ports = Ports::new([443], move |port| {
            if holding.lock().contains(&port) {
                return Err(Error::new("bind", libc::EADDRINUSE));
            }
            Ok(())
        });
        let told = |unheard: Vec<v1::Unheard>| -> Vec<_> {
            unheard.iter().map(|one| (one.port, one.errno)).collect()
        };
        let taken = |port| (port, libc::EADDRINUSE);

        let named = BTreeSet::from([443, 80, 8443]);
        assert_eq!(told(ports.cover(&named, Vec::new())), [taken(8443)]);
        assert!(ports.open(at(9000)).is_err(), "asked for");
        assert_eq!(told(ports.try_again()), [taken(8443), taken(9000)]);
        held.lock().remove(&8443);
        assert_eq!(told(ports.try_again()), [taken(9000)]);

        assert_eq!(
            told(ports.cover(&named, Vec::new())),
            [],
            "another revision"
        );
        assert_eq!(ports.open.lock().on_demand, 0, "rules name them");
    }

    #[test]
    fn a_port_that_cannot_be_listened_on_is_left_to_strays_unless_a_program_serves_there() {
        let taken = |port| match port {
            7 | 8 => Err(Error::new("bind", libc::EADDRINUSE)),
            9 => Err(Error::new("bind", libc::ENOBUFS)),
            _ => Ok(()),
        };
        let ports = |are_captured| {
            Ports::new([], taken)
                .for_hosts(Vec::new(), |address| address.port() == 8)
                .with_strays(are_captured)
        };
        let named = BTreeSet::from([7, 8, 9]);

        let with = ports(true);
        assert!(with.open(at(7)).is_ok());
        assert!(with.open(at(8)).is_err(), "a program serves there");
        assert!(with.open(at(9)).is_err(), "there is no room");
        assert_eq!(with.cover(&named, Vec::new()).len(), 2);
        assert_eq!(ports(false).cover(&named, Vec::new()).len(), 3);
    }

    #[test]
    fn a_program_that_asks_for_every_port_it_holds_is_bounded() {
        let ports = Ports::new([], |_| Err(Error::new("bind", libc::EADDRINUSE)));
        let named: BTreeSet<u16> = (1..=100).collect();
        assert_eq!(ports.cover(&named, Vec::new()).len(), 100, "rules are not");

        for port in 3000..4000 {
            assert!(ports.open(at(port)).is_err());
        }

        assert_eq!(ports.try_again().len(), 100);
    }

    #[test]
    fn a_loopback_address_that_is_listed_is_the_hosts_where_nobody_inside_listens() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let listed = |text: &str| vec![text.parse().expect("a range")];
        let ports = Ports::new([443], |_| Ok(()))
            .for_hosts(listed("127.0.0.9"), |address| address.port() == 8080);

        for (address, concerns) in [
            ("127.0.0.9:80", true),
            ("[::ffff:127.0.0.9]:80", true),
            ("127.0.0.9:8080", false),
            ("127.0.0.1:80", false),
            ("0.0.0.0:80", false),
            ("127.0.0.1:443", true),
            ("10.0.0.1:8080", true),
            ("127.0.0.9:53", false),
        ] {
            assert_eq!(ports.concern(at(address)), concerns, "{address}");
        }

        ports.cover(&BTreeSet::new(), listed("127.0.0.1"));
        assert!(!ports.concern(at("127.0.0.9:80")), "another revision");
        assert!(ports.concern(at("127.0.0.1:80")));
    }
}
