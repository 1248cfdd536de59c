//! What can be asked of the keeper, and how it answers: one line each.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use holdfast_keeper::Keeper;
use holdfast_keeper::link::{Client, Dialler, Standing, connect};
use holdfast_wire::v1;
use holdfast_wire::v1::launch_request::What;
use holdfast_wire::v1::output::Kind;

use crate::Outcome;

/// Obeys one line.
pub(crate) async fn obey(keeper: &Keeper, directory: &Path, line: &str) -> Outcome<String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    if verb == "ended" {
        return Ok(format!("ended {:?}", keeper.ended().await));
    }
    if verb == "link" {
        return Ok(match &keeper.held().link.borrow().standing {
            Standing::Linked { .. } => "link up".to_owned(),
            Standing::Lost { why, .. } => format!("link lost {why}"),
            Standing::Over { why, .. } => format!("link over {why}"),
        });
    }
    if verb == "attached" {
        let attached = &keeper.held().attached;
        return Ok(told("attached", &attached.sessions, attached.total));
    }
    if verb == "attach" {
        return attach(directory, rest).await;
    }
    let mut client = keeper.dial().await.map_err(|fault| fault.to_string())?;
    ask(&mut client, directory, verb, rest).await
}

async fn ask(client: &mut Client, directory: &Path, verb: &str, rest: &str) -> Outcome<String> {
    let (first, last) = rest.split_once(' ').unwrap_or((rest, ""));
    match verb {
        // launch REQUEST LINE
        "launch" | "herded" => {
            let (herded, note) = (verb == "herded", first.as_bytes().to_vec());
            let what = What::Program(shell(directory, last));
            let request = first.to_owned();
            launch(client, what, |asked| v1::LaunchRequest {
                request,
                herded,
                note,
                ..asked
            })
            .await
        }
        "out" | "in" | "dial" => without_program(client, verb, (first, last)).await,
        // read SESSION OFFSET
        "read" => {
            let request = v1::ReadRequest {
                session: first.parse()?,
                offset: last.parse()?,
            };
            let (bytes, told) = drain(client, request).await?;
            Ok(format!(
                "{told} {}",
                String::from_utf8_lossy(&bytes).replace('\n', "|")
            ))
        }
        // signal SESSION NUMBER
        "signal" => {
            let request = v1::SignalRequest {
                session: first.parse()?,
                signal: last.parse()?,
                tree: true,
            };
            client.signal(request).await?;
            Ok("signalled".to_owned())
        }
        "table" => {
            let table = client.table(v1::Nothing {}).await?.into_inner();
            Ok(told("table", &table.sessions, table.total))
        }
        "beat" => {
            let beat = client.beat(v1::Nothing {}).await?.into_inner();
            let rows = beat.tree.map_or(0, |tree| tree.rows.len());
            let descriptors = beat.descriptors.unwrap_or_default();
            Ok(format!("beat {} {rows}", descriptors.used))
        }
        "many" | "crowd" => often(client, directory, verb, (first, last)).await,
        "end" => {
            // The answer may be the end of the connection.
            let _ = client.end(v1::Nothing {}).await;
            Ok("over".to_owned())
        }
        _ => Err(format!("no order {verb}").into()),
    }
}

/// Launches the same again and again.
async fn often(
    client: &mut Client,
    directory: &Path,
    verb: &str,
    (first, last): (&str, &str),
) -> Outcome<String> {
    match verb {
        // many COUNT: launches, one after the other, each read to its end
        "many" => {
            for _ in 0..first.parse::<u32>()? {
                let what = What::Program(shell(directory, last));
                let launched = launch(client, what, |asked| v1::LaunchRequest {
                    attended: true,
                    ..asked
                });
                let id = launched.await?.trim_start_matches("session ").parse()?;
                read(client, id).await?;
            }
            Ok("done".to_owned())
        }
        // crowd COUNT LINE: launches at once, each read to its end
        "crowd" => {
            let mut crowd = tokio::task::JoinSet::new();
            for _ in 0..first.parse::<u32>()? {
                let (mut client, what) = (client.clone(), What::Program(shell(directory, last)));
                crowd.spawn(async move {
                    let launched = launch(&mut client, what, |asked| v1::LaunchRequest {
                        attended: true,
                        ..asked
                    });
                    let told = launched.await.map_err(|error| error.to_string())?;
                    let id = told
                        .trim_start_matches("session ")
                        .parse()
                        .map_err(|_| told)?;
                    let read = read(&mut client, id).await;
                    read.map(|(_, told)| told)
                        .map_err(|error| error.to_string())
                });
            }
            let ends = crowd.join_all().await;
            let fine = |end: &&Result<String, String>| {
                end.as_ref()
                    .is_ok_and(|told| told.starts_with("exit code:0"))
            };
            Ok(format!("crowd {}", ends.iter().filter(fine).count()))
        }
        _ => Err(format!("no order {verb}").into()),
    }
}

