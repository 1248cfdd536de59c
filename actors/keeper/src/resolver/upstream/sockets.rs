//! The sockets that name servers are asked over, each noted among the descriptors of the process.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use hickory_resolver::net::runtime::{RuntimeProvider, TokioRuntimeProvider};
use holdfast_kernel::descriptors::noted;

/// tokio's sockets.
#[derive(Clone, Default)]
pub(super) struct Sockets(TokioRuntimeProvider);

type Opening<S> = Pin<Box<dyn Send + Future<Output = io::Result<S>>>>;

impl RuntimeProvider for Sockets {
    type Handle = <TokioRuntimeProvider as RuntimeProvider>::Handle;
    type Timer = <TokioRuntimeProvider as RuntimeProvider>::Timer;
    type Udp = <TokioRuntimeProvider as RuntimeProvider>::Udp;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.0.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        bind: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Opening<Self::Tcp> {
        let opening = self.0.connect_tcp(server, bind, timeout);
        Box::pin(async move {
            let stream = opening.await?;
            noted(&stream.0);
            Ok(stream)
        })
    }

    fn bind_udp(&self, local: SocketAddr, server: SocketAddr) -> Opening<Self::Udp> {
        let opening = self.0.bind_udp(local, server);
        Box::pin(async move { opening.await.map(noted) })
    }
}
