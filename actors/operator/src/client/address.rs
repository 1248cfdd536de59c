//! Where the gateway listens: `unix:PATH` or `tcp:HOST:PORT`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::config::Config;
use crate::failure::{Failure, Kind};

/// Where the gateway listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// On a socket of this host.
    Unix {
        /// Its path.
        path: PathBuf,
        /// Whether somebody named it; one that was named is not ours to start.
        given: bool,
    },
    /// On a network, with certificates of both sides.
    Tcp(Remote),
}

/// A gateway on a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    authority: String,
    trusted: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Address {
    /// What `HOLDFAST_GATEWAY` says, or the socket in the runtime directory.
    pub(crate) fn of(config: &Config) -> Result<Self, Failure> {
        let Some(given) = config.variable("HOLDFAST_GATEWAY") else {
            return Ok(Self::Unix {
                path: config.runtime_directory().join("gateway.sock"),
                given: false,
            });
        };
        let text = given.to_str().unwrap_or_default();
        match text.split_once(':') {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix {
                path: path.into(),
                given: true,
            }),
            Some(("tcp", authority)) if authority.contains(':') => {
                Remote::of(authority, config).map(Self::Tcp)
            }
            Some(_) | None => {
                let message = format!("read HOLDFAST_GATEWAY={}", given.display());
                Err(Failure::new(Kind::Usage, message)
                    .hint("write unix:/ABSOLUTE/PATH or tcp:HOST:PORT"))
            }
        }
    }

    /// Whether a gateway may be started there without being asked.
    pub(crate) fn is_ours_to_start(&self) -> bool {
        match self {
            Self::Unix { given, .. } => !given,
            Self::Tcp(_) => false,
        }
    }

    /// What starts a gateway there.
    pub(crate) fn command(&self) -> String {
        match self {
            Self::Unix { given: false, .. } => "`holdfast gateway`".into(),
            Self::Unix { .. } | Self::Tcp(_) => format!("`holdfast gateway --listen {self}`"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Tcp(remote) => write!(f, "tcp:{}", remote.authority),
        }
    }
}

impl Remote {
    fn of(authority: &str, config: &Config) -> Result<Self, Failure> {
        let file = |name: &str| {
            config.variable(name).map(PathBuf::from).ok_or_else(|| {
                let message = format!("reach tcp:{authority} without {name}: a gateway on a network is spoken to with certificates only");
                Failure::new(Kind::Usage, message)
                    .hint("set HOLDFAST_TLS_CA, HOLDFAST_TLS_CERT and HOLDFAST_TLS_KEY to PEM files")
            })
        };
        Ok(Self {
            authority: authority.to_owned(),
            trusted: file("HOLDFAST_TLS_CA")?,
            certificate: file("HOLDFAST_TLS_CERT")?,
            key: file("HOLDFAST_TLS_KEY")?,
        })
    }

    /// The way there, with our certificate and what we trust.
    pub(super) fn endpoint(&self) -> Result<Endpoint, Failure> {
        let trusted = Certificate::from_pem(pem(&self.trusted)?);
        let ours = Identity::from_pem(pem(&self.certificate)?, pem(&self.key)?);
        let tls = ClientTlsConfig::new()
            .ca_certificate(trusted)
            .identity(ours);
        let uri = format!("https://{}", self.authority);
        Endpoint::from_shared(uri)
            .and_then(|endpoint| {
                endpoint
                    .connect_timeout(super::ANSWER)
                    .max_frame_size(holdfast_wire::FRAME)
                    .tls_config(tls)
            })
            .map_err(|error| {
                let message = format!("reach tcp:{}", self.authority);
                Failure::caused(Kind::Usage, message, &error)
            })
    }
}

fn pem(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        Failure::caused(Kind::Unreadable, format!("read {}", path.display()), &error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Address, Failure> {
        let own = |(name, value): &(&str, &str)| (name.into(), value.into());
        Address::of(&Config {
            arguments: Vec::new(),
            environment: variables.iter().map(own).collect(),
        })
    }

    #[test]
    fn the_usual_place_is_in_the_runtime_directory_and_ours_to_start() {
        let address = with(&[("HOLDFAST_RUNTIME_DIR", "/r")]).expect("is an address");

        assert_eq!(address.to_string(), "unix:/r/gateway.sock");
        assert!(address.is_ours_to_start());
    }

    #[test]
    fn one_that_is_named_is_not_ours_to_start() {
        let address = with(&[("HOLDFAST_GATEWAY", "unix:/x/y")]).expect("is an address");

        assert_eq!(address.to_string(), "unix:/x/y");
        assert!(!address.is_ours_to_start());
    }

    #[test]
    fn a_network_without_certificates_is_refused_by_name() {
        let failure = with(&[("HOLDFAST_GATEWAY", "tcp:h:1")]).expect_err("lacks files");

        assert!(
            failure.message().contains("HOLDFAST_TLS_CA"),
            "{}",
            failure.message()
        );
        for wrong in ["/x", "unix:x", "tcp:h", "http://h:1"] {
            let failure = with(&[("HOLDFAST_GATEWAY", wrong)]).expect_err(wrong);
            assert_eq!(failure.kind(), Kind::Usage);
        }
    }
}
