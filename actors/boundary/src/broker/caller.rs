//! Who makes a call: its program, its ancestors, its socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use holdfast_kernel::Error;
use holdfast_kernel::look::{self, Pinned, Target, Thread};
use holdfast_kernel::notify::Call;
use holdfast_wire::v1;

use super::waiting::Look;
use crate::inside::{OWN_V4, OWN_V6};

/// What a `connect` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Nothing that leaves the sandbox: Unix sockets, datagrams, a dissolved association. The kernel decides.
    Local,
    /// A TCP connection.
    Stream {
        /// The socket, for ever.
        cookie: u64,
        /// Where to, as the caller's memory had it.
        address: SocketAddr,
        /// Whether the caller waits for the outcome.
        blocking: bool,
        /// How long it waits at most.
        timeout: Option<Duration>,
    },
}

/// Finds out what a `connect` is about. An error means that the caller cannot be looked at, or is gone.
pub(crate) fn subject(call: &Call, thread: &Thread) -> Result<Subject, Error> {
    let [_, address, length, ..] = call.arguments;
    let Target::Inet(address) = look::target(call.tid, address, length)? else {
        return Ok(Subject::Local);
    };
    let socket = thread.pin(descriptor(call))?;
    // A call that a signal interrupted is made again, and some programs poll by it: the first one was judged.
    if socket.protocol()? != libc::IPPROTO_TCP || !socket.is_unconnected()? {
        return Ok(Subject::Local);
    }
    let blocking = socket.is_blocking()?;
    let timeout = if blocking {
        socket.send_timeout()?
    } else {
        None
    };
    Ok(Subject::Stream {
        cookie: socket.cookie()?,
        address,
        blocking,
        timeout,
    })
}

/// The number of the socket that a `connect` is about.
pub(super) fn descriptor(call: &Call) -> i32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the kernel takes a descriptor as an int"
    )]
    let number = call.arguments[0] as i32;
    number
}

/// The socket of a call that waits, if its number still means the same one.
pub(super) fn socket(look: Look) -> Result<Pinned, Error> {
    let socket = Thread::hold(look.thread)?.pin(look.descriptor)?;
    if socket.cookie()? == look.cookie {
        Ok(socket)
    } else {
        Err(Error::new("pidfd_getfd", libc::EBADF))
    }
}

/// Finds out who made a call. It is unobservable if its program or that of one of its ancestors, up to the process
/// `launcher`, cannot be looked at: what an unknown parent has made of its child is not known either. The launcher's
/// shepherds are no ancestors: they are our own.
pub(crate) fn caller(thread: &Thread, launcher: u32) -> v1::Caller {
    let mut caller = v1::Caller::default();
    let Ok(mut place) = thread.place() else {
        return caller;
    };
    caller.pid = place.process;
    let Ok(executable) = look::executable(place.process) else {
        return caller;
    };
    let mut ancestors = Vec::new();
    while place.parent > 1 && place.parent != launcher {
        let parent = Thread::hold(place.parent).and_then(|thread| thread.place());
        let (Ok(parent), true) = (parent, ancestors.len() < MAX_ANCESTORS) else {
            return caller;
        };
        if parent.parent == launcher && look::is_fork(place.parent) {
            break;
        }
        let Ok(ancestor) = look::executable(place.parent) else {
            return caller;
        };
        ancestors.push(ancestor);
        place = parent;
    }
    v1::Caller {
        observed: true,
        executable,
        ancestors,
        ..caller
    }
}

/// Whether `address` is the sandbox itself, whatever a policy says.
pub(crate) fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    // The kernel takes the unspecified address for loopback.
    address.is_loopback()
        || address.is_unspecified()
        || address == IpAddr::V4(OWN_V4)
        || address == IpAddr::V6(OWN_V6)
}

/// A process with more ancestors than this is not observed any further.
const MAX_ANCESTORS: usize = 64;
