//! One lasting sandbox and its keeper: sessions that outlive their clients, a workload that outlives its keeper.

use holdfast_tests::keeping::{self, Keeping, attach, code, exec, run, shell, signal, start};
use holdfast_tests::{Policy, everyone};
use holdfast_wire::v1;
use holdfast_wire::v1::session_input::Kind as In;
use std::future::Future;
use std::time::Duration;

/// Runs one test's future on a runtime of its own.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

fn offline() -> String {
    Policy::offline().text()
}

/// EX-01, EX-11: a status is the program's own, a signal is one.
#[test]
fn a_session_ends_with_its_programs_own_status() {
    for area in everyone() {
        wait(async {
            let mut sandbox = Keeping::new(&area, &offline());
            let mut client = sandbox.serve().await;

            let (seen, ending) = run(&mut client, shell("echo out; echo err >&2; exit 7"))
                .await
                .expect("ran");
            assert_eq!(code(&ending), Some(7));
            assert_eq!(
                (seen.text().as_str(), &seen.stderr[..]),
                ("out\n", &b"err\n"[..])
            );
            assert_eq!((ending.stdout_bytes, ending.stderr_bytes), (4, 4));
            let (_, ending) = run(&mut client, shell("kill -SEGV $$")).await.expect("ran");
            assert_eq!(
                (signal(&ending), ending.reason.as_str()),
                (Some(libc::SIGSEGV), "")
            );

            sandbox.end(client).await;
        });
    }
}
