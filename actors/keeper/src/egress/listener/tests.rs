use super::*;
use crate::egress::testing::World;
use holdfast_clock::Seed;
use std::net::Shutdown;

fn fault(errno: i32) -> Fault {
    Fault::of(&io::Error::from_raw_os_error(errno))
}

#[test]
fn errors_of_accept_are_told_apart() {
    // PX-01, SV-03: what concerns one connection never slows the others, and a want of resources never ends the loop.
    for errno in [
        libc::EINTR,
        libc::ECONNABORTED,
        libc::EPROTO,
        libc::ENETDOWN,
        libc::EPERM,
    ] {
        assert_eq!(fault(errno), Fault::Passing, "{errno}");
    }
    for errno in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
        assert_eq!(fault(errno), Fault::Starved(errno));
    }
    for errno in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK] {
        assert_eq!(fault(errno), Fault::NoSocket, "{errno}");
    }
    assert_eq!(fault(libc::EAGAIN), Fault::Nothing);
}

#[test]
fn the_pause_doubles_up_to_the_most_and_never_falls_below_the_least() {
    let mut backoff = Backoff {
        dice: Seed::new(3).dice(),
        ceiling: LEAST,
    };

    let mut ceiling = LEAST;
    for _ in 0..20 {
        let pause = backoff.next();
        assert!(
            pause >= LEAST && pause <= ceiling,
            "{pause:?} of {ceiling:?}"
        );
        ceiling = (ceiling * 2).min(MOST);
    }
    assert_eq!(backoff.ceiling, MOST);
}

#[tokio::test]
async fn a_socket_that_is_none_any_more_ends_the_listener_with_its_reason() {
    let world = World::new().await;
    let socket = Arc::new(TcpListener::bind("127.0.0.1:0").expect("bind"));
    let spoiler = socket2::Socket::from(socket.try_clone().expect("dup"));
    let (standing, _) = watch::channel(Standing::Serving);
    let cookies: Arc<dyn Cookies> = Arc::new(parking_lot::Mutex::new(
        holdfast_kernel::diag::Diag::open().expect("diag"),
    ));
    let (desk, clock, dice) = (
        Arc::clone(&world.desk),
        Clock::system(),
        Seed::new(1).dice(),
    );
    let arguments = Arguments {
        socket,
        desk,
        cookies,
        clock,
        dice,
        standing,
    };
    let listener = Listener::new(arguments).expect("a listener");

    // No longer listening: accept answers EINVAL.
    spoiler.shutdown(Shutdown::Read).expect("shutdown");

    assert_eq!(listener.serve().await.errno(), libc::EINVAL);
}
