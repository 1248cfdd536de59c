//! What a client asks for, as the session that comes of it.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_wire::v1;
use tonic::Status;

use super::lasting::Order;
use super::refusal;

/// Where sessions of this sandbox start, and with what.
#[derive(Clone, Debug, Default)]
pub struct Home {
    /// The sandbox's directory, as it is called in its view.
    pub directory: PathBuf,
    /// The sandbox's own environment, `NAME=value` each.
    pub environment: Vec<Vec<u8>>,
}

/// A program, asked for at `now_ms` by the date, `up` after the host's start.
pub(crate) fn exec(
    home: &Home,
    start: v1::ExecStart,
    now_ms: i64,
    up: Duration,
) -> Result<Order, Status> {
    if start.arguments.is_empty() {
        return Err(refusal::usage("start a session: no program is named"));
    }
    let note = v1::SessionNote {
        kind: "exec".to_owned(),
        arguments: start.arguments.clone(),
        terminal: start.terminal.is_some(),
        started_ms: now_ms,
        request: start.request,
    };
    let limit = match (start.deadline_ms, start.timeout_ms) {
        (0, 0) => None,
        (0, timeout) => Some(Duration::from_millis(timeout)),
        // It runs since the gateway was asked.
        (deadline, _) => Some(Duration::from_millis(deadline).saturating_sub(up)),
    };
    let program = v1::Program {
        arguments: start.arguments,
        environment: over(&home.environment, start.environment),
        directory: within(&home.directory, &start.directory),
    };
    Ok(Order {
        what: v1::launch_request::What::Program(program),
        note,
        terminal: start.terminal,
        attended: true,
        limit,
    })
}

/// The sandbox's main process. `request` is the same for every try of one generation.
pub(crate) fn main(home: &Home, arguments: &[Vec<u8>], request: String, now_ms: i64) -> Order {
    Order {
        what: v1::launch_request::What::Program(v1::Program {
            arguments: arguments.to_vec(),
            environment: home.environment.clone(),
            directory: home.directory.clone().into_os_string().into_vec(),
        }),
        note: v1::SessionNote {
            kind: MAIN.to_owned(),
            arguments: arguments.to_vec(),
            started_ms: now_ms,
            request,
            ..v1::SessionNote::default()
        },
        terminal: None,
        attended: true,
        limit: None,
    }
}

/// Files, one way or the other.
pub(crate) fn copy(home: &Home, copy: v1::CopyStart, now_ms: i64) -> Result<Order, Status> {
    if copy.path.is_empty() {
        return Err(refusal::usage("copy files: no path is named"));
    }
    let path = within(&home.directory, &copy.path);
    let what = if copy.into {
        v1::builtin::What::CopyIn(v1::CopyIn { path })
    } else {
        v1::builtin::What::CopyOut(v1::CopyOut { path })
    };
    Ok(builtin(what, COPY, vec![copy.path], now_ms))
}

/// A connection to a port of the sandbox's own loopback.
pub(crate) fn dial(dial: &v1::DialStart, now_ms: i64) -> Result<Order, Status> {
    let port = u16::try_from(dial.port).unwrap_or(0);
    if port == 0 {
        return Err(refusal::usage(&format!("{} is no port", dial.port)));
    }
    let what = v1::builtin::What::Dial(v1::DialPort { port: dial.port });
    let arguments = vec![port.to_string().into_bytes()];
    Ok(builtin(what, FORWARD, arguments, now_ms))
}

fn builtin(what: v1::builtin::What, kind: &str, arguments: Vec<Vec<u8>>, now_ms: i64) -> Order {
    Order {
        what: v1::launch_request::What::Builtin(v1::Builtin { what: Some(what) }),
        note: v1::SessionNote {
            kind: kind.to_owned(),
            arguments,
            started_ms: now_ms,
            ..v1::SessionNote::default()
        },
        terminal: None,
        attended: true,
        limit: None,
    }
}

/// `given` over `own`: of two values for one name the later one counts.
fn over(own: &[Vec<u8>], given: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut variables = own.to_vec();
    for variable in given {
        let name = name_of(&variable).to_vec();
        variables.retain(|known| name_of(known) != name);
        variables.push(variable);
    }
    variables
}

fn name_of(variable: &[u8]) -> &[u8] {
    variable
        .split(|byte| *byte == b'=')
        .next()
        .unwrap_or_default()
}

/// `asked` as it is seen from the sandbox's directory; that itself when nothing is asked.
fn within(home: &Path, asked: &[u8]) -> Vec<u8> {
    let path = if asked.is_empty() {
        home.to_owned()
    } else {
        home.join(OsStr::from_bytes(asked))
    };
    path.into_os_string().into_vec()
}

/// Whether a session is of no use to anybody but the client that began it.
pub(crate) fn is_fleeting(note: &v1::SessionNote) -> bool {
    note.kind == COPY || note.kind == FORWARD
}

const COPY: &str = "copy";

const FORWARD: &str = "forward";

/// The kind of the main process.
pub(crate) const MAIN: &str = "main";

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> Home {
        Home {
            directory: "/srv/agent".into(),
            environment: vec![b"PATH=/bin".to_vec(), b"A=1".to_vec()],
        }
    }

    const UP: Duration = Duration::from_secs(5);

    fn limit(timeout_ms: u64, deadline_ms: u64) -> Option<Duration> {
        let asked = v1::ExecStart {
            timeout_ms,
            deadline_ms,
            ..start(&["sleep", "9"])
        };
        exec(&home(), asked, 50, UP).expect("an order").limit
    }

    fn start(words: &[&str]) -> v1::ExecStart {
        v1::ExecStart {
            arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            ..v1::ExecStart::default()
        }
    }

    fn program(order: Order) -> v1::Program {
        match order.what {
            v1::launch_request::What::Program(program) => program,
            v1::launch_request::What::Builtin(other) => panic!("{other:?} is no program"),
        }
    }

    #[test]
    fn a_session_has_the_sandboxs_environment_under_its_own() {
        let mut asked = start(&["env"]);
        asked.environment = vec![b"A=2".to_vec(), b"B=x=y".to_vec()];

        let program = program(exec(&home(), asked, 0, UP).expect("an order"));

        assert_eq!(program.environment, [&b"PATH=/bin"[..], b"A=2", b"B=x=y"]);
        assert_eq!(program.directory, b"/srv/agent");
    }

    #[test]
    fn a_directory_is_seen_from_the_sandboxs() {
        for (asked, found) in [
            ("", "/srv/agent"),
            ("sub", "/srv/agent/sub"),
            ("/etc", "/etc"),
        ] {
            let mut start = start(&["pwd"]);
            start.directory = asked.into();

            let program = program(exec(&home(), start, 0, UP).expect("an order"));

            assert_eq!(program.directory, found.as_bytes());
        }
    }

    #[test]
    fn a_time_limit_of_nothing_is_none() {
        assert_eq!(limit(0, 0), None);
        assert_eq!(limit(100, 0), Some(Duration::from_millis(100)));
        assert_eq!(limit(u64::MAX, 0), Some(Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn a_time_limit_runs_since_the_gateway_was_asked() {
        assert_eq!(limit(100, 5_040), Some(Duration::from_millis(40)));
        assert_eq!(limit(100, 4_000), Some(Duration::ZERO), "it is over");
    }

    #[test]
    fn nothing_is_started_that_is_not_named() {
        assert!(exec(&home(), start(&[]), 0, UP).is_err());
        for port in [0, 65_536] {
            let asked = v1::DialStart {
                port,
                ..v1::DialStart::default()
            };
            assert!(dial(&asked, 0).is_err());
        }
    }
}
