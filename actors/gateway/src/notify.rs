//! Tells the service manager how far the gateway is (`sd_notify(3)`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It serves.
    Ready,
    /// It is on its way out.
    Stopping,
}

/// Tells the one who listens at `socket`, the value of `NOTIFY_SOCKET`.
pub fn notify(socket: &OsStr, news: News) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // Not a path: a name without a place in the file system.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let text = match news {
        News::Ready => "READY=1\n",
        News::Stopping => "STOPPING=1\n",
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_hears_it_at_a_path_and_at_a_name() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("notify");
        let name = format!("holdfast-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&name).expect("a name");
        let managers = [
            (
                UnixDatagram::bind(&path).expect("bound"),
                path.into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&named).expect("bound"),
                format!("@{name}").into(),
            ),
        ];

        for (manager, socket) in managers {
            notify(&socket, News::Ready).expect("told");
            let mut heard = [0; 32];
            let length = manager.recv(&mut heard).expect("heard");
            assert_eq!(&heard[..length], b"READY=1\n");
        }
    }
}
