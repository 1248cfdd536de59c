//! Leading connections to one listener that nobody else in the namespace listens for (`nft(8)`, `linux/netfilter/nf_tables.h`).
//!
//! ```text
//! table inet holdfast
//!   chain arrive   prerouting
//!     a TCP connection begins      goto stray
//!   chain stray
//!     somebody else listens there  accept
//!     to an address of `led`       to the listener
//!     to lo's own addresses        accept: it is refused
//!                                  to the listener
//! ```
//!
//! The accepted socket's own address is still the destination that was asked for, and its port, too. What follows the first
//! packet finds its socket by itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sys::socket::SockProtocol;

use super::loopback::Own;
use super::{Batch, Netlink};
use crate::{Called, Result};

/// Addresses that have so many first bits in common.
pub type Prefix = (IpAddr, u8);

/// Leads every connection that nobody listens for to the listener on `port`, which has to be [transparent]: those to `led`, and
/// those to every address that is not one of `lo`'s own.
///
/// `EOPNOTSUPP`, `ENOENT` or `EPROTONOSUPPORT`: the kernel has no `nf_tables`, or not all that this needs of them; nothing was done.
///
/// [transparent]: crate::listen::transparent
pub fn lead(port: u16, own: Own, led: &[Prefix]) -> Result<()> {
    let (batch, acknowledged) = requests(port, own, led);
    Netlink::open_for(SockProtocol::NetlinkNetFilter)
        .called("socket NETLINK_NETFILTER")?
        .transact(batch, acknowledged)
}

