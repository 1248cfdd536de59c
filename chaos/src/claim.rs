//! One attack on a sandbox at a time: a second one would take what the first has broken for what was there before, and restore that.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Held by whoever attacks a sandbox. It is a name of the kernel's that no file stands for: it is free again as soon as its holder
/// lets go of it or dies, whatever killed it.
#[derive(Debug)]
pub(crate) struct Claim {
    _held: UnixDatagram,
}

impl Claim {
    /// Takes the one claim on the sandbox with this id; `name` is what people call it.
    pub(crate) fn take(name: &str, id: &str) -> Result<Self, String> {
        let address = SocketAddr::from_abstract_name(format!("holdfast-chaos/{id}"));
        let held = address.and_then(|address| UnixDatagram::bind_addr(&address));
        held.map(|held| Self { _held: held }).map_err(|error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                return format!(
                    "attack {name}: another holdfast-chaos is attacking it; wait for its end, or end it with Ctrl-C"
                );
            }
            format!("claim {name} for this attack: {error}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_attacked_by_one_at_a_time() {
        let (id, other) = (uuid::Uuid::now_v7(), uuid::Uuid::now_v7());
        let take = |id: uuid::Uuid| Claim::take("qa", &id.to_string());
        let first = take(id).expect("nobody attacks it");

        let second = take(id).expect_err("the first is under way");
        let elsewhere = take(other);

        assert_eq!(
            second,
            "attack qa: another holdfast-chaos is attacking it; wait for its end, or end it with Ctrl-C"
        );
        assert!(elsewhere.is_ok());
        drop(first);
        assert!(take(id).is_ok());
    }
}
