//! A small name server with a log of what it was asked.

use super::{RUNTIME, address};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// What the server says about one name.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These addresses with this time to live in seconds; a family without one gets NODATA.
    Addresses(Vec<IpAddr>, u32),
    /// Over UDP only "truncated", over TCP these addresses.
    Large(Vec<IpAddr>),
    /// "The server failed."
    Failure,
    /// Nothing at all.
    Silence,
}

/// A name server on port 53 of a loopback address.
#[derive(Debug)]
pub struct Dns {
    asked: Arc<Mutex<Vec<(String, RecordType)>>>,
    tasks: [JoinHandle<()>; 2],
}

type Zone = BTreeMap<String, Answer>;

impl Dns {
    /// Serves these names at this address. `None` where port 53 may not be taken.
    pub fn at(ip: &str, names: &[(&str, Answer)]) -> Option<Self> {
        let at = SocketAddr::new(address(ip), 53);
        let udp = RUNTIME.block_on(UdpSocket::bind(at)).ok()?;
        let tcp = RUNTIME.block_on(TcpListener::bind(at)).ok()?;
        let zone: Zone = names
            .iter()
            .map(|(name, answer)| ((*name).to_owned(), answer.clone()))
            .collect();
        let zone = Arc::new(zone);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let tasks = [
            RUNTIME.spawn(over_udp(udp, Arc::clone(&zone), Arc::clone(&asked))),
            RUNTIME.spawn(over_tcp(tcp, zone, Arc::clone(&asked))),
        ];
        Some(Self { asked, tasks })
    }

    /// Everything that was asked, in order, names in lower case and without the last dot.
    pub fn asked(&self) -> Vec<(String, RecordType)> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        for task in &mut self.tasks {
            task.abort();
            // Until it has ended it has its socket, and the next server wants its place.
            drop(RUNTIME.block_on(task));
        }
    }
}

type Asked = Arc<Mutex<Vec<(String, RecordType)>>>;

async fn over_udp(socket: UdpSocket, zone: Arc<Zone>, asked: Asked) {
    let mut buffer = vec![0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
        if let Some(answer) = answer(&buffer[..length], &zone, &asked, false) {
            drop(socket.send_to(&answer, from).await);
        }
    }
}

async fn over_tcp(listener: TcpListener, zone: Arc<Zone>, asked: Asked) {
    while let Ok((stream, _)) = listener.accept().await {
        drop(one_by_tcp(stream, &zone, &asked).await);
    }
}

async fn one_by_tcp(mut stream: TcpStream, zone: &Zone, asked: &Asked) -> std::io::Result<()> {
    loop {
        let length = stream.read_u16().await?;
        let mut query = vec![0; usize::from(length)];
        stream.read_exact(&mut query).await?;
        if let Some(answer) = answer(&query, zone, asked, true) {
            stream
                .write_u16(u16::try_from(answer.len()).unwrap_or(u16::MAX))
                .await?;
            stream.write_all(&answer).await?;
        }
    }
}

fn answer(query: &[u8], zone: &Zone, asked: &Asked, whole: bool) -> Option<Vec<u8>> {
    let query = Message::from_vec(query).ok()?;
    let question = query.queries.first()?.clone();
    let name = question.name().to_lowercase().to_ascii();
    let name = name.trim_end_matches('.').to_owned();
    let kind = question.query_type();
    let known = zone.get(&name).cloned();
    asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((name, kind));
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    match known {
        Some(Answer::Silence) => return None,
        Some(Answer::Failure) => reply.metadata.response_code = ResponseCode::ServFail,
        Some(Answer::Large(_)) if !whole => reply.metadata.truncation = true,
        Some(Answer::Large(all)) => fill(&mut reply, question.name(), kind, &all, 60),
        Some(Answer::Addresses(all, ttl)) => fill(&mut reply, question.name(), kind, &all, ttl),
        None => reply.metadata.response_code = ResponseCode::NXDomain,
    }
    reply.add_query(question);
    reply.to_vec().ok()
}

fn fill(reply: &mut Message, name: &Name, kind: RecordType, all: &[IpAddr], ttl: u32) {
    for address in all {
        let data = match address {
            IpAddr::V4(four) => RData::A(A(*four)),
            IpAddr::V6(six) => RData::AAAA(AAAA(*six)),
        };
        if data.record_type() == kind {
            reply.add_answer(Record::from_rdata(name.clone(), ttl, data));
        }
    }
}
