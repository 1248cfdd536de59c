//! Reads questions off the wire and writes replies back onto it. Pure.
//!
//! ```text
//! packet ─ read ─┬─ Query ── reply(Reply) ── bytes, cut to what the client can take
//!                ├─ Refused(bytes): it can be answered without knowing what it asks
//!                └─ Silence: answering would be wrong (a response, or not even a header)
//! ```
//!
//! Invariant: a reply carries the id and the question of its query, byte for byte, so that clients
//! which mix upper and lower case as a defence recognise it (0x20).

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name as Label, RData, Record};
use holdfast_observability::Decision;

use super::counters::Outcome;

/// How a query came, which decides how long a reply may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// One datagram: the reply is cut to what the client takes.
    Udp,
    /// A stream with length prefixes: a reply may have any size.
    Tcp,
}

/// A question that can be considered.
#[derive(Debug, Clone)]
pub(super) struct Query {
    id: u16,
    recursion_desired: bool,
    checking_disabled: bool,
    question: Question,
    edns: Option<Offer>,
    via: Via,
}

/// What the client's OPT record offered.
#[derive(Debug, Clone, Copy)]
struct Offer {
    payload: u16,
    dnssec_ok: bool,
}

/// What a packet turned out to be.
#[derive(Debug)]
pub(super) enum Packet {
    Query(Query),
    Refused(Vec<u8>, Outcome),
    Silence,
}

/// What is said in reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// The records that were asked for.
    Records { ttl: u32, data: Vec<RData> },
    /// The name exists, such a record does not.
    NoData,
    /// The name does not exist.
    NoSuchName,
    /// No rule of the policy could match the name.
    Denied(Decision),
    /// It has such records, but no rule lets their addresses be dialled.
    Withheld(Decision),
    /// It could not be found out.
    Failed,
    /// Nothing but the IN class is served.
    Refused,
}

/// Reads one packet.
pub(super) fn read(packet: &[u8], via: Via) -> Packet {
    let Some(header) = packet.first_chunk::<HEADER>() else {
        return Packet::Silence;
    };
    // A response is never answered: two resolvers would talk to each other for ever.
    if header[2] & RESPONSE != 0 {
        return Packet::Silence;
    }
    if header[2] & OPCODE != 0 {
        let reply = bare(header, ResponseCode::NotImp);
        return Packet::Refused(reply, Outcome::NotImplemented);
    }
    let malformed = || Packet::Refused(bare(header, ResponseCode::FormErr), Outcome::Malformed);
    let Ok(mut message) = Message::from_vec(packet) else {
        return malformed();
    };
    let (Some(question), true) = (message.queries.pop(), message.queries.is_empty()) else {
        return malformed();
    };
    let query = Query {
        id: message.metadata.id,
        recursion_desired: message.metadata.recursion_desired,
        checking_disabled: message.metadata.checking_disabled,
        question,
        edns: message.edns.as_ref().map(Offer::of),
        via,
    };
    if message.edns.is_some_and(|edns| edns.version() > 0) {
        let reply = query.encode(&query.response(ResponseCode::BADVERS));
        return Packet::Refused(reply, Outcome::NotImplemented);
    }
    Packet::Query(query)
}

impl Query {
    pub(super) fn question(&self) -> &Question {
        &self.question
    }

    pub(super) fn is_internet(&self) -> bool {
        self.question.query_class == DNSClass::IN
    }

    /// The bytes that say `reply`.
    pub(super) fn reply(&self, reply: Reply) -> Vec<u8> {
        let code = match reply {
            Reply::Records { .. } | Reply::NoData | Reply::Withheld(_) => ResponseCode::NoError,
            Reply::NoSuchName | Reply::Denied(_) => ResponseCode::NXDomain,
            Reply::Failed => ResponseCode::ServFail,
            Reply::Refused => ResponseCode::Refused,
        };
        let mut message = self.response(code);
        match reply {
            Reply::Records { ttl, data } => {
                let owner = &self.question.name;
                let records = data.into_iter();
                message
                    .add_answers(records.map(|data| Record::from_rdata(owner.clone(), ttl, data)));
            }
            Reply::NoData | Reply::NoSuchName => {
                message.add_authority(start_of_authority());
            }
            Reply::Denied(decision) | Reply::Withheld(decision) => {
                message.add_authority(start_of_authority());
                if let Some(edns) = &mut message.edns {
                    edns.options_mut().insert(blocked(decision));
                }
            }
            Reply::Failed | Reply::Refused => {}
        }
        self.encode(&message)
    }

