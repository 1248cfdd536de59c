//! Reads what the host itself says about names: its hosts file and its list of name servers.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hickory_resolver::system_conf::parse_resolv_conf;
use holdfast_kernel::descriptors;
use holdfast_policy::Name;

/// Where the keeper looks names up.
#[derive(Debug, Clone)]
pub enum Source {
    /// As programs on the host do: the hosts file first, then the servers of resolv.conf. Both may
    /// change at any time.
    Host {
        /// Usually `/etc/hosts`.
        hosts: PathBuf,
        /// Usually `/etc/resolv.conf`.
        resolv_conf: PathBuf,
    },
    /// Exactly these servers.
    Servers(Vec<SocketAddr>),
}

impl Default for Source {
    fn default() -> Self {
        Self::Host {
            hosts: "/etc/hosts".into(),
            resolv_conf: "/etc/resolv.conf".into(),
        }
    }
}

/// The servers to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) edns: bool,
}

/// Tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(SystemTime, u64);

impl Source {
    /// When the list of servers was last changed; `None` where it cannot change or is not there.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let Self::Host { resolv_conf, .. } = self else {
            return None;
        };
        let metadata = fs::metadata(resolv_conf).ok()?;
        Some(Stamp(metadata.modified().ok()?, metadata.len()))
    }

    pub(super) fn list(&self) -> Result<List, String> {
        match self {
            Self::Host { resolv_conf, .. } => {
                read_list(resolv_conf).map_err(|e| format!("read {}: {e}", resolv_conf.display()))
            }
            Self::Servers(addresses) => Ok(List {
                addresses: addresses.clone(),
                edns: true,
            }),
        }
    }

    /// The addresses that the hosts file gives a name. A file that cannot be read has none.
    pub(super) fn find(&self, name: &Name) -> Vec<IpAddr> {
        let Self::Host { hosts, .. } = self else {
            return Vec::new();
        };
        descriptors::read(hosts).map_or_else(|_| Vec::new(), |text| find(&text, name))
    }
}

fn read_list(path: &Path) -> io::Result<List> {
    let text = descriptors::read(path)?;
    let (config, options) = parse_resolv_conf(text).map_err(io::Error::other)?;
    let servers = config.name_servers();
    Ok(List {
        addresses: servers
            .iter()
            .map(|server| SocketAddr::new(server.ip, PORT))
            .collect(),
        edns: options.edns0,
    })
}

/// hosts(5): an address, then its names; `#` begins a comment.
fn find(text: &[u8], name: &Name) -> Vec<IpAddr> {
    let wanted = name.to_string();
    let text = String::from_utf8_lossy(text);
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next() else {
            continue;
        };
        let mut names = words.map(|word| word.trim_end_matches('.'));
        if names.any(|word| word.eq_ignore_ascii_case(&wanted)) {
            // A zone (`fe80::1%eth0`) makes no address for us: link-local is refused anyway.
            found.extend(address.parse::<IpAddr>().ok());
        }
    }
    found
}

const PORT: u16 = 53;

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a host name")
    }

    #[test]
    fn the_hosts_file_is_read_as_programs_read_it() {
        let text = b"# local\n127.0.0.1 localhost\n10.0.0.5\tDB.corp.test db # 10.0.0.6 db\n\
                     fd00::5 db.corp.test.\nnonsense db.corp.test\nfe80::1%eth0 db\n\xff\xfe\n";

        let long = find(text, &name("db.corp.test"));
        let short = find(text, &name("db"));

        assert_eq!(
            long,
            ["10.0.0.5", "fd00::5"].map(|ip| ip.parse::<IpAddr>().expect("an address"))
        );
        assert_eq!(short, ["10.0.0.5".parse::<IpAddr>().expect("an address")]);
        assert!(find(text, &name("corp.test")).is_empty());
    }

    #[test]
    fn a_changed_list_has_another_stamp() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("resolv.conf");
        let source = Source::Host {
            hosts: directory.path().join("hosts"),
            resolv_conf: path.clone(),
        };
        assert_eq!(source.stamp(), None);
        assert!(
            source
                .list()
                .is_err_and(|error| error.contains("resolv.conf"))
        );

        fs::write(&path, "nameserver 192.0.2.1\n").expect("write");
        let first = (source.stamp(), source.list());
        fs::write(
            &path,
            "nameserver 192.0.2.1\nnameserver 2001:db8::1\noptions edns0\n",
        )
        .expect("write");
        let second = (source.stamp(), source.list());

        assert!(first.0.is_some());
        assert_ne!(first.0, second.0);
        let list = second.1.expect("a list");
        assert_eq!(list.addresses.len(), 2);
        assert!(list.edns);
        assert!(!first.1.expect("a list").edns);
    }
}
