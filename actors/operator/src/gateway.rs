//! `holdfast gateway`: serves this host's sandboxes until it is told to stop.

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use holdfast_gateway::{
    Gateway, Misplaced, News, Places, Settings, Tls, Unopened, Unstarted, Untaken, notify,
};
use holdfast_kernel::signals::Signals;
use holdfast_kernel::{descriptors, execute};
use holdfast_observability as observability;
use holdfast_observability::{Journal, Level};

use crate::config::Config;
use crate::failure::{Failure, Kind, remedy};
use crate::threads;

/// What `holdfast gateway` can be told.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Serve here too: unix:PATH, or tcp:ADDRESS:PORT with mutual TLS; always served is gateway.sock in the runtime directory
    #[arg(long, value_name = "unix:PATH|tcp:ADDR")]
    listen: Vec<Listen>,
    /// Serve /healthz, /readyz, /metrics and a status page here: 127.0.0.1:8080
    #[arg(long, value_name = "ADDR", value_parser = socket)]
    http: Option<SocketAddr>,
    /// Let --http be an address that others can reach; it asks nobody who they are
    #[arg(long, requires = "http")]
    http_anywhere: bool,
    /// Keep sandboxes and their logs here
    #[arg(long, value_name = "D")]
    state_dir: Option<PathBuf>,
    /// Keep sockets and gateway.pid here
    #[arg(long, value_name = "D")]
    runtime_dir: Option<PathBuf>,
    /// Send traces and metrics to this collector
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Certificate for TCP, with those up to its authority (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_client_ca"])]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authority of the clients that may come over TCP (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Let tests make actors fail (`holdfast-chaos`); never where work is done
    #[arg(long, hide = true)]
    chaos: bool,
    /// Log to stderr from this level on: off, error, warn, info, debug, trace
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        conflicts_with = "quiet"
    )]
    log_level: Level,
    /// Log as text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: observability::Format,
}

/// One place to serve on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Listen {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// An address and a port.
fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_malformed| {
        "expected an address and a port: 127.0.0.1:8080, [::1]:8080".to_owned()
    })
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("unix", _)) => Err("say the whole path: unix:/run/user/1000/x.sock".into()),
            Some(("tcp", address)) => address
                .parse()
                .map(Self::Tcp)
                .map_err(|_| "say address and port in numbers: tcp:127.0.0.1:7443".into()),
            Some(_) | None => Err("expected unix:PATH or tcp:ADDRESS:PORT".into()),
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn gateway(
    arguments: Arguments,
    config: &Config,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let level = if quiet {
        Level::Error
    } else {
        arguments.log_level
    };
    threads::affordable()?;
    // It stays, and what its first caller had open must not stay with it.
    execute::close_all_but(&[0, 1, 2]).map_err(|error| {
        Failure::caused(Kind::Internal, "let go of inherited descriptors", &error)
    })?;
    // Nobody reads our input, and nothing else is open yet.
    let spares = descriptors::Spares::hold(&[0, 3])
        .map_err(|error| Failure::caused(Kind::Internal, "hold spare descriptors", &error))?;
    Journal::start(level, arguments.log_format);
    let settings = settings(arguments, config, spares)?;
    descriptors::raise()
        .map_err(|error| Failure::caused(Kind::Internal, "raise the descriptor limit", &error))?;
    let runtime = threads::runtime(WORKERS, OFFLOADED, move |failure| {
        failure.tell(false, quiet);
    })?;
    runtime.block_on(serve(settings, config))
}

