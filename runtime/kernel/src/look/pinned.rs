//! A caller's socket: what it is, and the handshake of a connect that its caller does not wait for any more.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::Shutdown;

use crate::error::{Called, Error, Result, answered};

/// A duplicate of another process's socket: whatever that process does with its number, this stays the same socket.
#[derive(Debug)]
pub struct Pinned(pub(super) OwnedFd);

impl Pinned {
    /// `SO_COOKIE`: names the socket for ever.
    pub fn cookie(&self) -> Result<u64> {
        self.option(libc::SO_COOKIE, 0u64)
    }

    /// `SO_PROTOCOL`: `IPPROTO_TCP`, `IPPROTO_UDP`, …
    pub fn protocol(&self) -> Result<i32> {
        self.option(libc::SO_PROTOCOL, 0i32)
    }

    /// Whether a TCP socket is neither connected nor about to be: a `connect` on it begins something new.
    pub fn is_unconnected(&self) -> Result<bool> {
        self.state().map(|state| state == TCP_CLOSE)
    }

    /// Whether a connect of a TCP socket is under way.
    pub fn is_connecting(&self) -> Result<bool> {
        self.state().map(|state| state == TCP_SYN_SENT)
    }

    fn state(&self) -> Result<u8> {
        self.read_option(libc::IPPROTO_TCP, libc::TCP_INFO, 0)
    }

    /// Whether calls on the socket wait.
    pub fn is_blocking(&self) -> Result<bool> {
        let flags = fcntl(self.0.as_fd(), FcntlArg::F_GETFL).called("fcntl F_GETFL")?;
        Ok(!OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK))
    }

    /// `SO_SNDTIMEO`: how long a connect waits, if it is limited.
    pub fn send_timeout(&self) -> Result<Option<Duration>> {
        let time = nix::sys::socket::getsockopt(&self.0, nix::sys::socket::sockopt::SendTimeout)
            .called("getsockopt SO_SNDTIMEO")?;
        let micros = u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec()).unwrap_or(0);
        Ok((micros > 0).then(|| Duration::from_micros(micros)))
    }

    /// Keeps the handshake of the next connect from ending: the socket takes no packet until [`Pinned::release`], so that the
    /// connect stays under way. `EBUSY` if its owner has said itself which packets it takes.
    ///
    /// No packet has come from so near that it has the highest time to live there is (`IP_MINTTL`, RFC 5082), not even over
    /// loopback, where it begins with 64. A packet filter would do the same, but is not everywhere for everybody.
    pub fn withhold(&self) -> Result<()> {
        for (level, name) in self.least_lives()? {
            if self.read_option(*level, *name, 0i32)? != 0 {
                return Err(Error::new("setsockopt IP_MINTTL", libc::EBUSY));
            }
        }
        self.take_from(HIGHEST)
    }

    /// Takes packets again. A connect that is under way ends when the kernel repeats its first packet, which it does each
    /// second at first.
    pub fn release(&self) -> Result<()> {
        self.take_from(0)
    }

    /// Fails the connect that is under way, with `ECONNRESET`.
    pub fn abort(&self) -> Result<()> {
        nix::sys::socket::shutdown(self.0.as_raw_fd(), Shutdown::Both).called("shutdown")
    }

    /// Takes packets that have at least `lives` left.
    fn take_from(&self, lives: i32) -> Result<()> {
        for (level, name) in self.least_lives()? {
            self.set_option(*level, *name, lives)?;
        }
        Ok(())
    }

    /// The options that say which packets are taken. A socket of IPv6 may connect to an address of IPv4, too.
    fn least_lives(&self) -> Result<&'static [(libc::c_int, libc::c_int)]> {
        let domain = self.option(libc::SO_DOMAIN, 0i32)?;
        let both = &[
            (libc::IPPROTO_IP, libc::IP_MINTTL),
            (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
        ];
        Ok(if domain == libc::AF_INET6 {
            both
        } else {
            &both[..1]
        })
    }

    fn set_option(&self, level: libc::c_int, name: libc::c_int, value: i32) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "four bytes")]
        let length = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of `value`, which has that many and lives here.
        let answer = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                length,
            )
        };
        answered("setsockopt", answer.into()).map(drop)
    }

    fn option<T: Copy>(&self, name: libc::c_int, value: T) -> Result<T> {
        self.read_option(libc::SOL_SOCKET, name, value)
    }

    fn read_option<T: Copy>(
        &self,
        level: libc::c_int,
        name: libc::c_int,
        mut value: T,
    ) -> Result<T> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a number has at most 8 bytes"
        )]
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `value`, which has that many and holds plain numbers.
        let answer = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                level,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        answered("getsockopt", answer.into())?;
        Ok(value)
    }
}

