//! Parts of the boundary that fall while a session runs: no byte of it is missing, and its status is told.

use holdfast_tests::keeping::{Client, Keeping, Seen, attach, code, run, shell, signal, start};
use holdfast_tests::wait::{LONG, block_on, now};
use holdfast_tests::{Policy, everyone};
use holdfast_wire::v1;
use std::time::Duration;

/// Panics a part of the boundary, as soon as there is one at that place.
async fn strike(client: &mut Client, path: &str) {
    let request = v1::StrikeRequest {
        path: path.to_owned(),
        process: "boundary".to_owned(),
        blow: v1::Blow::Panic.into(),
        ..v1::StrikeRequest::default()
    };
    let end = now() + LONG;
    while let Err(refused) = client.strike(request.clone()).await {
        assert!(now() < end, "strike {path}: {refused}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads until `enough`, or to the end, and attaches again wherever it is cut off.
async fn follow(
    client: &mut Client,
    seen: &mut Seen,
    enough: impl Fn(&Seen) -> bool,
) -> Option<v1::Ending> {
    while !enough(seen) {
        match seen.step().await {
            Ok(None) => {}
            Ok(ending) => return ending,
            Err(_) => {
                let stdout = std::mem::take(&mut seen.stdout);
                *seen = again(client, seen.session, seen.offset).await;
                seen.stdout = stdout;
            }
        }
    }
    None
}

async fn again(client: &mut Client, session: u64, offset: u64) -> Seen {
    let end = now() + LONG;
    loop {
        match attach(client, session, offset).await {
            Ok(seen) => return seen,
            Err(refused) => assert!(now() < end, "attach: {refused}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whatever falls in the boundary, a session that runs goes on: every byte of it arrives, once, and its status.
#[test]
fn a_part_of_the_boundary_that_falls_costs_no_session_a_byte() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &Policy::offline().text());
            sandbox.spec.chaos = true;
            let mut client = sandbox.serve().await;
            let program =
                "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.01; done; exit 7";
            let mut seen = start(&mut client, shell(program)).await.expect("started");

            let reader = format!("boundary/sessions/{}", seen.session);
            for (line, path) in [
                ("line 20\n", reader.as_str()),
                ("line 80\n", "boundary/broker"),
                ("line 150\n", "boundary/launcher"),
                ("line 220\n", "boundary/service"),
            ] {
                let reached = |seen: &Seen| seen.text().contains(line);
                let ending = follow(&mut client, &mut seen, reached).await;
                assert_eq!(ending, None, "before {path} was struck");
                strike(&mut client, path).await;
            }
            let ending = follow(&mut client, &mut seen, |_| false).await;

            let text = seen.text();
            let whole = (1..=400).map(|line| format!("line {line}"));
            assert!(text.lines().eq(whole) && text.ends_with('\n'), "{text}");
            assert_eq!(ending.as_ref().and_then(code), Some(7), "{ending:?}");
            let (after, ending) = run(&mut client, shell("echo after")).await.expect("ran");
            assert_eq!((after.text().as_str(), code(&ending)), ("after\n", Some(0)));
            sandbox.end(client).await;
        });
    }
}

/// A reader that falls every time ends its own session's output, and nobody else's: nobody waits for what will not come.
#[test]
fn a_reader_that_falls_again_and_again_ends_its_own_output_only() {
    for area in everyone() {
        block_on(async {
            let mut sandbox = Keeping::new(&area, &Policy::offline().text());
            sandbox.spec.chaos = true;
            let mut client = sandbox.serve().await;
            let mut other = shell("cat; exit 3");
            other.stdin = true;
            let mut other = start(&mut client, other).await.expect("started");
            let endless = shell("while :; do echo more; sleep 0.01; done");
            let mut seen = start(&mut client, endless).await.expect("started");

            let reader = format!("boundary/sessions/{}", seen.session);
            for _ in 0..3 {
                strike(&mut client, &reader).await;
            }

            let ending = seen.end().await.expect("ended");
            assert_eq!(signal(&ending), Some(libc::SIGPIPE), "{ending:?}");
            assert_eq!(ending.stdout_bytes, seen.offset);
            other.send("still here\n").await;
            other.end_input().await;
            let ending = other.end().await.expect("ended");
            assert_eq!(
                (other.text().as_str(), code(&ending)),
                ("still here\n", Some(3))
            );
            sandbox.end(client).await;
        });
    }
}

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
