//! Gives every name of a sandbox an address that is its own for the sandbox's lifetime.
//!
//! The workload is shown *synthetic* addresses: one number per name, seen as an IPv4 address in
//! 198.18.0.0/15 and as an IPv6 address in `fd48:6f6c:6466:6173::/64`. A connect to one of them is a
//! connect to the name. The number is a function of the name and the sandbox's seed; where it is
//! taken the next free one is used.
//!
//! Invariant: a number, once given, belongs to its name for as long as the sandbox lives. So nothing
//! the workload keeps can grow stale: not a pool's address of an hour ago, not a cached answer, nor
//! one that an earlier keeper gave: each is in a file before it is answered, and read from there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use holdfast_clock::Seed;
use holdfast_kernel::descriptors::noted;
use holdfast_policy::Name;
use parking_lot::RwLock;

/// Which of the two kinds of address is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, the A record.
    V4,
    /// IPv6, the AAAA record.
    V6,
}

impl Family {
    /// The family an address belongs to; an IPv4-mapped IPv6 address is IPv4.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The other one.
    #[must_use]
    pub fn sibling(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// The table has no room for another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("name more than {CAPACITY} hosts in one sandbox")]
pub struct Full;

/// The names of one sandbox and their synthetic addresses. Shared by resolver and egress.
pub struct Names {
    seed: Seed,
    table: RwLock<Table>,
}

impl Names {
    /// An empty table; `seed` makes its addresses differ from those of other sandboxes.
    pub fn new(seed: Seed) -> Self {
        Self {
            seed,
            table: RwLock::default(),
        }
    }

    /// The table that was kept in the file `path`, empty if there is none; what is added is kept there.
    pub fn kept(seed: Seed, path: &Path) -> io::Result<Self> {
        let file = File::options()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map(noted)?;
        let mut table = Table::default();
        let length = table.read_all(&file)?;
        // A keeper that died while it wrote had told nobody of that address yet.
        file.set_len(length)?;
        table.file = Some(Kept { file, length });
        Ok(Self {
            seed,
            table: RwLock::new(table),
        })
    }

    /// The synthetic address of a name, given now if it has none yet.
    pub fn synthetic(&self, name: &Name, family: Family) -> Result<IpAddr, Full> {
        if let Some(number) = self.table.read().numbers.get(name) {
            return Ok(address(*number, family));
        }
        let number = self.table.write().admit(name, self.first_choice(name))?;
        Ok(address(number, family))
    }

    /// The name an address stands for; the IPv4-mapped form of an address is the address.
    pub fn name_of(&self, address: IpAddr) -> Option<Name> {
        let number = number(address)?;
        self.table.read().names.get(&number).cloned()
    }

    /// Is this an address that could stand for a name, whether or not it does?
    pub fn covers(address: IpAddr) -> bool {
        number(address).is_some()
    }

    /// How many names have an address.
    pub fn len(&self) -> usize {
        self.table.read().numbers.len()
    }

    /// Has no name an address yet?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn first_choice(&self, name: &Name) -> u32 {
        let count = u64::from(LAST - FIRST + 1);
        let offset = self.seed.derive(name.as_str()).dice().below(count);
        FIRST + u32::try_from(offset).unwrap_or(0)
    }
}

#[derive(Default)]
struct Table {
    numbers: HashMap<Name, u32>,
    names: HashMap<u32, Name>,
    /// Where it is kept, if it is: a line a name, "NUMBER NAME".
    file: Option<Kept>,
}

/// A file of whole lines.
struct Kept {
    file: File,
    length: u64,
}

impl Kept {
    /// Appends a line, wholly or not at all: half of a name would be another name.
    fn append(&mut self, line: &str) -> io::Result<()> {
        let written = self.file.write_all(line.as_bytes());
        match written {
            Ok(()) => self.length += line.len() as u64,
            Err(_) => self.file.set_len(self.length)?,
        }
        written
    }
}

impl Table {
    /// Two callers may have missed the same name: the second finds what the first wrote.
    fn admit(&mut self, name: &Name, first_choice: u32) -> Result<u32, Full> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if self.numbers.len() >= CAPACITY {
            return Err(Full);
        }
        let mut number = first_choice;
        while self.names.contains_key(&number) {
            number = if number == LAST { FIRST } else { number + 1 };
        }
        if let Some(file) = &mut self.file
            && let Err(error) = file.append(&format!("{number} {name}\n"))
        {
            // It is right until a new keeper comes, and very likely after that.
            tracing::warn!(%error, "keep the address of a name");
        }
        self.enter(number, name.clone());
        Ok(number)
    }

    fn enter(&mut self, number: u32, name: Name) {
        self.numbers.insert(name.clone(), number);
        self.names.insert(number, name);
    }

    /// Enters what the whole lines say. Answers where the last of them ends.
    fn read_all(&mut self, file: &File) -> io::Result<u64> {
        let (mut lines, mut line, mut end) = (BufReader::new(file), Vec::new(), 0);
        while lines.read_until(b'\n', &mut line)? > 0 {
            let Some((b'\n', entry)) = line.split_last() else {
                break;
            };
            self.read(entry);
            end += line.len() as u64;
            line.clear();
        }
        Ok(end)
    }

    /// Enters what a line says, if it could have been written here.
    fn read(&mut self, line: &[u8]) {
        let entry = || {
            let (number, name) = std::str::from_utf8(line).ok()?.split_once(' ')?;
            let number: u32 = number.parse().ok()?;
            let name: Name = name.parse().ok()?;
            let known = !(FIRST..=LAST).contains(&number)
                || self.names.contains_key(&number)
                || self.numbers.contains_key(&name);
            (!known && self.numbers.len() < CAPACITY).then_some((number, name))
        };
        if let Some((number, name)) = entry() {
            self.enter(number, name);
        }
    }
}

fn address(number: u32, family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(NET_V4 + number).into(),
        Family::V6 => Ipv6Addr::from_bits(NET_V6 + u128::from(number)).into(),
    }
}

fn number(address: IpAddr) -> Option<u32> {
    let number = match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_bits().checked_sub(NET_V4)?,
        IpAddr::V6(v6) => u32::try_from(v6.to_bits().checked_sub(NET_V6)?).ok()?,
    };
    (FIRST..=LAST).contains(&number).then_some(number)
}

/// How many names a sandbox may use: half the addresses there are, so that probing stays short.
pub(super) const CAPACITY: usize = 65_536;

/// 198.18.0.0/15, set aside for bench tests of network devices (RFC 2544): never on a real path.
const NET_V4: u32 = Ipv4Addr::new(198, 18, 0, 0).to_bits();
/// `fd48:6f6c:6466:6173::/64`, a unique local prefix (RFC 4193) that spells "Holdfas".
const NET_V6: u128 = Ipv6Addr::new(0xfd48, 0x6f6c, 0x6466, 0x6173, 0, 0, 0, 0).to_bits();
/// Number 0 is the network itself and 1 is the address of the namespace's own `lo`.
const FIRST: u32 = 2;
/// The number before 198.19.255.255, the broadcast address.
const LAST: u32 = (1 << 17) - 2;

#[cfg(test)]
mod tests;