/// The first member of `struct tcp_info` while a connect is under way (`net/tcp_states.h`).
const TCP_SYN_SENT: u8 = 2;
/// The same without a connection.
const TCP_CLOSE: u8 = 7;

/// The highest time to live that a packet can have.
const HIGHEST: i32 = 255;

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt,
    };

    use super::super::Thread;
    use super::*;

    #[test]
    fn a_pinned_socket_is_the_callers_own() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        stream
            .set_write_timeout(Some(Duration::from_millis(1500)))
            .expect("set");

        let pinned = Thread::hold(nix::unistd::gettid().as_raw().unsigned_abs())
            .and_then(|thread| thread.pin(stream.as_raw_fd()))
            .expect("pin");

        let own = Pinned(stream.try_clone().expect("clone").into());
        assert_eq!(
            pinned.cookie().expect("cookie"),
            own.cookie().expect("cookie")
        );
        assert_eq!(pinned.protocol().expect("protocol"), libc::IPPROTO_TCP);
        assert!(pinned.is_blocking().expect("flags"));
        stream.set_nonblocking(true).expect("set");
        assert!(!pinned.is_blocking().expect("flags"));
        let timeout = pinned.send_timeout().expect("timeout").expect("is set");
        assert!((1500..1600).contains(&timeout.as_millis()));
    }

    #[test]
    fn a_connected_socket_begins_nothing_new() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("address");
        let fresh = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::empty(),
            None,
        );

        assert!(
            Pinned(fresh.expect("socket"))
                .is_unconnected()
                .expect("state")
        );
        let stream = TcpStream::connect(address).expect("connect");
        assert!(!Pinned(stream.into()).is_unconnected().expect("state"));
    }

    /// A connect that does not wait, on a socket that takes no packet.
    fn withheld(family: AddressFamily, to: SocketAddr) -> (OwnedFd, Pinned) {
        let socket = socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK, None);
        let socket = socket.expect("socket");
        let pinned = Pinned(socket.try_clone().expect("clone"));
        pinned.withhold().expect("withheld");
        let connected = connect(socket.as_raw_fd(), &SockaddrStorage::from(to));
        assert_eq!(connected, Err(Errno::EINPROGRESS));
        (socket, pinned)
    }

    fn becomes_writable(socket: &OwnedFd, within: u16) -> bool {
        let mut one = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
        poll(&mut one, PollTimeout::from(within)).expect("poll") > 0
    }

    #[test]
    fn a_connect_that_is_withheld_is_under_way_until_it_is_released() {
        for (family, place) in [
            (AddressFamily::Inet, "127.0.0.1:0"),
            (AddressFamily::Inet6, "[::1]:0"),
            (AddressFamily::Inet6, "[::ffff:127.0.0.1]:0"),
        ] {
            let listener = TcpListener::bind(place).expect("listen");
            let to = listener.local_addr().expect("address");
            let (socket, pinned) = withheld(family, to);
            assert!(pinned.is_connecting().expect("state"));
            assert!(!becomes_writable(&socket, 0));

            pinned.release().expect("released");

            assert!(becomes_writable(&socket, 10_000));
            assert_eq!(getsockopt(&socket, sockopt::SocketError), Ok(0));
            listener.accept().expect("one has come");
        }
    }

    #[test]
    fn a_connect_that_is_aborted_fails_and_the_socket_can_be_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let to = listener.local_addr().expect("address");
        let (socket, pinned) = withheld(AddressFamily::Inet, to);

        pinned.abort().expect("aborted");
        pinned.release().expect("released");

        assert!(becomes_writable(&socket, 0));
        let error = getsockopt(&socket, sockopt::SocketError);
        assert_eq!(error, Ok(libc::ECONNRESET));
        assert!(pinned.is_unconnected().expect("state"));
        let _ = connect(socket.as_raw_fd(), &SockaddrStorage::from(to));
        assert!(becomes_writable(&socket, 10_000));
        assert_eq!(getsockopt(&socket, sockopt::SocketError), Ok(0));
    }

    #[test]
    fn a_socket_whose_owner_has_said_which_packets_it_takes_is_left_alone() {
        let listener = TcpListener::bind("[::1]:0").expect("listen");
        let socket = Pinned(listener.into());
        socket.withhold().expect("nobody has");

        let refused = socket.withhold().expect_err("somebody has");

        assert_eq!(refused.errno(), libc::EBUSY);
        socket.release().expect("as before");
        socket.withhold().expect("nobody has");
    }
}
