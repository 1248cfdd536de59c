//! The gateway: what it acknowledges is kept, whoever dies; what it refuses it names.

use holdfast_tests::artefacts::holdfast;
use holdfast_tests::daemon::{Gateway, refused, request, said};
use holdfast_tests::limit::descriptors;
use holdfast_tests::wait::{LONG, holds_within, now, until};
use holdfast_tests::{Area, Caller, Finished, Run, everyone};
use holdfast_wire::{problem, v1};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1alpha;

fn reason(status: &tonic::Status) -> String {
    problem::of(status)
        .unwrap_or_else(|| panic!("no problem in {status:?}"))
        .reason
}

#[test]
fn a_second_gateway_on_one_state_or_runtime_directory_hears_the_pid_of_the_first() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let elsewhere = area.directory(&area.root().join("elsewhere"));
        let elsewhere = elsewhere.to_str().expect("text");

        for options in [
            vec![],
            vec!["--state-dir", elsewhere],
            vec!["--runtime-dir", elsewhere],
        ] {
            let said = refused(&area, &options);

            assert_eq!(said.code, Some(125), "{}", said.stderr);
            assert!(
                said.stderr.contains(&format!("pid {}", gateway.pid())),
                "{}",
                said.stderr
            );
        }
        assert_eq!(gateway.stop(), Some(0));
        assert!(!area.runtime().join("gateway.pid").exists());
    }
}

/// Half of the time that calls under way would have.
#[test]
fn a_gateway_with_nothing_under_way_ends_at_once() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let told = now();
        assert_eq!(gateway.stop(), Some(0));
        assert!(told.elapsed() < Duration::from_secs(1), "it waited");
    }
}

#[test]
fn directories_are_the_owners_own_and_the_socket_too() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let mode = |path: std::path::PathBuf| {
            fs::metadata(path).expect("there").permissions().mode() & 0o777
        };

        assert_eq!(mode(area.runtime().join("gateway.sock")), 0o600);
        assert_eq!(mode(area.runtime().join("sandboxes")), 0o700);
        assert_eq!(mode(area.state().join("registry.redb")), 0o600);
        let open = area.directory(&area.root().join("open"));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened");
        let said = refused(&area, &["--state-dir", open.to_str().expect("text")]);
        assert!(
            said.stderr.contains("others may write to it"),
            "{}",
            said.stderr
        );
        drop(gateway);
        cleared(&area);
    }
}

/// Whatever is acknowledged is on disk: the process may be killed at any instant.
#[test]
fn a_sandbox_that_was_acknowledged_is_there_after_a_kill() {
    for area in everyone() {
        let mut gateway = Gateway::start(&area, &[]);
        let mut expected = Vec::new();
        for number in 0..5 {
            let name = format!("qa-{number}");
            let made = gateway.create(request(&area, &name)).expect("made");
            assert_eq!(made.id.len(), 26);
            expected.push(name);
            gateway.kill();
            gateway = Gateway::start(&area, &[]);
        }

        assert_eq!(gateway.names(), expected);
        for name in &expected {
            gateway.delete(name, true).expect("deleted");
        }
        assert_eq!(gateway.names(), Vec::<String>::new());
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

#[test]
fn a_create_that_is_refused_frees_its_name_and_says_everything_that_is_wrong() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let wrong = v1::CreateRequest {
            policy: "version: 1\nnetwork: {}\nprocesss: {}\n".to_owned(),
            policy_name: "p.yaml".to_owned(),
            ..request(&area, "qa")
        };

        let error = gateway.create(wrong).expect_err("the policy is wrong");

        assert_eq!(
            (error.code(), &*reason(&error)),
            (Code::InvalidArgument, "PolicyInvalid")
        );
        assert!(
            error.message().contains("p.yaml:2:") && error.message().contains("p.yaml:3:"),
            "{error}"
        );
        let error = gateway
            .create(request(&area, "Not-A-Name"))
            .expect_err("no name");
        assert_eq!(reason(&error), "InvalidName");
        gateway
            .create(request(&area, "qa"))
            .expect("the name is free");
        let error = gateway.create(request(&area, "qa")).expect_err("taken");
        assert_eq!(
            (error.code(), &*reason(&error)),
            (Code::AlreadyExists, "NameTaken")
        );
        gateway.delete("qa", true).expect("deleted");
        gateway.create(request(&area, "qa")).expect("free again");
        gateway.delete("qa", true).expect("deleted");
        nothing_is_left(&area);
        assert_eq!(gateway.stop(), Some(0));
    }
}