async fn serve(settings: Settings, config: &Config) -> Result<ExitCode, Failure> {
    let mut ends = Signals::listen(&[libc::SIGTERM, libc::SIGINT])
        .map_err(|error| Failure::caused(Kind::Internal, "hear signals", &error))?;
    let places = settings.places.clone();
    let gateway = Gateway::start(settings)
        .await
        .map_err(|unstarted| failed(&unstarted, &places))?;
    for socket in gateway.sockets() {
        tracing::info!(
            pid = std::process::id(),
            "serving on unix:{}",
            socket.display()
        );
    }
    for address in gateway.addresses() {
        tracing::info!("serving on tcp:{address}, with mutual TLS");
    }
    if let Some(address) = gateway.http() {
        tracing::info!("serving HTTP on {address}");
    }
    tell(config, News::Ready);
    let told = tokio::select! {
        signal = ends.next() => if signal == libc::SIGTERM { "SIGTERM" } else { "SIGINT" },
        end = gateway.ended() => {
            return Err(Failure::new(Kind::Internal, format!("serve: gave up: {end:?}")));
        }
    };
    tell(config, News::Stopping);
    tracing::info!(
        "{told}: stopping; keepers and their workloads go on, and the next gateway finds them again"
    );
    gateway.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

fn settings(
    arguments: Arguments,
    config: &Config,
    spares: descriptors::Spares,
) -> Result<Settings, Failure> {
    if arguments.otlp.is_some() {
        return Err(Failure::new(
            Kind::Usage,
            "use --otlp: not supported yet; metrics are at /metrics (--http)",
        ));
    }
    let mut listen = arguments.listen;
    if let Some(given) = config
        .variable("HOLDFAST_GATEWAY")
        .filter(|_| listen.is_empty())
    {
        let parsed = given.to_string_lossy().parse();
        listen.push(parsed.map_err(|why: String| {
            Failure::new(Kind::Usage, format!("use HOLDFAST_GATEWAY: {why}"))
        })?);
    }
    let tls = match (
        arguments.tls_cert,
        arguments.tls_key,
        arguments.tls_client_ca,
    ) {
        (Some(certificate), Some(key), Some(client_authority)) => Some(Tls {
            certificate,
            key,
            client_authority,
        }),
        _ => None,
    };
    let unix = |place: &Listen| match place {
        Listen::Unix(path) => Some(path.clone()),
        Listen::Tcp(_) => None,
    };
    let tcp = |place: &Listen| match place {
        Listen::Unix(_) => None,
        Listen::Tcp(address) => Some(*address),
    };
    // Keepers stand elsewhere.
    let absolute = |given: PathBuf| std::path::absolute(&given).unwrap_or(given);
    Ok(Settings {
        places: Places {
            state: arguments
                .state_dir
                .map_or_else(|| config.state_directory(), absolute),
            runtime: arguments
                .runtime_dir
                .map_or_else(|| config.runtime_directory(), absolute),
        },
        sockets: listen.iter().filter_map(unix).collect(),
        addresses: listen.iter().filter_map(tcp).collect(),
        tls,
        http: arguments.http,
        http_anywhere: arguments.http_anywhere,
        environment: config.environment.clone(),
        chaos: arguments.chaos,
        spares: Arc::new(spares),
    })
}

fn failed(unstarted: &Unstarted, places: &Places) -> Failure {
    let kind = match unstarted {
        Unstarted::Unprotected(_) | Unstarted::Exposed(_) => Kind::Usage,
        Unstarted::Misplaced(_)
        | Unstarted::Untaken(_)
        | Unstarted::Unopened(_)
        | Unstarted::Unbound { .. }
        | Unstarted::Unread { .. }
        | Unstarted::Unfit(_) => Kind::Internal,
    };
    let Some(cause) = unstarted.source() else {
        return Failure::new(kind, unstarted.to_string());
    };
    let failure = Failure::caused(kind, unstarted.to_string(), cause);
    match place(unstarted, places).and_then(|place| remedy(cause, place)) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The directory that the failure is about, if it is one of ours.
fn place<'a>(unstarted: &Unstarted, places: &'a Places) -> Option<&'a Path> {
    let path = match unstarted {
        Unstarted::Misplaced(Misplaced::Unmade { path, .. })
        | Unstarted::Untaken(Untaken::Unlockable { path, .. })
        | Unstarted::Unopened(Unopened::File { path, .. }) => path,
        Unstarted::Unbound { place, .. } => Path::new(place.strip_prefix("unix:")?),
        Unstarted::Misplaced(_)
        | Unstarted::Untaken(_)
        | Unstarted::Unopened(_)
        | Unstarted::Unread { .. }
        | Unstarted::Unprotected(_)
        | Unstarted::Exposed(_)
        | Unstarted::Unfit(_) => return None,
    };
    let ours = [places.state.as_path(), places.runtime.as_path()];
    ours.into_iter().find(|place| path.starts_with(place))
}

/// Tells the service manager, if there is one.
fn tell(config: &Config, news: News) {
    let Some(socket) = config.variable("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = notify(socket, news) {
        tracing::warn!(%error, "tell the service manager");
    }
}

/// One that is kept busy must not keep the others waiting.
const WORKERS: usize = 4;

/// Threads that do at the start what blocks.
const OFFLOADED: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_written_with_their_kind() {
        assert_eq!("unix:/a/b".parse(), Ok(Listen::Unix("/a/b".into())));
        assert_eq!(
            "tcp:127.0.0.1:7443".parse(),
            Ok(Listen::Tcp(([127, 0, 0, 1], 7443).into()))
        );
        for text in ["unix:b", "tcp:localhost:1", "tcp:1.2.3.4", "/a/b", "http:x"] {
            assert!(text.parse::<Listen>().is_err(), "{text} was taken");
        }
        assert_eq!(socket("[::1]:80"), Ok("[::1]:80".parse().expect("one")));
        for text in ["localhost:80", "127.0.0.1", "80", "x"] {
            let told = socket(text).expect_err("is none");
            assert!(told.starts_with("expected an address and a port"), "{told}");
        }
    }
}
