//! `cp` at its edges: destinations with a slash, pipes and sockets, files of several names, and what is said of a failure.

use holdfast_tests::victim::{Part, parts};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Area, Finished, Host, everyone};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;

/// It failed, with this word in what it says and none that says nothing.
fn refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code(), Some(125), "{finished}");
    for word in words {
        assert!(finished.stderr.contains(word), "{word}: {finished}");
    }
    for empty in ["failed to", "stands above", "nothing came", "os error"] {
        assert!(!finished.stderr.contains(empty), "{empty}: {finished}");
    }
}

fn inside(host: &Host, line: &str) -> String {
    let finished = host.shell("qa", line);
    assert_eq!(finished.code(), Some(0), "{finished}");
    finished.text()
}

fn tree(area: &Area) -> std::path::PathBuf {
    let tree = area.directory(&area.work().join("tree"));
    area.file(&tree.join("f"), "content");
    tree
}

/// As `docker cp` has them.
#[test]
fn a_destination_with_a_slash_is_a_directory() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        tree(&area);

        refused(
            &host.said("cp tree/f qa:/tmp/new/"),
            &["/tmp/new/", "no such directory"],
        );
        host.done("cp tree qa:/tmp/new/");
        assert_eq!(inside(&host, "cat /tmp/new/f"), "content");
        host.done("cp tree qa:/tmp/new/");
        host.done("cp tree/. qa:/tmp/other/");
        assert_eq!(
            inside(&host, "cat /tmp/new/tree/f /tmp/other/f"),
            "contentcontent"
        );
        host.done("cp tree/f qa:/tmp/other/");
        refused(
            &host.said("cp tree/f qa:/tmp/other/f/"),
            &["/tmp/other/f/", "not a directory"],
        );
        refused(
            &host.said("cp tree qa:/tmp/other/f"),
            &["/tmp/other/f", "not a directory"],
        );
        refused(
            &host.said("cp tree/f qa:/tmp/no/f"),
            &["/tmp/no", "no such file", "hint"],
        );
        refused(
            &host.said("cp qa:/tmp/other/f gone/"),
            &["gone/", "not a directory"],
        );
        host.done("cp qa:/tmp/other here/");
        assert!(area.work().join("here/f").exists());
    }
}

/// What is no file, directory or link is refused by its name, whichever way it goes.
#[test]
fn a_pipe_or_a_socket_is_refused_by_name_whichever_way_it_goes() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let tree = tree(&area);
        nix::unistd::mkfifo(&tree.join("pipe"), Mode::S_IRWXU).expect("a pipe");
        area.give(&tree.join("pipe"));

        for line in ["cp tree qa:/tmp/t", "cp tree/pipe qa:/tmp/"] {
            refused(&host.said(line), &["tree/pipe", "a pipe", "remove it"]);
        }
        fs::remove_file(tree.join("pipe")).expect("removed");
        let socket = UnixListener::bind(tree.join("socket")).expect("bound");
        refused(
            &host.said("cp tree qa:/tmp/t"),
            &["tree/socket", "a socket", "remove it"],
        );
        drop(socket);
        fs::remove_file(tree.join("socket")).expect("removed");

        inside(&host, "mkdir /tmp/d; echo x > /tmp/d/x; mkfifo /tmp/d/p");
        for line in ["cp qa:/tmp/d out", "cp qa:/tmp/d/p out", "cp qa:/tmp/d -"] {
            refused(&host.said(line), &["/tmp/d/p", "a pipe", "remove it"]);
        }
        assert!(!area.work().join("out").exists(), "nothing is left");
        let tar = host.say("cp - qa:/tmp").input(fifo_archive()).finish();
        refused(&tar, &["queue", "a pipe"]);
        assert_eq!(inside(&host, "test -e /tmp/queue || echo none"), "none\n");
    }
}

/// The kernel's own files tell no length, or a page; they have content all the same.
#[test]
fn a_file_that_tells_no_length_is_copied_with_its_content() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let content = inside(&host, "cat /proc/version");

        host.done("cp qa:/proc/version out");
        host.done("cp /proc/version qa:/tmp/in");

        let out = fs::read_to_string(area.work().join("out")).expect("is there");
        assert_eq!(out, content);
        assert_eq!(inside(&host, "cat /tmp/in"), content);
    }
}

/// One file with two names is one on the other side, too.
#[test]
fn hard_links_stay_links() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let tree = tree(&area);
        let deep = area.directory(&tree.join("deep"));
        fs::hard_link(tree.join("f"), deep.join("again")).expect("linked");
        area.file(&deep.join("alone"), "other");

        host.done("cp tree qa:/tmp/t");
        let numbers = inside(
            &host,
            "stat -c %i /tmp/t/f /tmp/t/deep/again; cat /tmp/t/deep/again",
        );
        let mut lines = numbers.lines();
        assert_eq!(lines.next(), lines.next(), "{numbers}");
        assert_eq!(lines.next(), Some("content"));

        host.done("cp qa:/tmp/t back");
        let number = |name: &str| fs::metadata(area.work().join(name)).expect("came").ino();
        assert_eq!(number("back/f"), number("back/deep/again"));
        assert_ne!(number("back/f"), number("back/deep/alone"));
        let text = fs::read_to_string(area.work().join("back/deep/again"));
        assert_eq!(text.expect("came"), "content");
    }
}

