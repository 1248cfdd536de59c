//! What the network of a sandbox costs: once to set up, and once per connection to know its socket.
//!
//! `cargo bench -p holdfast-kernel --bench network`; needs user namespaces or root.

use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use holdfast_kernel::netlink::loopback::{Captured, Own, capture};
use holdfast_kernel::{diag::Diag, listen, sysctl};
use nix::sched::{CloneFlags, unshare};

const NETWORKS: usize = 100;
const CONNECTIONS: usize = 500;
const QUESTIONS: usize = 20_000;
const CONNECTS: usize = 80_000;
const EARLY: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    if unshare(CloneFlags::CLONE_NEWUSER).is_err() {
        report("could not run: no user namespace", &mut [])?;
        return Ok(());
    }
    let mut steps: [Vec<Duration>; 4] = Default::default();
    for _ in 0..NETWORKS {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let (took, captured) = timed(|| capture(OWN));
        steps[0].push(took);
        if let Captured::V4(absent) = captured? {
            return Err(absent.into());
        }
        let (took, _unset) = timed(|| sysctl::apply(sysctl::NETWORK));
        steps[1].push(took);
        let (took, listener) = timed(|| listen::tcp(443));
        steps[2].push(took);
        let (took, names) = timed(|| listen::udp(listen::DOMAIN));
        steps[3].push(took);
        drop((listener?, names?));
    }
    let names = ["capture", "settings", "TCP listener", "UDP socket"];
    for (name, took) in names.iter().zip(&mut steps) {
        report(name, took)?;
    }
    for address in ["8.8.8.8:443", "[2001:db8::1]:443"] {
        let destination: SocketAddr = address.parse()?;
        let mut asked = ask(destination)?;
        report(&format!("cookie of {destination}"), &mut asked)?;
    }
    let mut took = connect_often("8.8.8.8:443".parse()?)?;
    let late = took.split_off(EARLY);
    for (name, mut took) in [("early", took), ("with ports waiting", late)] {
        report(&format!("connect {name}"), &mut took)?;
    }
    Ok(())
}

/// Connects and closes, client first, until the ports that wait outnumber those of the default range.
fn connect_often(destination: SocketAddr) -> Result<Vec<Duration>, Box<dyn Error>> {
    let listener = listen::tcp(destination.port())?;
    listener.set_nonblocking(false)?;
    let mut all = Vec::new();
    for _ in 0..CONNECTS {
        let (took, client) = timed(|| TcpStream::connect(destination));
        all.push(took);
        let accepted = listener.accept()?;
        drop(client?);
        drop(accepted);
    }
    Ok(all)
}

/// Asks for the cookies of many connections to `destination`, again and again.
fn ask(destination: SocketAddr) -> Result<Vec<Duration>, Box<dyn Error>> {
    let listener = listen::tcp(destination.port())?;
    listener.set_nonblocking(false)?;
    let mut diag = Diag::open()?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = TcpStream::connect(destination)?;
        let (accepted, peer) = listener.accept()?;
        let reached = accepted.local_addr()?;
        connections.push((client, accepted, peer, reached));
    }
    let mut took = Vec::new();
    for (_, _, peer, reached) in connections.iter().cycle().take(QUESTIONS) {
        let (time, cookie) = timed(|| diag.cookie(*peer, *reached));
        if cookie?.is_none() {
            return Err("a connection without a cookie".into());
        }
        took.push(time);
    }
    Ok(took)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the real time"
)]
fn timed<R>(call: impl FnOnce() -> R) -> (Duration, R) {
    let begin = Instant::now();
    let answer = call();
    (begin.elapsed(), answer)
}

fn report(name: &str, took: &mut [Duration]) -> std::io::Result<()> {
    took.sort_unstable();
    let at = |share: usize| {
        let index = took.len() * share / 100;
        took.get(index).copied().unwrap_or_default()
    };
    writeln!(
        std::io::stdout(),
        "{name:28} {:6} times, p50 {:?}, p99 {:?}",
        took.len(),
        at(50),
        at(99)
    )
}

const OWN: Own = Own {
    v4: Ipv4Addr::new(198, 18, 0, 1),
    v6: Ipv6Addr::new(0xfd48, 0x6f6c, 0x6466, 0x6173, 0, 0, 0, 1),
};
