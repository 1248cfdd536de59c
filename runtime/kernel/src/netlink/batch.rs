//! The requests that the kernel is sent, byte by byte (`rtnetlink(7)`, `linux/rtnetlink.h`, `linux/fib_rules.h`).

use std::net::IpAddr;

use super::HEADER;

/// Requests that are sent together, in order.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Where the last request begins.
    begin: usize,
    /// What each request is called; its position is its sequence number.
    calls: Vec<&'static str>,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A rule of the routing policy: where it stands, what it is about, and what becomes of it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Whose routing policy.
    pub family: Family,
    /// Its place: lower is asked first.
    pub priority: u32,
    /// Only what goes to this prefix, which is of the rule's family.
    pub to: Option<(IpAddr, u8)>,
    /// Only this kind of traffic.
    pub traffic: Traffic,
    /// What is done.
    pub action: Action,
}

/// What a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Everything.
    Any,
    /// UDP to any port.
    Udp,
    /// UDP to one port.
    UdpTo(u16),
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Routes by the table `local`.
    LookUpLocal,
    /// Refuses with `EACCES`.
    Prohibit,
}

impl Batch {
    /// No request yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the link `lo` up.
    pub fn loopback_up(&mut self) {
        self.open("netlink RTM_NEWLINK", libc::RTM_NEWLINK, 0);
        let up = libc::IFF_UP.cast_unsigned();
        self.link(up);
    }

    /// Gives `lo` one address, without a prefix around it.
    pub fn add_address(&mut self, address: IpAddr) {
        self.open("netlink RTM_NEWADDR", libc::RTM_NEWADDR, CREATE);
        let family = Family::of(address);
        let scope = libc::RT_SCOPE_UNIVERSE;
        self.put(&[family.number(), family.bits(), NO_DETECTION, scope]);
        self.put(&LOOPBACK.to_ne_bytes());
        self.attribute(libc::IFA_LOCAL, &octets(address));
        self.attribute(libc::IFA_ADDRESS, &octets(address));
    }

    /// Makes every address of `source`'s family local, and `source` the one that connections leave from
    /// (`ip route add local default dev lo table local src SOURCE`).
    pub fn add_local_default(&mut self, source: IpAddr) {
        self.open("netlink RTM_NEWROUTE", libc::RTM_NEWROUTE, CREATE);
        let family = Family::of(source);
        let scope = match family {
            Family::V4 => libc::RT_SCOPE_HOST,
            Family::V6 => libc::RT_SCOPE_UNIVERSE,
        };
        let (table, protocol, kind) = (libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT, libc::RTN_LOCAL);
        self.put(&[family.number(), 0, 0, 0, table, protocol, scope, kind]);
        self.put(&0_u32.to_ne_bytes());
        self.attribute(libc::RTA_OIF, &LOOPBACK.to_ne_bytes());
        self.attribute(libc::RTA_PREFSRC, &octets(source));
    }

    /// Adds a rule to the routing policy.
    pub fn add_rule(&mut self, rule: &Rule) {
        self.open("netlink RTM_NEWRULE", libc::RTM_NEWRULE, CREATE);
        self.rule(rule);
    }

    /// Removes the rule of the same place, traffic and action from the routing policy.
    pub fn remove_rule(&mut self, rule: &Rule) {
        self.open("netlink RTM_DELRULE", libc::RTM_DELRULE, 0);
        self.rule(rule);
    }

    /// Asks what the link `lo` is like.
    pub(super) fn ask_loopback(&mut self) {
        self.open("netlink RTM_GETLINK", libc::RTM_GETLINK, 0);
        self.link(0);
    }

    /// Which request is the last one so far.
    pub(super) fn last(&self) -> usize {
        self.calls.len().saturating_sub(1)
    }

    /// The requests' bytes, every length filled in, and their names in order.
    pub(crate) fn close(mut self) -> (Vec<u8>, Vec<&'static str>) {
        self.close_request();
        (self.bytes, self.calls)
    }

