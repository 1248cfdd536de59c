//! HTTP/1.1, HTTP/2 and HTTPS with a test authority.
//!
//! `GET /` greets, `GET /bytes/N` sends N bytes, `POST /echo` sends back, anything else is 404. `x-protocol` says the version that was spoken.

use super::Server;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// The body of `GET /`.
pub const GREETING: &str = "hello from origin\n";

/// A plain server.
pub fn http(ip: &str) -> Server {
    Server::start(ip, |stream| speak(stream, false))
}

/// A server with a certificate for `name` by the authority; it offers HTTP/2.
pub fn https(ip: &str, authority: &Authority, name: &str) -> Server {
    let acceptor = TlsAcceptor::from(Arc::new(authority.server(name)));
    Server::start(ip, move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(secure) = acceptor.accept(stream).await {
                let two = secure.get_ref().1.alpn_protocol() == Some(b"h2");
                speak(secure, two).await;
            }
        }
    })
}

/// A certificate authority for one test.
#[derive(Debug)]
pub struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    /// A fresh authority.
    pub fn new() -> Self {
        let key = rcgen::KeyPair::generate().expect("generate a key");
        let mut wanted = rcgen::CertificateParams::default();
        wanted.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        wanted
            .distinguished_name
            .push(rcgen::DnType::CommonName, "test authority");
        let pem = wanted.self_signed(&key).expect("sign").pem();
        Self {
            issuer: rcgen::Issuer::new(wanted, key),
            pem,
        }
    }

    /// Its certificate, for clients to trust.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    fn server(&self, name: &str) -> ServerConfig {
        let key = rcgen::KeyPair::generate().expect("generate a key");
        let wanted = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = wanted.signed_by(&key, &self.issuer).expect("sign");
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], secret)
            .expect("a certificate and its key");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, two: bool) {
    let io = TokioIo::new(stream);
    let service = service_fn(answer);
    // A client that hangs up is its own affair.
    if two {
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(serving.serve_connection(io, service).await);
    } else {
        drop(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(io, service)
                .await,
        );
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let version = format!("{:?}", request.version());
    let path = request.uri().path().to_owned();
    let (status, body) = if path == "/" {
        (StatusCode::OK, Bytes::from_static(GREETING.as_bytes()))
    } else if let Some(length) = path.strip_prefix("/bytes/").and_then(|n| n.parse().ok()) {
        (StatusCode::OK, Bytes::from(vec![b'b'; length]))
    } else if path == "/echo" && request.method() == Method::POST {
        let whole = request
            .into_body()
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes);
        (StatusCode::OK, whole.unwrap_or_default())
    } else {
        (StatusCode::NOT_FOUND, Bytes::new())
    };
    let answer = Response::builder()
        .status(status)
        .header("x-protocol", version);
    Ok(answer.body(Full::new(body)).expect("a valid answer"))
}
