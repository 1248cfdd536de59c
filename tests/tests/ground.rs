//! What the other tests stand on: outside the sandbox the attempts succeed and the servers do what they say. Where that did not hold, a refusal inside
//! would prove nothing.

use holdfast_tests::probe::{outside, probe};
use holdfast_tests::servers::refusing::{Blackhole, Refusing};
use holdfast_tests::servers::{FOUR, SIX, http, tcp};
use std::net::UdpSocket;
use std::time::Duration;

#[test]
fn outside_an_echo_server_echoes_on_both_families() {
    if probe().is_none() {
        return;
    }
    for ip in [FOUR, SIX] {
        let server = tcp::echo(ip);
        let said = outside(&format!("talk {ip} {} hello", server.port()));
        assert_eq!(said["connect"], "ok");
        assert_eq!(said["head"], "hello");
        assert_eq!(server.accepted(), 1);
    }
}

#[test]
fn outside_the_half_closing_server_answers_after_the_end() {
    if probe().is_none() {
        return;
    }
    let server = tcp::half_closing(FOUR, 1 << 20);
    let said = outside(&format!("talk {FOUR} {} question", server.port()));
    assert_eq!(said["bytes"], (1 << 20).to_string());
}

#[test]
fn outside_a_refusing_port_refuses_and_a_blackhole_never_answers() {
    if probe().is_none() {
        return;
    }
    let (refusing, hole) = (Refusing::at(FOUR), Blackhole::at(FOUR));
    assert_eq!(
        outside(&format!("connect {FOUR} {}", refusing.port()))["connect"],
        "ECONNREFUSED"
    );
    let said = outside(&format!("poll-connect {FOUR} {} 300", hole.port()));
    assert_eq!(said["poll"], "timeout");
}

#[test]
fn outside_udp_and_fast_open_arrive() {
    if probe().is_none() {
        return;
    }
    let socket = UdpSocket::bind((FOUR, 0)).expect("bind");
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a limit");
    let port = socket.local_addr().expect("an address").port();
    assert_eq!(outside(&format!("udp {FOUR} {port}"))["sendto"], "ok");
    let mut byte = [0];
    assert_eq!(socket.recv(&mut byte).expect("hear it"), 1);
    let server = tcp::echo(FOUR);
    assert_eq!(
        outside(&format!("fastopen {FOUR} {}", server.port()))["sendto"],
        "ok"
    );
}

#[test]
fn outside_the_http_servers_answer() {
    let Some(curl) = holdfast_tests::skip::program("curl") else {
        return;
    };
    let authority = http::Authority::new();
    let (plain, secure) = (
        http::http(FOUR),
        http::https(FOUR, &authority, "origin.test"),
    );
    let pem = holdfast_tests::artefacts::base().join("ground.pem");
    std::fs::write(&pem, authority.pem()).expect("write the certificate");
    let ask = |more: &[&str]| {
        let mut curl = std::process::Command::new(&curl);
        let said = curl
            .args(["-sS", "--max-time", "20"])
            .args(more)
            .output()
            .expect("run curl");
        String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
    };
    assert_eq!(
        ask(&[&format!("http://{FOUR}:{}/", plain.port())]),
        http::GREETING
    );
    let resolve = format!("origin.test:{}:{FOUR}", secure.port());
    let url = format!("https://origin.test:{}/", secure.port());
    let trust = pem.to_str().expect("text");
    assert_eq!(
        ask(&["--cacert", trust, "--resolve", &resolve, &url]),
        http::GREETING
    );
}