/// What is asked of the kernel, and which of the requests is answered.
pub(crate) fn requests(port: u16, own: Own, led: &[Prefix]) -> (Batch, usize) {
    let loopback: [Prefix; 4] = [
        (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
        (IpAddr::V4(own.v4), 32),
        (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
        (IpAddr::V6(own.v6), 128),
    ];
    let mut batch = Batch::new();
    batch.netfilter("nftables begin", BATCH_BEGIN, 0, SUBSYSTEM);
    batch.table();
    batch.chain(ARRIVE, true);
    batch.chain(STRAY, false);
    batch.nft_rule(ARRIVE, 0, |rule| {
        rule.of_kind(META_L4PROTO, TCP);
        // A SYN without an ACK.
        rule.load(TRANSPORT, 13, 1);
        rule.mask(&[0x12]);
        rule.is(&[0x02]);
        rule.verdict(libc::NFT_GOTO, Some(STRAY));
    });
    batch.nft_rule(STRAY, 0, |rule| {
        rule.has_socket_of_another();
        rule.verdict(libc::NF_ACCEPT, None);
    });
    // All others are led anyway.
    for prefix in led
        .iter()
        .filter(|led| loopback.iter().any(|own| overlap(*own, **led)))
    {
        batch.nft_rule(STRAY, 0, |rule| {
            rule.to(*prefix);
            rule.lead_to(port);
        });
    }
    for prefix in loopback {
        batch.nft_rule(STRAY, 0, |rule| {
            rule.to(prefix);
            rule.verdict(libc::NF_ACCEPT, None);
        });
    }
    batch.nft_rule(STRAY, libc::NLM_F_ACK, |rule| rule.lead_to(port));
    let acknowledged = batch.last();
    batch.netfilter("nftables commit", BATCH_END, 0, SUBSYSTEM);
    (batch, acknowledged)
}

/// Whether an address is in both.
fn overlap(one: Prefix, other: Prefix) -> bool {
    let differing = match (one.0, other.0) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        _ => return false,
    };
    differing.leading_zeros() >= u32::from(one.1.min(other.1))
}

/// Requests of `nf_tables`.
impl Batch {
    /// A request's header, and `struct nfgenmsg`: family, version, resource.
    fn netfilter(&mut self, call: &'static str, kind: libc::c_int, flags: i32, resource: u16) {
        self.open(call, small(kind), flags);
        self.put(&[INET, 0]);
        self.put(&resource.to_be_bytes());
    }

    fn nft(&mut self, call: &'static str, kind: libc::c_int, flags: i32) {
        let create = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
        self.netfilter(
            call,
            libc::NFNL_SUBSYS_NFTABLES << 8 | kind,
            create | flags,
            0,
        );
    }

    fn table(&mut self) {
        self.nft("nftables new table", libc::NFT_MSG_NEWTABLE, 0);
        self.text(TABLE_NAME, TABLE);
    }

    /// An empty chain; a `hooked` one is asked about every packet that arrives.
    fn chain(&mut self, name: &str, hooked: bool) {
        self.nft("nftables new chain", libc::NFT_MSG_NEWCHAIN, 0);
        self.text(CHAIN_TABLE, TABLE);
        self.text(CHAIN_NAME, name);
        if hooked {
            self.nest(CHAIN_HOOK, |hook| {
                hook.number(HOOK_NUMBER, PREROUTING);
                hook.number(HOOK_PRIORITY, MANGLE.cast_unsigned());
            });
            self.text(CHAIN_TYPE, "filter");
        }
    }

    fn nft_rule(&mut self, chain: &str, flags: i32, expressions: impl FnOnce(&mut Self)) {
        self.nft("nftables new rule", libc::NFT_MSG_NEWRULE, flags);
        self.text(RULE_TABLE, TABLE);
        self.text(RULE_CHAIN, chain);
        self.nest(RULE_EXPRESSIONS, expressions);
    }
}

/// Expressions of a rule: each passes to the next one, or the rule is over.
impl Batch {
    /// The packet goes to this prefix.
    fn to(&mut self, (address, bits): Prefix) {
        let (family, offset, octets, all) = match address {
            IpAddr::V4(v4) => (libc::NFPROTO_IPV4, 16, v4.octets().to_vec(), 32),
            IpAddr::V6(v6) => (libc::NFPROTO_IPV6, 24, v6.octets().to_vec(), 128),
        };
        let mask = u128::MAX
            .checked_shl(u32::from(128_u8.saturating_sub(bits.min(all))))
            .unwrap_or(0)
            .to_be_bytes();
        let masked: Vec<u8> = octets
            .iter()
            .zip(mask)
            .map(|(it, mask)| it & mask)
            .collect();
        self.of_kind(META_NFPROTO, small(family));
        self.load(NETWORK, offset, u32::from(all / 8));
        self.mask(&mask[..octets.len()]);
        self.is(&masked);
    }

    /// `meta KEY VALUE`, of one byte.
    fn of_kind(&mut self, key: libc::c_int, value: u8) {
        self.expression("meta", |meta| {
            meta.number(META_KEY, key.cast_unsigned());
            meta.number(META_REGISTER, REGISTER);
        });
        self.is(&[value]);
    }

    /// Bytes of a header into the register.
    fn load(&mut self, header: u32, offset: u32, length: u32) {
        self.expression("payload", |payload| {
            payload.number(PAYLOAD_REGISTER, REGISTER);
            payload.number(PAYLOAD_BASE, header);
            payload.number(PAYLOAD_OFFSET, offset);
            payload.number(PAYLOAD_LENGTH, length);
        });
    }

    fn mask(&mut self, mask: &[u8]) {
        let nothing = [0; 16];
        self.expression("bitwise", |bitwise| {
            bitwise.number(BITWISE_FROM, REGISTER);
            bitwise.number(BITWISE_TO, REGISTER);
            bitwise.number(
                BITWISE_LENGTH,
                u32::try_from(mask.len()).unwrap_or_default(),
            );
            bitwise.nest(BITWISE_MASK, |data| data.attribute(DATA_VALUE, mask));
            bitwise.nest(BITWISE_XOR, |data| {
                data.attribute(DATA_VALUE, &nothing[..mask.len()]);
            });
        });
    }

    /// The register holds these bytes.
    fn is(&mut self, value: &[u8]) {
        self.expression("cmp", |cmp| {
            cmp.number(CMP_REGISTER, REGISTER);
            cmp.number(CMP_OPERATION, libc::NFT_CMP_EQ.cast_unsigned());
            cmp.nest(CMP_DATA, |data| data.attribute(DATA_VALUE, value));
        });
    }

    /// There is a socket that the packet is for, and it is none of the listener's: a connection of its that is over and has the
    /// addresses of this one makes room for it.
    fn has_socket_of_another(&mut self) {
        self.expression("socket", |socket| {
            socket.number(SOCKET_KEY, SOCKET_TRANSPARENT);
            socket.number(SOCKET_REGISTER, REGISTER);
        });
        self.is(&[0]);
    }

    fn verdict(&mut self, code: libc::c_int, chain: Option<&str>) {
        self.expression("immediate", |immediate| {
            immediate.number(IMMEDIATE_REGISTER, VERDICT);
            immediate.nest(IMMEDIATE_DATA, |data| {
                data.nest(DATA_VERDICT, |verdict| {
                    verdict.number(VERDICT_CODE, code.cast_unsigned());
                    if let Some(chain) = chain {
                        verdict.text(VERDICT_CHAIN, chain);
                    }
                });
            });
        });
    }

    /// The packet is for the listener on `port`.
    fn lead_to(&mut self, port: u16) {
        self.expression("immediate", |immediate| {
            immediate.number(IMMEDIATE_REGISTER, REGISTER);
            immediate.nest(IMMEDIATE_DATA, |data| {
                data.attribute(DATA_VALUE, &port.to_be_bytes());
            });
        });
        self.expression("tproxy", |tproxy| {
            tproxy.number(TPROXY_FAMILY, libc::NFPROTO_UNSPEC.cast_unsigned());
            tproxy.number(TPROXY_PORT, REGISTER);
        });
    }

    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Self)) {
        self.nest(LIST_ELEMENT, |element| {
            element.text(EXPRESSION_NAME, name);
            element.nest(EXPRESSION_DATA, data);
        });
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// A text with the zero byte at its end.
    fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, &[text.as_bytes(), &[0]].concat());
    }
}

