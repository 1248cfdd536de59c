//! Kernel settings of the caller's network namespace, for one in which every address is local.
//!
//! The kernel lets whoever may administer the namespace write them. Where `/proc/sys` cannot be written, as in many a
//! container, the sandbox works all the same, less well: the settings that stayed are told.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use crate::{Called, Error, Result};

/// A setting below `/proc/sys` and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its path below `/proc/sys`.
    pub name: &'static str,
    /// What is written there.
    pub value: &'static str,
}

/// A setting that stayed as it was.
#[derive(Debug, thiserror::Error)]
#[error("set {} to {}", .setting.name, .setting.value)]
pub struct Unset {
    /// Which.
    pub setting: Setting,
    /// Why.
    #[source]
    pub source: Error,
}

/// What a namespace is given whose every connection is captured.
pub const NETWORK: &[Setting] = &[
    // No data before the handshake: a connection is judged before it carries anything.
    Setting {
        name: "net/ipv4/tcp_fastopen",
        value: "0",
    },
    // All connections leave from one address, so busy agents would run out of ports that only wait; timestamps make
    // their reuse safe.
    Setting {
        name: "net/ipv4/tcp_tw_reuse",
        value: "1",
    },
    // What goes from one end of this machine's memory to the other needs no pacing: a host that paces what it sends
    // (BBR) would spend a timer and a model on each. Reno is in every kernel, and in reach of every namespace.
    Setting {
        name: "net/ipv4/tcp_congestion_control",
        value: "reno",
    },
    // The workload may serve any port, as it may on a machine of its own.
    Setting {
        name: "net/ipv4/ip_unprivileged_port_start",
        value: "0",
    },
    // Three quarters wider than the default, and still clear of the ports that development servers take: a connection that
    // happened to leave from 8080 would keep a server from starting.
    Setting {
        name: "net/ipv4/ip_local_port_range",
        value: "16384 65535",
    },
];

/// Writes every setting it can; answers those it could not.
pub fn apply(settings: &[Setting]) -> Vec<Unset> {
    let written = |setting: &Setting| {
        write(*setting).err().map(|source| Unset {
            setting: *setting,
            source,
        })
    };
    settings.iter().filter_map(written).collect()
}

fn write(setting: Setting) -> Result<()> {
    let path = Path::new("/proc/sys").join(setting.name);
    let mut file = OpenOptions::new().write(true).open(path).called("open")?;
    file.write_all(setting.value.as_bytes()).called("write")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, SockaddrIn, sendto, socket,
    };

    use super::*;
    use crate::apart::in_fresh_netns;
    use crate::netlink::{Batch, Netlink};
    use crate::privilege::{self, Capabilities};

    fn set_up() {
        let mut batch = Batch::new();
        batch.loopback_up();
        Netlink::open().expect("a socket").apply(batch).expect("up");
        let unset = apply(NETWORK);
        assert!(unset.is_empty(), "{unset:?}");
    }

    #[test]
    fn every_setting_reads_back_as_it_was_written() {
        in_fresh_netns(|| {
            set_up();
            for Setting { name, value } in NETWORK {
                let read = fs::read_to_string(Path::new("/proc/sys").join(name)).expect("read");

                let read: Vec<_> = read.split_whitespace().collect();
                assert_eq!(read.join(" "), *value, "{name}");
            }
        });
    }

    #[test]
    fn a_program_without_privilege_serves_port_80() {
        in_fresh_netns(|| {
            set_up();
            privilege::keep_only(Capabilities::NONE).expect("laid down");

            TcpListener::bind("127.0.0.1:80").expect("allowed");
        });
    }

    #[test]
    fn nothing_is_carried_before_the_handshake() {
        in_fresh_netns(|| {
            set_up();
            let listener = TcpListener::bind("127.0.0.1:443").expect("free");
            let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
            let socket = socket(family, SockType::Stream, flags, None).expect("a socket");

            let to = SockaddrIn::new(127, 0, 0, 1, 443);
            let fast = MsgFlags::from_bits_retain(libc::MSG_FASTOPEN);
            let refused = sendto(socket.as_raw_fd(), b"early", &to, fast).expect_err("refused");

            assert_eq!(refused, nix::Error::EOPNOTSUPP);
            listener.set_nonblocking(true).expect("set");
            let nobody = listener.accept().expect_err("nobody came");
            assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
        });
    }

    #[test]
    fn what_cannot_be_set_is_told_and_stops_nothing() {
        in_fresh_netns(|| {
            let missing = Setting {
                name: "net/ipv4/tcp_no_such_setting",
                value: "1",
            };

            let unset = apply(&[missing, NETWORK[0]]);

            assert_eq!(unset.len(), 1);
            assert_eq!(unset[0].source.errno(), libc::ENOENT);
            assert_eq!(
                unset[0].to_string(),
                "set net/ipv4/tcp_no_such_setting to 1"
            );
            let fastopen = fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").expect("read");
            assert_eq!(fastopen.trim(), "0");
        });
    }
}
