//! Names that no rule could match never leave the host; the others resolve at once. (Promise 5.)

use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use holdfast_tests::probe::{answers, probe};
use holdfast_tests::servers::{FOUR, SIX, tcp};
use holdfast_tests::{Area, Finished, Policy, Run, everyone, skip};
use std::net::IpAddr;
use std::str::FromStr as _;

fn query(name: &str, kind: RecordType) -> Message {
    let mut query = Query::query(Name::from_str(name).expect("a name"), kind);
    query.set_query_class(DNSClass::IN);
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(query);
    message
}

fn hex(message: &Message) -> String {
    let bytes = message.to_vec().expect("encode");
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The answer that a `dns` attempt of the probe printed.
fn reply(done: &Finished) -> Message {
    let text = answers(&done.stdout)
        .remove("hex")
        .unwrap_or_else(|| panic!("no answer: {done}"));
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex"))
        .collect();
    Message::from_vec(&bytes).unwrap_or_else(|error| panic!("{error}: {done}"))
}

fn addresses(message: &Message) -> Vec<IpAddr> {
    message
        .answers
        .iter()
        .filter_map(|record| record.data.ip_addr())
        .collect()
}

fn ask<'a>(area: &'a Area, policy: &Policy, way: &str, server: &str, message: &Message) -> Run<'a> {
    Run::new(area, policy).attempt(&format!("dns {way} {server} {}", hex(message)))
}

fn both() -> Policy {
    Policy::offline()
        .host("origin.test", &[FOUR, SIX])
        .rule("origin", "origin.test", 443)
}

#[test]
fn an_allowed_name_resolves_from_any_server_address_over_udp_and_tcp() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        for way in ["udp", "tcp"] {
            for server in ["9.9.9.9", "127.0.0.53", "10.1.2.3", "2001:db8::53", "::1"] {
                let message = query("OriGin.TEST.", RecordType::A);
                let done = ask(&area, &both(), way, server, &message).finish();
                let reply = reply(&done);
                assert_eq!(
                    reply.metadata.response_code,
                    ResponseCode::NoError,
                    "{done}"
                );
                assert_eq!(reply.metadata.id, message.metadata.id, "{done}");
                let same = reply.queries[0].name().eq_case(message.queries[0].name());
                assert!(same, "the question comes back letter by letter: {done}");
                assert_eq!(done.answer("from"), format!("{server}|53"), "{done}");
                assert_eq!(addresses(&reply).len(), 1, "{done}");
                let took: u64 = done.answer("ms").parse().expect("milliseconds");
                assert!(took < 1000, "{took} ms: {done}");
            }
        }
    }
}

#[test]
fn answers_are_synthetic_and_of_the_family_that_was_asked() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        for (kind, beginning) in [
            (RecordType::A, "198.1"),
            (RecordType::AAAA, "fd48:6f6c:6466:6173:"),
        ] {
            let done = ask(
                &area,
                &both(),
                "udp",
                "9.9.9.9",
                &query("origin.test.", kind),
            )
            .finish();
            let all = addresses(&reply(&done));
            assert_eq!(all.len(), 1, "{done}");
            assert!(all[0].to_string().starts_with(beginning), "{done}");
        }
    }
}

#[test]
fn a_family_or_type_without_an_answer_is_nodata_and_not_a_missing_name() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let four = Policy::origin(443);
        let six = Policy::offline()
            .host("origin.test", &[SIX])
            .rule("origin", "origin.test", 443);
        let cases = [
            (&four, RecordType::AAAA),
            (&six, RecordType::A),
            (&four, RecordType::TXT),
            (&four, RecordType::SRV),
            (&four, RecordType::HTTPS),
            (&four, RecordType::CAA),
            (&four, RecordType::Unknown(65280)),
        ];
        for (policy, kind) in cases {
            let done = ask(
                &area,
                policy,
                "udp",
                "9.9.9.9",
                &query("origin.test.", kind),
            )
            .finish();
            let reply = reply(&done);
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::NoError,
                "{kind}: {done}"
            );
            assert!(reply.answers.is_empty(), "{kind}: {done}");
        }
    }
}

#[test]
fn a_denied_name_does_not_exist_in_any_family_and_leaves_a_record() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        for kind in [RecordType::A, RecordType::AAAA] {
            for name in [
                "denied.test.",
                "origin.test.denied.test.",
                "xorigin.test.",
                "test.",
            ] {
                let done = ask(&area, &both(), "udp", "9.9.9.9", &query(name, kind)).finish();
                let reply = reply(&done);
                assert_eq!(
                    reply.metadata.response_code,
                    ResponseCode::NXDomain,
                    "{name}: {done}"
                );
                let took: u64 = done.answer("ms").parse().expect("milliseconds");
                assert!(took < 500, "{took} ms: {done}");
                let records: Vec<_> = done
                    .records
                    .iter()
                    .filter(|it| it.number("class_uid") == Some(4003))
                    .collect();
                assert_eq!(records.len(), 1, "{done}");
                assert!(!records[0].allowed(), "{done}");
                assert_eq!(
                    records[0].text("host"),
                    name.trim_end_matches('.'),
                    "{done}"
                );
            }
        }
    }
}