/// Kinds and families are small numbers in narrower fields here.
fn small<T: TryFrom<libc::c_int> + Default>(number: libc::c_int) -> T {
    T::try_from(number).unwrap_or_default()
}

const TABLE: &str = "holdfast";
const ARRIVE: &str = "arrive";
const STRAY: &str = "stray";

const BATCH_BEGIN: libc::c_int = libc::NFNL_MSG_BATCH_BEGIN;
const BATCH_END: libc::c_int = libc::NFNL_MSG_BATCH_END;
/// `NFNL_SUBSYS_NFTABLES`, as the resource of a batch.
const SUBSYSTEM: u16 = 10;
/// `NFPROTO_INET`: IPv4 and IPv6.
const INET: u8 = 1;
/// `IPPROTO_TCP`
const TCP: u8 = 6;
/// `NF_INET_PRE_ROUTING`
const PREROUTING: u32 = 0;
/// `NF_IP_PRI_MANGLE`: before addresses are translated, which nobody does here.
const MANGLE: i32 = -150;
/// `NFT_REG_1`, the first of the registers; and that of verdicts.
const REGISTER: u32 = 1;
const VERDICT: u32 = 0;
/// `NFT_PAYLOAD_NETWORK_HEADER` and `NFT_PAYLOAD_TRANSPORT_HEADER`
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
const META_NFPROTO: libc::c_int = libc::NFT_META_NFPROTO;
const META_L4PROTO: libc::c_int = libc::NFT_META_L4PROTO;
/// `NFT_SOCKET_TRANSPARENT`
const SOCKET_TRANSPARENT: u32 = 0;

// Attributes: `NFTA_…`.
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
const META_REGISTER: u16 = 1;
const META_KEY: u16 = 2;
const PAYLOAD_REGISTER: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const BITWISE_FROM: u16 = 1;
const BITWISE_TO: u16 = 2;
const BITWISE_LENGTH: u16 = 3;
const BITWISE_MASK: u16 = 4;
const BITWISE_XOR: u16 = 5;
const CMP_REGISTER: u16 = 1;
const CMP_OPERATION: u16 = 2;
const CMP_DATA: u16 = 3;
const SOCKET_KEY: u16 = 1;
const SOCKET_REGISTER: u16 = 2;
const IMMEDIATE_REGISTER: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
const TPROXY_FAMILY: u16 = 1;
const TPROXY_PORT: u16 = 3;

#[cfg(test)]
mod tests;