#[test]
fn what_is_not_there_is_named() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);

        let error = gateway.get("nobody").expect_err("not there");
        assert_eq!(
            (error.code(), &*reason(&error)),
            (Code::NotFound, "NoSuchSandbox")
        );
        let decision = "01JX0000000000000000000000".to_owned();
        let error =
            gateway.ask(|mut client| async move { client.why(v1::WhyRequest { decision }).await });
        assert_eq!(reason(&error.expect_err("not there")), "NoSuchDecision");
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// A newer schema is refused by name, not read by guess.
#[test]
fn a_registry_that_is_damaged_is_refused_by_name() {
    for area in everyone() {
        area.file(&area.state().join("registry.redb"), vec![b'x'; 4096]);

        let said = refused(&area, &[]);

        assert_eq!(said.code, Some(125));
        assert!(
            said.stderr.contains("registry.redb") && said.stderr.contains("move it away"),
            "{}",
            said.stderr
        );
        cleared(&area);
    }
}

#[test]
fn tcp_needs_mutual_tls_and_what_is_not_there_yet_is_refused() {
    for area in everyone() {
        let said = refused(&area, &["--listen", "tcp:127.0.0.1:0"]);
        assert_eq!(said.code, Some(2), "{}", said.stderr);
        assert!(said.stderr.contains("--tls-client-ca"), "{}", said.stderr);

        let said = refused(&area, &["--otlp", "http://127.0.0.1:4317"]);
        assert!(said.stderr.contains("not supported yet"), "{}", said.stderr);
    }
}

#[test]
fn reflection_names_the_services_and_health_answers() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        let channel = gateway.channel().expect("connected");
        gateway.create(request(&area, "qa")).expect("made");

        let (services, own, unknown, sandbox) = gateway.wait(async {
            let mut reflection = ServerReflectionClient::new(channel.clone());
            let ask = ServerReflectionRequest {
                host: String::new(),
                message_request: Some(MessageRequest::ListServices(String::new())),
            };
            let asked = reflection
                .server_reflection_info(tokio_stream::once(ask))
                .await;
            let mut answers = asked.expect("answered").into_inner();
            let answer = answers.message().await.expect("read").expect("one");
            let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
                panic!("{answer:?}");
            };
            let services: Vec<_> = list
                .service
                .into_iter()
                .map(|service| service.name)
                .collect();
            let ask = v1alpha::ServerReflectionRequest {
                host: String::new(),
                message_request: Some(
                    v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
                ),
            };
            let mut before =
                v1alpha::server_reflection_client::ServerReflectionClient::new(channel.clone());
            let asked = before.server_reflection_info(tokio_stream::once(ask)).await;
            asked.expect("answered as it was before version 1, too");
            let mut health = HealthClient::new(channel);
            let mut check = async |service: &str| {
                let request = HealthCheckRequest {
                    service: service.to_owned(),
                };
                health
                    .check(request)
                    .await
                    .map(|answer| answer.into_inner().status())
            };
            let own = check("").await;
            let unknown = check("sandbox/nobody").await;
            (services, own, unknown, check("sandbox/qa").await)
        });

        for name in [
            "holdfast.v1.Gateway",
            "holdfast.v1.Uplink",
            "grpc.health.v1.Health",
        ] {
            assert!(
                services.iter().any(|service| service == name),
                "{services:?}"
            );
        }
        assert_eq!(own.expect("answered"), ServingStatus::Serving);
        assert_eq!(unknown.expect_err("not there").code(), Code::NotFound);
        let ready = gateway.get("qa").expect("there").phase() == v1::Phase::Ready;
        assert_eq!(sandbox.expect("answered") == ServingStatus::Serving, ready);
        gateway.delete("qa", true).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// PX-01, SV-01: what nobody can use because the gateway has no descriptors is not Ready, and comes back by itself.
