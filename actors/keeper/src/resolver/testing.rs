//! A name server and a policy for tests.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{Name as Label, RData, Record, RecordType};
use holdfast_observability::Decision;
use holdfast_policy::{Denied, Name, Reason};
use parking_lot::Mutex;

use super::answer::record;
use super::{Admission, DeniedName, Family, Ledger, Via};

/// What a [`NameServer`] says to one question.
#[derive(Debug, Clone)]
pub(super) enum Script {
    Addresses(u32, Vec<IpAddr>),
    Nothing(ResponseCode),
    Cut,
    Silence,
}

/// A question that reached a [`NameServer`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) family: Family,
    pub(super) tcp: bool,
}

/// Answers on one UDP and TCP port of the loopback as its script says, until it is dropped.
pub(super) struct NameServer {
    pub(super) address: SocketAddr,
    log: Arc<Mutex<Vec<Asked>>>,
    closing: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

type Play = dyn Fn(&Asked) -> Script + Send + Sync;

impl NameServer {
    pub(super) fn start(play: impl Fn(&Asked) -> Script + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets();
        let address = udp.local_addr().expect("an address");
        let log = Arc::new(Mutex::new(Vec::new()));
        let closing = Arc::new(AtomicBool::new(false));
        let play: Arc<Play> = Arc::new(play);
        let server = {
            let log = Arc::clone(&log);
            move |packet: &[u8], via: Via| respond(packet, via, play.as_ref(), &log)
        };
        let threads = vec![
            thread::spawn({
                let (server, closing) = (server.clone(), Arc::clone(&closing));
                move || serve_udp(&udp, &closing, server)
            }),
            thread::spawn({
                let closing = Arc::clone(&closing);
                move || serve_tcp(&tcp, &closing, server)
            }),
        ];
        Self {
            address,
            log,
            closing,
            threads,
        }
    }

    /// What was asked so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.log.lock().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        let waker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        waker.send_to(&[], self.address).expect("wake");
        drop(TcpStream::connect(self.address));
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic in the name server");
        }
    }
}

/// A UDP and a TCP socket with the same number.
fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().expect("an address")) {
            return (udp, tcp);
        }
    }
}

fn serve_udp(
    socket: &UdpSocket,
    closing: &AtomicBool,
    server: impl Fn(&[u8], Via) -> Option<Vec<u8>>,
) {
    let mut buffer = [0; 2048];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).expect("receive");
        if closing.load(Ordering::SeqCst) {
            return;
        }
        if let Some(reply) = server(&buffer[..length], Via::Udp) {
            socket.send_to(&reply, peer).expect("send");
        }
    }
}

fn serve_tcp(
    listener: &TcpListener,
    closing: &AtomicBool,
    server: impl Fn(&[u8], Via) -> Option<Vec<u8>>,
) {
    loop {
        let (mut stream, _) = listener.accept().expect("accept");
        if closing.load(Ordering::SeqCst) {
            return;
        }
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("a length");
        let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut packet).expect("a query");
        if let Some(reply) = server(&packet, Via::Tcp) {
            let length = u16::try_from(reply.len()).expect("short");
            stream.write_all(&length.to_be_bytes()).expect("write");
            stream.write_all(&reply).expect("write");
        }
    }
}

fn respond(packet: &[u8], via: Via, play: &Play, log: &Mutex<Vec<Asked>>) -> Option<Vec<u8>> {
    let query = Message::from_vec(packet).expect("the resolver sends queries");
    let question = query.queries[0].clone();
    let asked = Asked {
        name: question.name.to_ascii().trim_end_matches('.').to_owned(),
        family: if question.query_type == RecordType::AAAA {
            Family::V6
        } else {
            Family::V4
        },
        tcp: via == Via::Tcp,
    };
    log.lock().push(asked.clone());
    let mut reply = query.into_response();
    match play(&asked) {
        Script::Addresses(ttl, ips) => {
            let owner = question.name;
            let records = ips.into_iter().filter(|ip| Family::of(*ip) == asked.family);
            reply.add_answers(records.map(|ip| Record::from_rdata(owner.clone(), ttl, record(ip))));
        }
        Script::Nothing(code) => {
            reply.metadata.response_code = code;
            let root = Label::root();
            let soa = SOA::new(root.clone(), root.clone(), 1, 1, 1, 1, 20);
            reply.add_authority(Record::from_rdata(root, 20, RData::SOA(soa)));
        }
        Script::Cut => reply.metadata.truncation = true,
        Script::Silence => return None,
    }
    Some(reply.to_vec().expect("encodes"))
}

/// A policy that admits every name below `test`, and keeps private addresses from being dialled.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) hosts: Vec<(&'static str, Vec<IpAddr>)>,
}

impl Admission for Rules {
    fn admits_name(&self, name: &Name) -> bool {
        name.parents().last() == Some("test") && !name.as_str().starts_with("denied")
    }

    fn admits_address(&self, _: &Name, address: IpAddr) -> Result<(), Denied> {
        if address.to_canonical() == ip("10.0.0.5") {
            return Err(refusal());
        }
        Ok(())
    }

    fn hosts(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let mut hosts = self.hosts.iter();
        hosts
            .find(|(host, _)| *host == name.as_str())
            .map(|(_, ips)| ips.clone())
    }

    fn explain(&self, _: &Name) -> Option<Denied> {
        None
    }
}

/// A ledger to look into.
#[derive(Default)]
pub(super) struct Book(pub(super) Mutex<Vec<DeniedName>>);

impl Ledger for Book {
    fn denied(&self, denied: DeniedName) -> Decision {
        self.0.lock().push(denied);
        Decision::new(SystemTime::UNIX_EPOCH)
    }
}

/// Why an address may not be dialled.
pub(super) fn refusal() -> Denied {
    Denied {
        reason: Reason::AddressPrivate,
        nearest: None,
        hint: "list it".to_owned(),
    }
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(super) fn host(text: &str) -> Name {
    text.parse().expect("a host name")
}
