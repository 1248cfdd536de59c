//! The way to the gateway: found, started when it is not there, and asked only when it speaks our protocol.
//!
//! ```text
//! address ──listens──> connected ──same major version──> asked
//!    │ nobody listens                    │ another
//!    ├─ the default address: started in the background, once, whoever asks first; one that is just ending is waited for
//!    └─ HOLDFAST_GATEWAY: refused, one line, at once
//! ```

use std::future::Future;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use holdfast_wire::handshake::{VERSION, Version};
use holdfast_wire::v1;
use holdfast_wire::v1::gateway_client::GatewayClient;
use holdfast_wire::words::unnumbered;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::config::Config;
use crate::failure::{Failure, Kind};
use crate::session::signals::Ends;
use address::Address;

mod address;
mod background;
mod refusal;

pub(crate) use refusal::{is_lost, refused, unanswered, undecided};

/// The services of the gateway, ready to be asked.
pub(crate) type Client = GatewayClient<Channel>;

/// Does something with the gateway, on a runtime of its own. A signal that ends us is told as any failure is.
pub(crate) fn with<F>(config: &Config, work: impl FnOnce(Client) -> F) -> Result<ExitCode, Failure>
where
    F: Future<Output = Result<ExitCode, Failure>>,
{
    interruptible(async { work(reach(config).await?).await })
}

/// Runs to the end, or until a signal ends us.
pub(crate) fn interruptible(
    work: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    on_runtime(async {
        let mut ends = Ends::listen().map_err(|error| internal("listen for signals", &error))?;
        tokio::select! {
            outcome = work => outcome,
            signal = ends.next() => Err(Failure::interrupted(signal)),
        }
    })
}

/// Runs to the end on one thread: a command line has no use for more.
pub(crate) fn on_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| internal("start the runtime", &error))?;
    let outcome = runtime.block_on(work);
    // A thread that reads our input, or a name that is still looked up, keeps nobody.
    runtime.shutdown_background();
    outcome
}

/// The gateway, connected and found to speak our protocol.
///
/// One that is just ending breaks the first question off; where we may start one, the next is asked.
pub(crate) async fn reach(config: &Config) -> Result<Client, Failure> {
    reach_within(ANSWER, config).await
}

/// The same, for one whose `patience` with a gateway that does not answer is his own.
pub(crate) async fn reach_within(patience: Duration, config: &Config) -> Result<Client, Failure> {
    let address = Address::of(config)?;
    let mut tries = 0;
    loop {
        match ask(&address, config, patience).await {
            Ok(client) => return Ok(client),
            Err(Unasked::BrokenOff(_)) if address.is_ours_to_start() && tries < MOST_TRIES => {
                tries += 1;
                sleep(AGAIN).await;
            }
            Err(Unasked::BrokenOff(failure) | Unasked::Failed(failure)) => return Err(failure),
        }
    }
}

/// Why the first question has no answer.
enum Unasked {
    /// Somebody was there, and went away before answering.
    BrokenOff(Failure),
    /// Asking again would say the same.
    Failed(Failure),
}

/// Connects, and asks for the version: a question that may be asked twice.
async fn ask(address: &Address, config: &Config, patience: Duration) -> Result<Client, Unasked> {
    let silent = || Unasked::Failed(silent(address));
    let channel = match timeout(REACH.max(patience), connect(address, config)).await {
        Ok(connected) => connected?,
        Err(_late) => return Err(silent()),
    };
    let mut client = GatewayClient::new(channel)
        .max_decoding_message_size(holdfast_wire::MOST_BYTES)
        .max_encoding_message_size(holdfast_wire::MOST_BYTES);
    match timeout(patience, client.version(v1::Nothing {})).await {
        Ok(Ok(version)) => agree(&version.into_inner()).map_err(Unasked::Failed)?,
        Ok(Err(status)) => {
            let failure = unreachable(address, &refusal::cause(&status));
            return Err(if is_lost(&status) {
                Unasked::BrokenOff(failure)
            } else {
                Unasked::Failed(failure)
            });
        }
        Err(_late) => return Err(silent()),
    }
    Ok(client)
}