#[test]
fn a_gateway_that_is_short_of_descriptors_takes_ready_away_from_its_sandboxes() {
    for area in everyone() {
        let gateway = Gateway::start(&area, &[]);
        gateway.create(request(&area, "qa")).expect("made");
        gateway.until("qa", "Ready", |status| status.phase() == v1::Phase::Ready);
        // A connection that is there already: no other is accepted meanwhile.
        let channel = gateway.channel().expect("connected");
        let becomes = |phase: v1::Phase, limit: Duration| {
            let mut last = v1::Status::default();
            let shown = holds_within(limit, || {
                let request = v1::SandboxRequest {
                    sandbox: "qa".to_owned(),
                };
                let mut client = v1::gateway_client::GatewayClient::new(channel.clone());
                let answer = gateway.wait(client.get(request)).expect("answered");
                last = answer.into_inner();
                last.phase() == phase
            });
            assert!(shown, "never {phase:?}: {last:#?}");
            last
        };

        let open = fs::read_dir(format!("/proc/{}/fd", gateway.pid())).expect("listed");
        descriptors(gateway.pid(), open.count() as u64);
        let short = becomes(v1::Phase::Degraded, Duration::from_millis(500));
        assert_eq!(short.reason, "DescriptorPressure", "{short:#?}");
        assert!(short.message.contains("the gateway"), "{}", short.message);
        assert!(!short.restarts.contains_key("keeper"), "{short:#?}");

        descriptors(gateway.pid(), 1024);
        becomes(v1::Phase::Ready, Duration::from_secs(1));
        gateway.delete("qa", true).expect("deleted");
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// The socket is its owner's; even where somebody opens it to all, another user is not served.
#[test]
fn another_user_is_not_served() {
    if !Caller::Myself.is_root() {
        holdfast_tests::skip::skip("another user", "only root can become one");
        return;
    }
    let area = Area::new(Caller::Myself);
    let gateway = Gateway::start(&area, &[]);
    for (path, mode) in [
        (area.runtime(), 0o711),
        (area.runtime().join("gateway.sock"), 0o666),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("opened to all");
    }

    // The preface of HTTP/2; one who is served hears the server's own settings.
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.settimeout(20)\ns.connect(sys.argv[1])\ntry:\n s.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0')\n print(len(s.recv(9)))\nexcept ConnectionError: print(0)";
    let heard = |uid: u32| {
        let mut command = Command::new("python3");
        command
            .args(["-c", script])
            .arg(area.runtime().join("gateway.sock"));
        let output = command.uid(uid).gid(uid).output().expect("python3");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };

    assert_eq!(heard(0), "9");
    assert_eq!(heard(54321), "0");
    assert_eq!(gateway.stop(), Some(0));
}

/// Nothing of any sandbox may be on disk.
fn nothing_is_left(area: &Area) {
    for directory in [area.runtime(), area.state()] {
        let left: Vec<_> = fs::read_dir(directory.join("sandboxes"))
            .expect("there")
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// A gateway that was killed leaves its socket and pid file: the area wants none.
fn cleared(area: &Area) {
    let _ = holdfast();
    for name in ["gateway.sock", "gateway.pid"] {
        drop(fs::remove_file(area.runtime().join(name)));
    }
}

/// TCP is served to those who show a certificate of the right authority, and to nobody else.
#[test]
fn tcp_is_served_with_mutual_tls_only() {
    for area in everyone() {
        let authority = Signer::new();
        let (certificate, key) = authority.sign("127.0.0.1");
        let files = [
            ("--tls-cert", "server.pem", &certificate),
            ("--tls-key", "server.key", &key),
            ("--tls-client-ca", "authority.pem", &authority.pem),
        ];
        let mut options = vec!["--listen".to_owned(), "tcp:127.0.0.1:0".to_owned()];
        for (option, name, content) in files {
            let path = area.file(&area.work().join(name), content.as_bytes());
            options.extend([option.to_owned(), path.to_str().expect("text").to_owned()]);
        }
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let gateway = Gateway::start(&area, &options);
        until("it says where it serves", LONG, || {
            said(&area).contains("serving on tcp:")
        });
        let log = said(&area);
        let (_, address) = log.rsplit_once("serving on tcp:").expect("said so");
        let address = address.split(',').next().expect("an address").to_owned();

        let ask = async |identity: Option<(String, String)>| {
            let trusted = tonic::transport::Certificate::from_pem(&authority.pem);
            let mut tls = tonic::transport::ClientTlsConfig::new().ca_certificate(trusted);
            if let Some((certificate, key)) = identity {
                tls = tls.identity(tonic::transport::Identity::from_pem(certificate, key));
            }
            let endpoint = tonic::transport::Endpoint::from_shared(format!("https://{address}"));
            let endpoint = endpoint.expect("an address").tls_config(tls).expect("TLS");
            let channel = endpoint
                .connect()
                .await
                .map_err(|error| error.to_string())?;
            let mut client = v1::gateway_client::GatewayClient::new(channel);
            let answer = client.version(v1::Nothing {}).await;
            answer.map(drop).map_err(|error| error.to_string())
        };

        gateway.wait(async {
            let ours = authority.sign("client");
            assert_eq!(ask(Some(ours)).await, Ok(()));
            assert!(ask(None).await.is_err(), "served without a certificate");
            let strangers = Signer::new().sign("client");
            assert!(
                ask(Some(strangers)).await.is_err(),
                "served with a stranger's certificate"
            );
        });
        let listed = list(&area, &address, &authority.pem, &authority.sign("client"));
        assert_eq!(listed.code(), Some(0), "{}", listed.stderr);
        let stranger = Signer::new();
        for (trusted, identity) in [
            (&stranger.pem, authority.sign("client")),
            (&authority.pem, stranger.sign("client")),
        ] {
            let refused = list(&area, &address, trusted, &identity);
            assert_eq!(refused.code(), Some(125), "{}", refused.stderr);
            assert!(
                refused.stderr.contains("HOLDFAST_TLS_CA has to name"),
                "{}",
                refused.stderr
            );
        }
        assert_eq!(gateway.stop(), Some(0));
    }
}

/// `holdfast list` over TCP, with this authority and this identity.
fn list(area: &Area, address: &str, trusted: &str, identity: &(String, String)) -> Finished {
    let at = |name: &str, text: &str| area.file(&area.work().join(name), text.as_bytes());
    Run::plain(area, ["list"])
        .environment("HOLDFAST_GATEWAY", format!("tcp:{address}"))
        .environment("HOLDFAST_TLS_CA", at("trusted.pem", trusted))
        .environment("HOLDFAST_TLS_CERT", at("client.pem", &identity.0))
        .environment("HOLDFAST_TLS_KEY", at("client.key", &identity.1))
        .finish()
}

/// An authority of the test's own.
struct Signer {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Signer {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut wanted = rcgen::CertificateParams::default();
        wanted.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = wanted.self_signed(&key).expect("signed").pem();
        Self {
            issuer: rcgen::Issuer::new(wanted, key),
            pem,
        }
    }

    /// A certificate for this name, and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let wanted = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = wanted.signed_by(&key, &self.issuer).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }
}