    fn response(&self, code: ResponseCode) -> Message {
        let mut message = Message::new(self.id, MessageType::Response, OpCode::Query);
        message.metadata.recursion_desired = self.recursion_desired;
        message.metadata.recursion_available = true;
        message.metadata.checking_disabled = self.checking_disabled;
        message.metadata.response_code = code;
        message.add_query(self.question.clone());
        message.edns = self.edns.map(Offer::answer);
        message
    }

    fn encode(&self, message: &Message) -> Vec<u8> {
        let whole = message.to_vec();
        let fitting = match whole {
            Ok(bytes) if bytes.len() > self.limit() => message.truncate().to_vec(),
            Ok(_) | Err(_) => whole,
        };
        fitting.unwrap_or_else(|_| {
            let [high, low] = self.id.to_be_bytes();
            let mut header = [0; HEADER];
            header[..2].copy_from_slice(&[high, low]);
            bare(&header, ResponseCode::ServFail)
        })
    }

    fn limit(&self) -> usize {
        let limit = match (self.via, self.edns) {
            (Via::Tcp, _) => u16::MAX,
            (Via::Udp, None) => PLAIN_PAYLOAD,
            (Via::Udp, Some(offer)) => offer.payload.clamp(PLAIN_PAYLOAD, PAYLOAD),
        };
        usize::from(limit)
    }
}

impl Offer {
    fn of(edns: &Edns) -> Self {
        Self {
            payload: edns.max_payload(),
            dnssec_ok: edns.flags().dnssec_ok,
        }
    }

    /// RFC 6891 wants an OPT for an OPT, RFC 3225 the DO bit copied; no option is understood here.
    fn answer(self) -> Edns {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        edns.set_dnssec_ok(self.dnssec_ok);
        edns
    }
}

/// A reply of nothing but a header, for what cannot be read further.
fn bare(header: &[u8; HEADER], code: ResponseCode) -> Vec<u8> {
    let mut reply = vec![0; HEADER];
    reply[..2].copy_from_slice(&header[..2]);
    reply[2] = RESPONSE | (header[2] & (OPCODE | RECURSION_DESIRED));
    reply[3] = code.low();
    reply
}

/// RFC 2308: without one, a client either does not remember a negative answer or does so for as
/// long as it likes. The root owns it, which is above every name.
fn start_of_authority() -> Record {
    let root = Label::root();
    let soa = SOA::new(
        root.clone(),
        root.clone(),
        1,
        HOUR,
        HOUR,
        HOUR,
        NEGATIVE_TTL,
    );
    Record::from_rdata(root, NEGATIVE_TTL, RData::SOA(soa))
}

/// The extended error (RFC 8914) by which `dig` and others show a denial for what it is.
fn blocked(decision: Decision) -> EdnsOption {
    let text = format!("denied by the policy of the sandbox, decision {decision}");
    let mut data = BLOCKED.to_be_bytes().to_vec();
    data.extend(text.into_bytes());
    EdnsOption::Unknown(EXTENDED_ERROR, data)
}

/// How many seconds a negative answer may be remembered: the policy may change in the next minute.
pub(super) const NEGATIVE_TTL: u32 = 5;

const HEADER: usize = 12;
const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
/// The longest datagram that is sent, so that none is ever fragmented (DNS flag day 2020).
const PAYLOAD: u16 = 1232;
/// The longest datagram for a client without EDNS (RFC 1035).
const PLAIN_PAYLOAD: u16 = 512;
const HOUR: i32 = 3600;
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: u16 = 15;

#[cfg(test)]
mod tests;