    /// As [`Batch::close`], the last request acknowledged even if it is obeyed.
    pub(super) fn close_acknowledged(mut self) -> (Vec<u8>, Vec<&'static str>) {
        if let Some(flags) = self.bytes.get_mut(self.begin + 6) {
            // NLM_F_ACK is one of the low eight bits.
            *flags |= u8::try_from(libc::NLM_F_ACK).unwrap_or_default();
        }
        self.close()
    }

    pub(super) fn open(&mut self, call: &'static str, kind: u16, flags: i32) {
        self.close_request();
        self.begin = self.bytes.len();
        let sequence = u32::try_from(self.calls.len()).unwrap_or(u32::MAX);
        let flags = u16::try_from(libc::NLM_F_REQUEST | flags).unwrap_or_default();
        self.calls.push(call);
        self.put(&[0; 4]);
        self.put(&kind.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&sequence.to_ne_bytes());
        self.put(&[0; 4]);
    }

    fn close_request(&mut self) {
        let request = &mut self.bytes[self.begin..];
        if request.len() >= HEADER {
            let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
            request[..4].copy_from_slice(&length.to_ne_bytes());
        }
    }

    /// `struct ifinfomsg`: `flags` are set, the others stay.
    fn link(&mut self, flags: u32) {
        self.put(&[0; 4]);
        self.put(&LOOPBACK.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
    }

    /// `struct fib_rule_hdr` and its attributes.
    fn rule(&mut self, rule: &Rule) {
        let (action, table) = match rule.action {
            Action::LookUpLocal => (FR_ACT_TO_TBL, libc::RT_TABLE_LOCAL),
            Action::Prohibit => (FR_ACT_PROHIBIT, libc::RT_TABLE_UNSPEC),
        };
        let bits = rule.to.map_or(0, |(_, bits)| bits);
        self.put(&[rule.family.number(), bits, 0, 0, table, 0, 0, action]);
        self.put(&0_u32.to_ne_bytes());
        self.attribute(FRA_PRIORITY, &rule.priority.to_ne_bytes());
        if let Some((address, _)) = rule.to {
            self.attribute(FRA_DST, &octets(address));
        }
        match rule.traffic {
            Traffic::Any => {}
            Traffic::Udp => self.attribute(FRA_IP_PROTO, &[UDP]),
            Traffic::UdpTo(port) => {
                self.attribute(FRA_IP_PROTO, &[UDP]);
                let port = port.to_ne_bytes();
                self.attribute(FRA_DPORT_RANGE, &[port, port].concat());
            }
        }
    }

    /// One `struct rtattr` and its value, padded to the next word.
    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.put(&length.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// An attribute that is made of others.
    pub(super) fn nest(&mut self, kind: u16, attributes: impl FnOnce(&mut Self)) {
        let begin = self.bytes.len();
        self.attribute(kind | NESTED, &[]);
        attributes(self);
        let length = u16::try_from(self.bytes.len() - begin).unwrap_or(u16::MAX);
        self.bytes[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

impl Family {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::V4 => AF_INET,
            Self::V6 => AF_INET6,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// What is made must not be there yet.
const CREATE: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
/// The index of `lo` in every network namespace (`LOOPBACK_IFINDEX` of the kernel).
const LOOPBACK: u32 = 1;
/// `IFA_F_NODAD`: nobody else can have the address, so it is usable at once.
const NO_DETECTION: u8 = 0x02;

/// `NLA_F_NESTED`
const NESTED: u16 = 1 << 15;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const UDP: u8 = 17;

// linux/fib_rules.h
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_PROHIBIT: u8 = 8;
const FRA_DST: u16 = 1;
const FRA_PRIORITY: u16 = 6;
const FRA_IP_PROTO: u16 = 22;
const FRA_DPORT_RANGE: u16 = 24;