/// What a session's process does itself.
async fn without_program(
    client: &mut Client,
    verb: &str,
    (first, last): (&str, &str),
) -> Outcome<String> {
    match verb {
        // out PATH FILE: what a copy out writes
        "out" => {
            let path = first.as_bytes().to_vec();
            let what = v1::builtin::What::CopyOut(v1::CopyOut { path });
            let id = builtin(client, what).await?;
            client.write(input(id, &[])).await?;
            let (bytes, told) = read(client, id).await?;
            fs::write(last, bytes)?;
            Ok(told)
        }
        // in PATH FILE
        "in" => {
            let path = first.as_bytes().to_vec();
            let what = v1::builtin::What::CopyIn(v1::CopyIn { path });
            let id = builtin(client, what).await?;
            client.write(input(id, &fs::read(last)?)).await?;
            Ok(read(client, id).await?.1)
        }
        // dial PORT TEXT
        "dial" => {
            let port = first.parse()?;
            let what = v1::builtin::What::Dial(v1::DialPort { port });
            let id = builtin(client, what).await?;
            client.write(input(id, last.as_bytes())).await?;
            let (bytes, told) = read(client, id).await?;
            Ok(format!("{told} {}", String::from_utf8_lossy(&bytes)))
        }
        _ => Err(format!("no order {verb}").into()),
    }
}

/// Takes the boundary over with another epoch and token, as somebody else.
async fn attach(directory: &Path, words: &str) -> Outcome<String> {
    let (epoch, token) = words.split_once(' ').unwrap_or((words, ""));
    let approach = connect(&directory.join("boundary.sock"))?;
    let dialler = Dialler::new(Arc::new(approach.socket)).map_err(|fault| fault.to_string())?;
    let mut client = dialler.dial().await.map_err(|fault| fault.to_string())?;
    let request = v1::AttachRequest {
        oldest: "1.0".to_owned(),
        newest: "1.0".to_owned(),
        epoch: epoch.parse()?,
        token: token.as_bytes().to_vec(),
    };
    client.attach(request).await?;
    Ok("attached".to_owned())
}

fn shell(directory: &Path, line: &str) -> v1::Program {
    v1::Program {
        arguments: ["/bin/sh", "-c", line]
            .map(|word| word.as_bytes().to_vec())
            .into(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: directory.join("work").into_os_string().into_encoded_bytes(),
    }
}

async fn builtin(client: &mut Client, what: v1::builtin::What) -> Outcome<u64> {
    let what = What::Builtin(v1::Builtin { what: Some(what) });
    let told = launch(client, what, |asked| v1::LaunchRequest {
        attended: true,
        ..asked
    })
    .await?;
    Ok(told
        .strip_prefix("session ")
        .ok_or(told.as_str())?
        .parse()?)
}

async fn launch(
    client: &mut Client,
    what: What,
    with: impl FnOnce(v1::LaunchRequest) -> v1::LaunchRequest,
) -> Outcome<String> {
    let asked = with(v1::LaunchRequest {
        what: Some(what),
        ..v1::LaunchRequest::default()
    });
    Ok(match client.launch(asked).await?.into_inner().outcome {
        Some(v1::launch_reply::Outcome::Session(id)) => format!("session {id}"),
        Some(v1::launch_reply::Outcome::NotStarted(refused)) => {
            format!("unstarted {}: {}", refused.step, refused.message)
        }
        None => "nothing".to_owned(),
    })
}

fn input(session: u64, data: &[u8]) -> impl tokio_stream::Stream<Item = v1::Input> + use<> {
    let first = v1::Input {
        session,
        ..v1::Input::default()
    };
    let pieces: Vec<_> = data
        .chunks(64 << 10)
        .map(|piece| v1::Input {
            session: 0,
            data: piece.to_vec().into(),
        })
        .collect();
    tokio_stream::iter(std::iter::once(first).chain(pieces))
}

async fn read(client: &mut Client, session: u64) -> Outcome<(Vec<u8>, String)> {
    drain(client, v1::ReadRequest { session, offset: 0 }).await
}

/// Reads to the end: the output, and a line with what was lost, the exit and the errors.
async fn drain(client: &mut Client, request: v1::ReadRequest) -> Outcome<(Vec<u8>, String)> {
    let mut stream = client.read(request).await?.into_inner();
    let (mut output, mut errors, mut lost) = (Vec::new(), Vec::new(), 0);
    while let Some(told) = stream.message().await? {
        match told.kind {
            Some(Kind::Chunk(chunk)) if chunk.stream() == v1::Stream::Stderr => {
                errors.extend_from_slice(&chunk.data);
            }
            Some(Kind::Chunk(chunk)) => output.extend_from_slice(&chunk.data),
            Some(Kind::Lost(bytes)) => lost += bytes,
            Some(Kind::Exit(exit)) => {
                let errors = String::from_utf8_lossy(&errors).trim_end().to_owned();
                return Ok((
                    output,
                    format!("exit {} lost {lost} [{errors}]", how(&exit)),
                ));
            }
            None => {}
        }
    }
    Err("no exit".into())
}

fn how(exit: &v1::Exit) -> String {
    match &exit.how {
        Some(v1::exit::How::Code(code)) => format!("code:{code}"),
        Some(v1::exit::How::Signal(signal)) => format!("signal:{signal}"),
        Some(v1::exit::How::Unknown(_)) | None => "unknown".to_owned(),
    }
}

fn told(word: &str, sessions: &[v1::SessionState], total: u64) -> String {
    let one = |state: &v1::SessionState| {
        let exit = state.exit.as_ref().map_or("running".to_owned(), how);
        let note = String::from_utf8_lossy(&state.note).into_owned();
        format!(
            "{}/{note}/{exit}/{}-{}",
            state.session, state.from, state.to
        )
    };
    let sessions: Vec<_> = sessions.iter().map(one).collect();
    format!("{word} {total} {}", sessions.join(" "))
}
