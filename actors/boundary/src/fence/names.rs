//! The files about names that a view has in the place of the root's: who the name server is, and which names it is not asked.
//!
//! The C library believes the hosts file before it asks anybody, and then connects to the bare address, which no rule for the
//! name is about. So what the policy decides by name is left out of it, and asked of the resolver like any other name.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use holdfast_policy::Name;

/// A file of the root that the view has to cover and cannot.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Nothing but a directory can be mounted on it.
    #[error("{} of the sandbox's root is a directory; remove it, or put a file in its place", .0.display())]
    Directory(PathBuf),
    /// It leads to where nothing of the root is shown.
    #[error("{} of the sandbox's root leads to {}, where the sandbox has files of its own; put a file in its place, or a link to one elsewhere", .path.display(), .real.display())]
    Own {
        /// Its path in the view.
        path: PathBuf,
        /// Where its links end.
        real: PathBuf,
    },
    /// It leads nowhere.
    #[error("{} of the sandbox's root is a link that leads in a circle; remove it, or put a file in its place", .0.display())]
    Circle(PathBuf),
    /// It is not read to its end.
    #[error("{} of the sandbox's root is longer than {most} KiB; shorten it", .path.display())]
    Long {
        /// Its path in the view.
        path: PathBuf,
        /// What would be read.
        most: u64,
    },
}

/// The resolver's configuration: `nameserver`, and the search domains and options of the root's own file at `source`.
pub(super) fn resolver(path: &Path, source: &Path, nameserver: &str) -> Result<String, Unfit> {
    let own = read(path, source, MOST_RESOLVER)?.unwrap_or_default();
    Ok(resolver_text(&own, nameserver))
}

/// The hosts file of the root at `source` without the names that `decided` is true for; `None` if it has none of them.
pub(super) fn hosts(
    path: &Path,
    source: &Path,
    decided: impl Fn(&Name) -> bool,
) -> Result<Option<String>, Unfit> {
    let own = read(path, source, MOST_HOSTS)?;
    Ok(own.and_then(|own| hosts_text(&own, decided)))
}

/// What the file at `source` says. Only regular files are read: a pipe may never end, and a device is no list of names.
fn read(path: &Path, source: &Path, most: u64) -> Result<Option<String>, Unfit> {
    if !fs::metadata(source).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let mut text = Vec::new();
    let read = File::open(source)
        .and_then(|file| file.take(most * 1024 + 1).read_to_end(&mut text))
        .ok();
    if read.is_some_and(|length| length as u64 > most * 1024) {
        let path = path.to_owned();
        return Err(Unfit::Long { path, most });
    }
    Ok(read.map(|_| String::from_utf8_lossy(&text).into_owned()))
}

fn resolver_text(own: &str, nameserver: &str) -> String {
    let mut text = format!("nameserver {nameserver}\n");
    for line in own.lines() {
        if ["search", "domain", "options", "sortlist"]
            .iter()
            .any(|word| line.split_whitespace().next() == Some(word))
        {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// hosts(5): an address, then its names; `#` begins a comment. A line that loses its last name is dropped.
fn hosts_text(own: &str, decided: impl Fn(&Name) -> bool) -> Option<String> {
    let is_decided = |word: &str| word.parse().is_ok_and(|name| decided(&name));
    let mut text = String::with_capacity(own.len());
    let mut is_changed = false;
    for line in own.split_inclusive('\n') {
        let (entry, comment) = line.split_at(line.find('#').unwrap_or(line.len()));
        let mut words = entry.split_ascii_whitespace();
        let address = words.next().unwrap_or_default();
        let (out, kept): (Vec<_>, Vec<_>) = words.partition(|word| is_decided(word));
        if out.is_empty() {
            text.push_str(line);
            continue;
        }
        is_changed = true;
        if !kept.is_empty() {
            let comment = comment.trim_end();
            let line = format!("{address}\t{} {comment}", kept.join(" "));
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    is_changed.then_some(text)
}

/// KiB of a resolver's configuration.
const MOST_RESOLVER: u64 = 64;

/// KiB of a hosts file: lists of unwanted names have some MiB. The view's own file system has room for it.
const MOST_HOSTS: u64 = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(name: &Name) -> bool {
        name.as_str().ends_with("corp.test")
    }

    #[test]
    fn only_names_that_the_policy_decides_leave_the_hosts_file() {
        let own = "# ours: db.corp.test\n127.0.0.1 localhost\n\n10.0.0.1\tDB.Corp.test. db # both\n\
                   10.0.0.2 a.corp.test b.corp.test\n10.0.0.3 other.test # a.corp.test\nfd00::1 x.corp.test x";

        let text = hosts_text(own, decided);

        let left = "# ours: db.corp.test\n127.0.0.1 localhost\n\n10.0.0.1\tdb # both\n\
                    10.0.0.3 other.test # a.corp.test\nfd00::1\tx\n";
        assert_eq!(text.as_deref(), Some(left));
    }

    #[test]
    fn a_hosts_file_without_such_names_is_left_as_it_is() {
        let own = "127.0.0.1 localhost\n10.0.0.1 other.test # db.corp.test\nnonsense\n";

        assert_eq!(hosts_text(own, decided), None);
    }

    #[test]
    fn search_domains_and_options_are_kept_beside_the_one_server() {
        let own = "search corp.test\nnameserver 10.0.0.1\n options ndots:2\n#search no.test\n";

        let text = resolver_text(own, "198.18.0.1");

        let kept = "nameserver 198.18.0.1\nsearch corp.test\n options ndots:2\n";
        assert_eq!(text, kept);
    }
}
