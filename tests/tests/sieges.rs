//! What `holdfast-chaos` does to a sandbox that is there.

use holdfast_tests::artefacts::chaos;
use holdfast_tests::servers::tcp;
use holdfast_tests::{Finished, Host, Policy, everyone};
use std::net::TcpListener;

/// Every probe would fail, and a sandbox that is rightly Ready would be judged as falsely so.
#[test]
fn an_attack_whose_server_is_not_there_is_refused_at_its_start() {
    for area in everyone() {
        let host = Host::new(&area);
        let port = {
            let free = TcpListener::bind("127.0.0.1:0").expect("bound");
            free.local_addr().expect("bound").port()
        };
        let served = tcp::echo("127.0.0.1");
        let policy = Policy::origin(port).rule("served", "origin.test", served.port());
        area.file(&area.work().join("policy.yaml"), policy.text());
        let calm = "name: calm\ndescription: d\nduration: 1s\nsettle: 0s\n";
        area.file(&area.work().join("calm.yaml"), calm);
        host.ready("qa", "--policy policy.yaml");
        let absent = format!("origin.test:{port}");

        for (options, whose) in [
            (String::new(), "the first server that its policy names"),
            (format!("--connect {absent}"), "the server of --connect"),
        ] {
            let refused = attack(&host, &options);
            assert_eq!(refused.code(), Some(125), "{refused}");
            let why = format!("reach {absent}, {whose}, from inside qa: ");
            assert!(refused.stderr.contains(&why), "{refused}");
            assert!(refused.stderr.contains("name another"), "{refused}");
            let left = host.shell("qa", "ls /tmp");
            assert_eq!(left.text(), "", "nothing of it stays: {left}");
        }

        let done = attack(&host, &format!("--connect origin.test:{}", served.port()));
        assert!(done.text().contains("ok    the siege took place"), "{done}");
    }
}

/// Attacks without a fault.
fn attack(host: &Host<'_>, options: &str) -> Finished {
    let line = format!(
        "exec {} run ./calm.yaml --sandbox qa -q {options}",
        chaos().display()
    );
    host.say("").under(["sh", "-c", &line]).finish()
}
