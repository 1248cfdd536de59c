//! Reaches a service on a Unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_wire::FRAME;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// A connection of its own.
pub(crate) async fn dial(path: &Path) -> Result<Channel, tonic::transport::Error> {
    let path: Arc<Path> = path.into();
    endpoint()
        .connect_with_connector(service_fn(move |_| connect(Arc::clone(&path))))
        .await
}

/// A connection that is made when it is needed, and again when it broke.
pub(crate) fn lazily(path: PathBuf) -> Channel {
    let path: Arc<Path> = path.into();
    endpoint().connect_with_connector_lazy(service_fn(move |_| connect(Arc::clone(&path))))
}

fn endpoint() -> Endpoint {
    Endpoint::from_static("http://keeper").max_frame_size(FRAME)
}

async fn connect(path: Arc<Path>) -> io::Result<TokioIo<UnixStream>> {
    Ok(TokioIo::new(UnixStream::connect(path).await?))
}
