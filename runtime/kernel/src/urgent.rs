//! Urgent bytes of TCP: where the next one stands.

use std::os::fd::{AsFd, AsRawFd};

use crate::error::{Result, answered};

/// Whether the next byte of this TCP socket is an urgent one. A read that has begun before it ends there, however much has come (`tcp(7)`,
/// `SIOCATMARK`): the kernel wakes nobody for what is behind it.
pub fn is_next(socket: impl AsFd) -> Result<bool> {
    let mut marked: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the request writes one int, which lives here; on a descriptor that is no socket it fails and writes nothing.
    let answer = unsafe { libc::ioctl(fd, SIOCATMARK, &raw mut marked) };
    answered("ioctl SIOCATMARK", answer.into())?;
    Ok(marked != 0)
}

/// `asm-generic/sockios.h`, which libc does not repeat.
const SIOCATMARK: libc::Ioctl = 0x8905;

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_read_ends_before_an_urgent_byte_and_the_next_begins_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        setsockopt(&server, sockopt::OobInline, &true).expect("SO_OOBINLINE");
        for (bytes, flags) in [
            (b"abc", MsgFlags::empty()),
            (b"!!!", MsgFlags::MSG_OOB),
            (b"def", MsgFlags::empty()),
        ] {
            send(client.as_raw_fd(), bytes, flags).expect("taken");
        }
        drop(client);

        assert!(!is_next(&server).expect("answered"));
        // The last of those sent with the flag is the urgent one.
        let mut before = [0; 5];
        server.read_exact(&mut before).expect("reads");
        assert!(is_next(&server).expect("answered"));
        let mut rest = String::new();
        server.read_to_string(&mut rest).expect("reads");

        assert_eq!((before, rest.as_str()), (*b"abc!!", "!def"));
        assert!(!is_next(&server).expect("answered"));
    }

    #[test]
    fn what_is_no_socket_is_an_error() {
        assert!(is_next(std::io::pipe().expect("a pipe").0).is_err());
    }
}
