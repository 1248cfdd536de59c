//! Makes ready for a siege of a sandbox that is somebody else's: our program is copied into its private `/tmp`, and a server is
//! found that its policy names, and has to be there.

use std::path::Path;
use std::time::Duration;

use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as In;
use holdfast_wire::v1::session_output::Kind as Out;
use holdfast_wire::words::unnumbered;
use serde::Deserialize;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::gate::Gate;
use crate::journal::Journal;
use crate::load::{Ground, Server};
use crate::session::{failure, fresh_id};

/// What of a policy is looked at.
#[derive(Deserialize)]
struct Policy {
    #[serde(default)]
    network_policies: BTreeMap<String, Rule>,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    host: String,
    #[serde(default)]
    port: serde_json::Value,
}

pub(crate) async fn prepare(
    gate: Gate,
    sandbox: &str,
    server: Option<(String, u16)>,
    inside: &Path,
    journal: &Journal,
) -> Result<Ground, String> {
    copy(&gate, sandbox, inside).await?;
    let server = match server {
        Some((host, port)) => Some(Server {
            host,
            port,
            echoes: true,
        }),
        None => named(&gate, sandbox).await,
    };
    if server.is_none() {
        journal
            .note("the policy names no server: no connection is made, and Ready is tried without");
    }
    Ok(Ground {
        gate,
        journal: journal.clone(),
        sandbox: sandbox.to_owned(),
        inside: format!("/tmp/{PROGRAM}"),
        server,
    })
}

/// Goes the way of a probe once, and a few times more where it is not gone within `limit`. From a Ready sandbox whose server is not
/// there every probe would fail, and be taken for a false Ready.
pub(crate) async fn reach(ground: &Ground, limit: Duration) -> Result<(), String> {
    let Some(server) = &ground.server else {
        return Ok(());
    };
    let mut last = String::new();
    for _ in 0..TRIES {
        let way = ground.way();
        match timeout(limit, way.once(&ground.gate, &fresh_id())).await {
            Ok(tried) => match failure(&tried) {
                None => return Ok(()),
                Some(why) => last = unnumbered(&why),
            },
            Err(_late) => last = format!("not done within {limit:?}"),
        }
        sleep(AGAIN).await;
    }
    Err(unreached(server, &ground.sandbox, &last))
}

fn unreached(server: &Server, sandbox: &str, why: &str) -> String {
    let Server { host, port, echoes } = server;
    let (whose, mend) = if *echoes {
        (
            "the server of --connect",
            "let one that gives back a line serve there, or name another",
        )
    } else {
        (
            "the first server that its policy names",
            "let it serve there, or name another one with --connect HOST:PORT",
        )
    };
    format!("reach {host}:{port}, {whose}, from inside {sandbox}: {why}; {mend}")
}

/// The first server that the policy names exactly. Nobody knows what it answers, so it is only connected to.
async fn named(gate: &Gate, sandbox: &str) -> Option<Server> {
    let revision = gate.policy(sandbox).await.ok()?;
    first(&revision.yaml)
}

fn first(yaml: &str) -> Option<Server> {
    let policy: Policy = serde_saphyr::from_str(yaml).ok()?;
    let endpoints = policy
        .network_policies
        .into_values()
        .flat_map(|rule| rule.endpoints);
    endpoints
        .filter(|endpoint| !endpoint.host.contains('*'))
        .find_map(|endpoint| {
            Some(Server {
                host: endpoint.host,
                port: u16::try_from(endpoint.port.as_u64()?).ok()?,
                echoes: false,
            })
        })
}

async fn copy(gate: &Gate, sandbox: &str, inside: &Path) -> Result<(), String> {
    let program =
        std::fs::read(inside).map_err(|error| format!("read {}: {error}", inside.display()))?;
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(program.len() as u64);
    header.set_mode(0o755);
    archive
        .append_data(&mut header, PROGRAM, program.as_slice())
        .map_err(|error| format!("pack the program: {error}"))?;
    let archive = archive
        .into_inner()
        .map_err(|error| format!("pack the program: {error}"))?;

    let (sender, receiver) = mpsc::channel(4);
    let start = v1::CopyStart {
        sandbox: sandbox.to_owned(),
        path: b"/tmp".to_vec(),
        into: true,
    };
    let feed = async {
        let mut inputs = vec![In::Copy(start)];
        inputs.extend(
            archive
                .chunks(CHUNK)
                .map(|chunk| In::Data(chunk.to_vec().into())),
        );
        inputs.push(In::End(v1::Nothing {}));
        for kind in inputs {
            if sender
                .send(v1::SessionInput { kind: Some(kind) })
                .await
                .is_err()
            {
                break;
            }
        }
        // The stream stays open until it is known how the copy ended.
        std::future::pending::<()>().await;
    };
    let taken = async {
        let response = gate.client().session(ReceiverStream::new(receiver)).await;
        let mut stream = response
            .map_err(|status| status.message().to_owned())?
            .into_inner();
        let mut said = String::new();
        while let Some(output) = stream.next().await {
            match output.map_err(|status| status.message().to_owned())?.kind {
                Some(Out::Chunk(chunk)) => said.push_str(&String::from_utf8_lossy(&chunk.data)),
                Some(Out::Ended(ending)) => {
                    let exit = ending.exit.and_then(|exit| exit.how);
                    return match exit {
                        Some(v1::exit::How::Code(0)) => Ok(()),
                        Some(_) | None => Err(said),
                    };
                }
                Some(Out::Begun(_) | Out::Lost(_)) | None => {}
            }
        }
        Err("closed without a status".to_owned())
    };
    let copied = timeout(PATIENCE, async {
        tokio::select! {
            copied = taken => copied,
            () = feed => Ok(()),
        }
    });
    let copied = copied
        .await
        .unwrap_or_else(|_late| Err(format!("not done within {PATIENCE:?}")));
    copied.map_err(|why| format!("copy our program into {sandbox}:/tmp: {why}"))
}

const PROGRAM: &str = "holdfast-chaos-inside";
const CHUNK: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);
const TRIES: usize = 3;
const AGAIN: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_server_with_a_name_and_a_port_is_taken() {
        let yaml = "version: 1\nnetwork_policies:\n  a:\n    endpoints:\n      - {host: '*.cdn.test', port: 443}\n      - {host: any.test, port: '*'}\n      - {host: origin.test, port: 8443}\n";
        let named = Server {
            host: "origin.test".to_owned(),
            port: 8443,
            echoes: false,
        };
        assert_eq!(first(yaml), Some(named));
        assert_eq!(first("version: 1\n"), None);
    }
}
