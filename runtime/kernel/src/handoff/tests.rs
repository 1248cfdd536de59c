use std::fs::File;
use std::io::{Read, Write};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;
use crate::apart::apart;

#[test]
fn a_packet_arrives_whole_with_its_descriptors() -> Result<()> {
    let (ours, theirs) = pair()?;
    let (mut reader, writer) = std::io::pipe().called("pipe")?;

    ours.send(b"listener", &[writer.as_fd()])?;
    drop(writer);
    ours.send(b"next", &[])?;

    let mut buffer = [0; 64];
    let Received::Packet {
        length,
        mut descriptors,
    } = theirs.receive(&mut buffer)?
    else {
        panic!("no packet");
    };
    assert_eq!(&buffer[..length], b"listener");
    assert_eq!(descriptors.len(), 1);
    let flags =
        nix::fcntl::fcntl(&descriptors[0], nix::fcntl::FcntlArg::F_GETFD).called("fcntl")?;
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    let mut received = File::from(descriptors.remove(0));
    received.write_all(b"through").called("write")?;
    drop(received);
    let mut text = String::new();
    reader.read_to_string(&mut text).called("read")?;
    assert_eq!(text, "through");

    let Received::Packet {
        length,
        descriptors,
    } = theirs.receive(&mut buffer)?
    else {
        panic!("no second packet");
    };
    assert_eq!((&buffer[..length], descriptors.len()), (&b"next"[..], 0));
    Ok(())
}

#[test]
fn a_full_load_of_descriptors_keeps_its_order() -> Result<()> {
    let (ours, theirs) = pair()?;
    let pipes = (0..DESCRIPTORS)
        .map(|_| std::io::pipe().called("pipe"))
        .collect::<Result<Vec<_>>>()?;
    let writers: Vec<_> = pipes.iter().map(|(_, writer)| writer.as_fd()).collect();

    ours.send(b"all", &writers)?;

    let mut buffer = [0; 8];
    let Received::Packet { descriptors, .. } = theirs.receive(&mut buffer)? else {
        panic!("no packet");
    };
    assert_eq!(descriptors.len(), DESCRIPTORS);
    for (index, (descriptor, (reader, _))) in (0..).zip(descriptors.into_iter().zip(&pipes)) {
        let mut reader = reader;
        File::from(descriptor).write_all(&[index]).called("write")?;
        let mut byte = [0];
        reader.read_exact(&mut byte).called("read")?;
        assert_eq!(byte, [index]);
    }
    Ok(())
}

#[test]
fn the_peers_end_is_told_and_so_is_nothing_yet() -> Result<()> {
    let (ours, theirs) = pair()?;
    let mut buffer = [0; 8];
    let waiting = theirs.try_receive(&mut buffer).expect_err("nothing sent");
    assert_eq!(waiting.errno(), libc::EAGAIN);

    ours.send(b"last", &[])?;
    drop(ours);

    assert!(matches!(
        theirs.receive(&mut buffer)?,
        Received::Packet { length: 4, .. }
    ));
    assert!(matches!(theirs.receive(&mut buffer)?, Received::Closed));
    let gone = theirs.send(b"late", &[]).expect_err("nobody there");
    assert_eq!(gone.errno(), libc::EPIPE);
    Ok(())
}

#[test]
fn a_full_queue_refuses_and_loses_nothing() -> Result<()> {
    let (ours, theirs) = pair()?;
    let mut sent = 0;
    let refused = loop {
        match ours.try_send(&[7; 1024], &[]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno(), libc::EAGAIN);

    drop(ours);
    let mut buffer = [0; 2048];
    let mut received = 0;
    while let Received::Packet { length, .. } = theirs.receive(&mut buffer)? {
        assert_eq!(length, 1024);
        received += 1;
    }
    assert_eq!(received, sent);
    Ok(())
}

#[test]
fn a_packet_longer_than_the_buffer_is_an_error_and_keeps_no_descriptor() -> Result<()> {
    let (ours, theirs) = pair()?;
    let (mut reader, writer) = std::io::pipe().called("pipe")?;

    ours.send(&[1; 32], &[writer.as_fd()])?;
    drop(writer);

    let refused = theirs.receive(&mut [0; 8]).expect_err("too long");
    assert_eq!(refused.errno(), libc::EMSGSIZE);
    // The end of the pipe shows that no writer is left anywhere.
    assert_eq!(reader.read(&mut [0; 1]).called("read")?, 0);
    Ok(())
}

#[test]
fn a_receiver_at_its_limit_hears_that_descriptors_were_lost_and_leaks_none() {
    apart(|| {
        let (ours, theirs) = pair().expect("a pair");
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        ours.send(b"two", &[writer.as_fd(), writer.as_fd()])
            .expect("room");
        drop(writer);
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
        // Room for exactly one more: the number that the dropped writer has left.
        let highest = reader.as_raw_fd().max(theirs.as_fd().as_raw_fd());
        let room = u64::try_from(highest).expect("a number") + 2;
        setrlimit(Resource::RLIMIT_NOFILE, room, hard).expect("a lower limit");

        let mut buffer = [0; 8];
        let received = theirs.receive(&mut buffer).expect("the bytes");

        assert!(matches!(received, Received::Exhausted { length: 3 }));
        assert_eq!(&buffer[..3], b"two");
        assert_eq!(reader.read(&mut [0; 1]).expect("the end"), 0);
    });
}

#[test]
fn the_peer_of_a_pair_is_its_maker() -> Result<()> {
    let (ours, _theirs) = pair()?;

    let credentials = peer(&ours)?;

    assert_eq!(credentials.pid, nix::unistd::getpid().as_raw());
    assert_eq!(credentials.uid, nix::unistd::geteuid().as_raw());
    assert_eq!(credentials.gid, nix::unistd::getegid().as_raw());
    Ok(())
}

/// What is on its way counts for all processes of a user: another program's handful is no reason to fail.
#[test]
fn descriptors_that_crowd_the_way_are_waited_for() {
    apart(|| {
        if nix::unistd::geteuid().is_root() {
            // Root is not counted.
            nix::unistd::setuid(nix::unistd::Uid::from_raw(54_399)).expect("another user");
        }
        setrlimit(Resource::RLIMIT_NOFILE, 24, 24).expect("a lower limit");
        let (ours, theirs) = pair().expect("a pair");
        let many = [ours.as_fd(); DESCRIPTORS];
        ours.send(b"one", &many).expect("room");
        ours.send(b"two", &many).expect("room");
        let crowded = ours.try_send(b"three", &many).expect_err("no room");
        assert_eq!(crowded.errno(), libc::ETOOMANYREFS);

        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(LOOK_AGAIN * 3);
                let _one = theirs.receive(&mut [0; 8]).expect("a packet");
                let _two = theirs.receive(&mut [0; 8]).expect("a packet");
            });
            ours.send(b"three", &many).expect("room again");
        });
    });
}