#[test]
fn edns_is_answered_when_it_was_asked() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let plain = ask(
            &area,
            &both(),
            "udp",
            "9.9.9.9",
            &query("origin.test.", RecordType::A),
        );
        let plain = plain.finish();
        assert!(reply(&plain).edns.is_none(), "{plain}");

        let mut message = query("origin.test.", RecordType::A);
        let mut edns = Edns::new();
        edns.set_max_payload(4096);
        message.set_edns(edns.clone());
        let done = ask(&area, &both(), "udp", "9.9.9.9", &message).finish();
        assert!(reply(&done).edns.is_some(), "{done}");
        assert_eq!(addresses(&reply(&done)).len(), 1, "{done}");

        edns.set_version(1);
        message.set_edns(edns);
        let done = ask(&area, &both(), "udp", "9.9.9.9", &message).finish();
        let reply = reply(&done);
        // BADVERS is 16: its high bits stand in the option, its low ones in the header.
        assert_eq!(reply.edns.map(|it| it.rcode_high()), Some(1), "{done}");
    }
}

#[test]
fn libc_finds_names_with_search_domains_and_a_last_dot() {
    let Some(python) = skip::program("python3") else {
        return;
    };
    let line = "
import socket, sys, time
for name in sys.argv[1:]:
    began = time.monotonic()
    try:
        found = sorted({it[4][0] for it in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)})
        print(name, len(found))
    except socket.gaierror as error:
        print(name, {socket.EAI_NONAME: 'NONAME'}.get(error.errno, error))
    assert time.monotonic() - began < 2, 'slow'
";
    for area in everyone() {
        for environment in ["", "ndots:5", "ndots:5 timeout:1 attempts:1"] {
            let names = [
                "origin.test",
                "origin.test.",
                "ORIGIN.test",
                "denied.test",
                "localhost",
            ];
            let words = [python.to_str().expect("text"), "-c", line];
            let done = Run::new(&area, &both())
                .option("--env")
                .option(format!("RES_OPTIONS={environment}"))
                .option("--env")
                .option("LOCALDOMAIN=corp.test svc.test")
                .command(words.iter().chain(&names))
                .finish();
            done.exited(0);
            let text = done.text();
            for name in &names[..3] {
                assert!(
                    text.contains(&format!("{name} 2\n")),
                    "both families of {name}: {done}"
                );
            }
            assert!(
                text.contains("denied.test NONAME\n"),
                "a permanent answer: {done}"
            );
            assert!(!text.contains("localhost NONAME"), "{done}");
        }
    }
}

#[test]
fn many_queries_at_once_are_all_answered() {
    let Some(python) = skip::program("python3") else {
        return;
    };
    let line = "
import os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
ids = set(range(1000, 1200))
for i in ids:
    s.sendto(struct.pack('>6H', i, 0x100, 1, 0, 0, 0) + b'\\x06origin\\x04test\\0\\0\\1\\0\\1', ('192.0.2.53', 53))
left = set(ids)
while left:
    answer, peer = s.recvfrom(2048)
    assert peer == ('192.0.2.53', 53), peer
    left.discard(struct.unpack('>H', answer[:2])[0])
print('all')
";
    for area in everyone() {
        let done = Run::new(&area, &both())
            .command([python.as_os_str(), "-c".as_ref(), line.as_ref()])
            .finish();
        assert_eq!(done.text(), "all\n", "{done}");
    }
}

#[test]
fn an_address_stays_its_names_for_the_life_of_the_sandbox() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let policy = Policy::origin(server.port())
            .host("other.test", &[FOUR])
            .rule("other", "other.test", server.port());
        let it = probe.display();
        let port = server.port();
        let line = format!(
            "for n in 1 2 3; do for h in origin.test other.test; do {it} talk $h {port} x | grep peer; \
             {it} connect $h {port} | grep peer; done; done | sort | uniq -c"
        );
        let done = Run::new(&area, &policy).shell(&line).finish();
        let lines: Vec<_> = done.text().lines().map(|it| it.trim().to_owned()).collect();
        assert_eq!(lines.len(), 2, "two names, two addresses: {done}");
        assert!(
            lines.iter().all(|line| line.starts_with("3 peer=198.1")),
            "{done}"
        );
    }
}