async fn connect(address: &Address, config: &Config) -> Result<Channel, Unasked> {
    let path = match address {
        Address::Tcp(remote) => {
            let connected = remote.endpoint().map_err(Unasked::Failed)?.connect().await;
            let failed = |error| Unasked::Failed(unreachable(address, &deepest(&error)));
            return connected.map_err(failed);
        }
        Address::Unix { path, given } => {
            if path.as_os_str().len() > MOST_PATH {
                return Err(Unasked::Failed(too_long(path, *given)));
            }
            path
        }
    };
    let first = match UnixStream::connect(path).await {
        Ok(stream) => stream,
        Err(error) if address.is_ours_to_start() && nobody_listens(&error) => {
            let started = background::start(config, path).await;
            started.map_err(Unasked::Failed)?
        }
        Err(error) if nobody_listens(&error) => {
            return Err(Unasked::Failed(unreachable(address, &plain(&error))));
        }
        Err(error) => return Err(Unasked::Failed(barred(address, &error))),
    };
    // The name is never looked up; the connection that was just made is the first one to be used.
    let mut first = Some(first);
    let path = path.clone();
    let connector = tower::service_fn(move |_| {
        let (first, path) = (first.take(), path.clone());
        async move {
            let stream = match first {
                Some(stream) => stream,
                None => UnixStream::connect(path).await?,
            };
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://gateway")
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(holdfast_wire::FRAME)
        .connect_with_connector(connector)
        .await
        .map_err(|error| Unasked::BrokenOff(unreachable(address, &deepest(&error))))
}

fn nobody_listens(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Another minor version only knows more or less; another major one would misunderstand.
fn agree(gateway: &v1::VersionReply) -> Result<(), Failure> {
    let theirs: Option<Version> = gateway.protocol.parse().ok();
    if theirs.is_some_and(|version| version.major == VERSION.major) {
        return Ok(());
    }
    let message = format!(
        "the gateway (holdfast {}) speaks protocol {:?}, this is holdfast {} with protocol {VERSION}",
        gateway.version,
        gateway.protocol,
        env!("CARGO_PKG_VERSION"),
    );
    Err(Failure::new(Kind::Unsupported, message)
        .hint("use one version for both: end the old gateway, and start the new one"))
}

fn too_long(path: &Path, given: bool) -> Failure {
    let length = path.as_os_str().len();
    let what = if given {
        "HOLDFAST_GATEWAY"
    } else {
        "HOLDFAST_RUNTIME_DIR"
    };
    let message = format!(
        "use {}: the path of a socket has {MOST_PATH} bytes at most, and this one {length}; set {what} to a shorter one",
        path.display()
    );
    Failure::new(Kind::Unreachable, message)
}

fn unreachable(address: &Address, why: &str) -> Failure {
    let message = format!(
        "cannot reach gateway at {address}: {why}; start it with {}",
        address.command()
    );
    let failure = Failure::new(Kind::Unreachable, message);
    match address {
        Address::Unix { .. } => failure,
        // A gateway that does not take our certificate only hangs up.
        Address::Tcp(_) => failure.hint(
            "if it runs: HOLDFAST_TLS_CA has to name the authority of its certificate, and its --tls-client-ca that of HOLDFAST_TLS_CERT",
        ),
    }
}

/// Somebody listens, and starting another would not help.
fn silent(address: &Address) -> Failure {
    let message = format!("cannot reach gateway at {address}: it does not answer");
    Failure::new(Kind::Unreachable, message)
        .hint("somebody listens there: a gateway that is stopped or overwhelmed, or none at all")
}

/// The way to the socket is barred: a gateway that is started would not help.
fn barred(address: &Address, error: &io::Error) -> Failure {
    let message = format!("cannot reach gateway at {address}: {}", plain(error));
    Failure::new(Kind::Unreachable, message)
        .hint("HOLDFAST_GATEWAY and HOLDFAST_RUNTIME_DIR say where it is looked for")
}

/// What an error says at its root, where the news is.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(cause) = deepest.source() {
        deepest = cause;
    }
    deepest
        .downcast_ref::<io::Error>()
        .map_or_else(|| deepest.to_string(), plain)
}

/// What an error of the system says, begun in lower case and without its number.
fn plain(error: &io::Error) -> String {
    let mut text = unnumbered(&error.to_string());
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    text
}

fn internal(what: &str, error: &io::Error) -> Failure {
    Failure::caused(Kind::Internal, what, error)
}

/// Between the call and a connection; a gateway that starts first has its own, longer one inside.
const REACH: Duration = Duration::from_secs(12);

/// How often and how fast one that is just ending is asked again: five seconds in all.
const MOST_TRIES: u32 = 50;
const AGAIN: Duration = Duration::from_millis(100);

/// The most bytes in the path of a Unix socket (`unix(7)`: 108 with the zero at its end).
const MOST_PATH: usize = 107;

/// Between the connection and the first answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(2);

/// What may be on its way to us unread: enough for a pipe at full speed.
const WINDOW: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(protocol: &str) -> v1::VersionReply {
        v1::VersionReply {
            version: "9.9.9".into(),
            protocol: protocol.into(),
            pid: 1,
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_told_with_the_variable_that_made_it() {
        let path = Path::new("/").join("x".repeat(120));

        let own = too_long(&path, false);
        assert!(own.message().contains("HOLDFAST_RUNTIME_DIR"));
        assert!(
            own.message()
                .contains("107 bytes at most, and this one 121")
        );
        assert!(too_long(&path, true).message().contains("HOLDFAST_GATEWAY"));
    }

    /// CL-09: another version is found each time, and both are named.
    #[test]
    fn a_gateway_of_another_major_version_is_refused_with_both_named() {
        let failure = agree(&gateway("2.0")).expect_err("speaks another protocol");

        assert!(failure.message().contains("9.9.9"));
        assert!(failure.message().contains("2.0"));
        assert!(failure.message().contains(&VERSION.to_string()));
        assert!(agree(&gateway("")).is_err());
        assert!(agree(&gateway("1.7")).is_ok());
    }
}