/// What, where, and what to do.
#[test]
fn a_copy_that_fails_says_what_and_where() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        tree(&area);

        refused(
            &host.said("cp qa:/nosuch -"),
            &["copy from qa: /nosuch: no such file", "hint"],
        );
        refused(
            &host.said("cp qa:/nosuch x"),
            &["copy from qa: /nosuch: no such file"],
        );
        let place = host.said("cp tree/f qa:/usr/f");
        refused(
            &place,
            &["copy to qa: /usr/f: ", "`holdfast policy get qa`"],
        );
        for (stream, word) in [("", "it is empty"), ("no archive", "it is none")] {
            let finished = host.say("cp - qa:/tmp").input(stream).finish();
            assert_eq!(finished.code(), Some(125), "{finished}");
            assert!(
                finished.stderr.contains("read the tar stream"),
                "{finished}"
            );
            assert!(finished.stderr.contains(word), "{finished}");
        }
    }
}

/// Whatever ends a copy: what was there is as it was, and nothing stands beside it.
#[test]
fn a_copy_that_is_interrupted_damages_nothing_and_leaves_nothing() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let here = area.directory(&area.work().join("d"));
        inside(&host, "mkdir /tmp/d");
        let place = format!("/tmp/d {}", here.display());
        inside(
            &host,
            &format!("for d in {place}; do printf old > $d/big; done"),
        );
        let is_as_it_was = |directory: &str| {
            let text = inside(&host, &format!("cd {directory}; cat big; ls -A"));
            assert_eq!(text, "oldbig\n", "{directory}");
        };
        let ends = ["a signal", "the gateway's death", "the keeper's death"];

        for directory in place.split(' ') {
            for end in ends {
                for name in ["", "/new"] {
                    let mut copy = host
                        .say(&format!("cp - qa:{directory}{name}"))
                        .held_input()
                        .start();
                    copy.send(&header("big", b'0', 2 * MUCH));
                    // Taken by somebody, so that the copy is well on its way.
                    copy.send(&vec![b'x'; MUCH]);
                    is_as_it_was(directory);
                    match end {
                        "a signal" => copy.signal(Signal::SIGINT),
                        "the gateway's death" => host.end_gateway(Signal::SIGKILL),
                        _ => parts(&area, "")[&Part::Keeper][0].kill(),
                    }
                    let finished = copy.finish();
                    if end != "a signal" {
                        refused(&finished, &["run it again"]);
                        assert!(!finished.stderr.contains("attach"), "{finished}");
                    }
                    assert_ne!(finished.code(), Some(0), "{finished}");
                    until("the sandbox is ready again", LONG, || {
                        host.shell("qa", "true").code() == Some(0)
                    });
                    is_as_it_was(directory);
                }
            }
        }
    }
}

/// A tar stream without its end is none, and two files have no room under one new name.
#[test]
fn a_stream_that_is_not_whole_or_has_no_room_makes_nothing() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        let mut two = Vec::new();
        for name in ["a", "b"] {
            two.extend(header(name, b'0', 512));
            two.extend([b'x'; 512]);
        }

        let endless = host.say("cp - qa:/tmp/new").input(&two[..1024]).finish();
        refused(&endless, &["its end is missing"]);
        two.extend([0; 1024]);
        let several = host.say("cp - qa:/tmp/new").input(&*two).finish();
        refused(&several, &["/tmp/new", "make the directory first"]);
        assert_eq!(inside(&host, "ls -A /tmp"), "");

        inside(&host, "mkdir /tmp/new");
        let copied = host.say("cp - qa:/tmp/new").input(two).finish();
        assert_eq!(copied.code(), Some(0), "{copied}");
        assert_eq!(inside(&host, "ls -A /tmp/new"), "a\nb\n");
    }
}

/// The disk that is full is told, with the name that the file would have had.
#[test]
fn a_copy_onto_a_full_disk_says_so() {
    for area in everyone() {
        let host = Host::new(&area);
        host.ready("qa", "");
        area.directory(&area.work().join("small"));
        inside(
            &host,
            "mkdir /tmp/d; head -c 300000 /dev/urandom > /tmp/d/f",
        );
        let mounted = "mount -t tmpfs -o size=64k none small && exec \"$@\"";

        for (line, name) in [
            ("cp qa:/tmp/d small", "small/d/f"),
            ("cp qa:/tmp/d/f small/g", "small/g"),
        ] {
            let full = host
                .say(line)
                .under(["unshare", "-rm", "sh", "-c", mounted, "sh"])
                .finish();
            refused(
                &full,
                &[&format!("copy to {name}: No space left on device")],
            );
            assert!(!full.stderr.contains(".holdfast-cp"), "{full}");
        }
    }
}

/// More than waits anywhere between the command and the sandbox.
const MUCH: usize = 16 << 20;

/// A tar archive with a pipe called `queue`: one header, and the two empty blocks of the end.
fn fifo_archive() -> Vec<u8> {
    let mut archive = header("queue", b'6', 0);
    archive.resize(512 * 3, 0);
    archive
}

/// The header of an entry.
fn header(name: &str, kind: u8, size: usize) -> Vec<u8> {
    let mut block = vec![0_u8; 512];
    let mut put = |place: usize, text: &str| {
        block[place..place + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    put(148, "        ");
    put(257, "ustar\x0000");
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
