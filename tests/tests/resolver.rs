//! `resolv.conf` is there, whatever the root has in its place. (Promise 2.)

use holdfast_tests::root::{Root, after};
use holdfast_tests::{Area, Caller, Finished, callers, everyone, skip};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

/// Every line of `told`, which the run has printed in this order.
fn says(done: &Finished, told: &str) {
    assert_eq!(done.exited(0).text(), told, "{done}");
}

#[test]
fn resolv_conf_is_added_to_a_directory_that_lacks_it() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let line = "cat /etc/resolv.conf; getent ahostsv4 origin.test >/dev/null && echo resolved; \
                    cat /etc/hosts; cat /etc/motd /etc/link /etc/sub/deep/file; cat /etc/secret || echo secret; \
                    for place in motd new resolv.conf sub/new; do (echo x >>/etc/$place) || echo refused; done; \
                    rm /etc/resolv.conf || echo kept; echo written >/etc/own/file; echo new >/etc/own/new; \
                    echo single >/etc/single; for name in /etc/*; do echo $name; done";

        let files = "read_only: [PROGRAMS, /etc], read_write: [/etc/own, /etc/single]";
        let done = root.run(files, line).finish();

        says(
            &done,
            "nameserver 198.18.0.1\nresolved\n192.0.2.2 other\nof the root\nof the root\ndeep\nsecret\n\
             refused\nrefused\nrefused\nrefused\nkept\n\
             /etc/hosts\n/etc/link\n/etc/motd\n/etc/nsswitch.conf\n/etc/own\n/etc/resolv.conf\n/etc/secret\n\
             /etc/single\n/etc/sub\n",
        );
        assert!(!done.stderr.contains("WARN"), "{done}");
        let reached = ["etc/own/file", "etc/own/new", "etc/single"].map(|path| root.read(path));
        assert_eq!(reached, ["written\n", "new\n", "single\n"]);
        assert_eq!(root.read("etc/motd"), "of the root\n");
        assert!(!root.path.join("etc/resolv.conf").exists(), "outside");
    }
}

#[test]
fn resolv_conf_is_added_where_its_link_leads() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        symlink(
            "../data/stub/resolv.conf",
            root.path.join("etc/resolv.conf"),
        )
        .expect("link");
        root.file("data/file", "data\n");
        let line = "cat /etc/resolv.conf /data/file; (echo x >/data/stub/new) || echo refused";

        for files in ["[PROGRAMS, /etc, /data]", "[PROGRAMS, /etc]"] {
            let done = root.run(&format!("read_only: {files}"), line).finish();

            let data = if files.contains("/data") {
                "data\n"
            } else {
                ""
            };
            let told = format!("nameserver 198.18.0.1\n{data}refused\n");
            says(&done, &told);
        }
        assert!(!root.path.join("data/stub").exists(), "outside");
    }
}

#[test]
fn what_is_edited_outside_is_seen_beside_an_added_file() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let line = "cat /etc/motd; read go; cat /etc/motd /etc/new /etc/resolv.conf";
        let mut running = root
            .run("read_only: [PROGRAMS, /etc]", line)
            .held_input()
            .start();
        running.expect("of the root\n");

        root.file("etc/motd", "edited\n");
        root.file("etc/new", "new\n");
        root.file("etc/resolv.conf", "nameserver 192.0.2.53\n");
        running.send(b"go\n");

        says(
            &running.finish(),
            "of the root\nedited\nnew\nnameserver 198.18.0.1\n",
        );
    }
}

/// What the caller may not write to is to be written in name only.
#[test]
fn resolv_conf_is_added_to_a_directory_that_only_the_policy_lets_be_written() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        if area.caller().is_root() {
            skip::skip("a directory that root may not write to", "there is none");
            continue;
        }
        let line = "cat /etc/resolv.conf; echo written >/etc/new || echo refused; \
                    getent ahostsv4 origin.test >/dev/null && echo resolved";
        let files = "read_only: [PROGRAMS], read_write: [/etc]";

        fs::set_permissions(root.path.join("etc"), Permissions::from_mode(0o555)).expect("chmod");
        let done = root.run(files, line).finish();
        fs::set_permissions(root.path.join("etc"), Permissions::from_mode(0o755)).expect("chmod");

        says(&done, "nameserver 198.18.0.1\nrefused\nresolved\n");
    }
}

/// The sandbox itself may have put the link there in an earlier life, and root's start writes what it likes.
#[test]
fn a_link_to_what_is_the_kernels_or_to_nowhere_is_refused_and_nothing_is_written() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        let link = root.path.join("etc/resolv.conf");
        let files = "read_only: [PROGRAMS], read_write: [/etc]";
        for (target, told) in [
            // Of the sandbox's own namespace: nothing of the host's is lost if it is written to.
            (
                "/proc/sys/kernel/hostname",
                "leads to /proc/sys/kernel/hostname",
            ),
            ("/dev/null", "leads to /dev/null"),
            ("/", "is a directory"),
            ("resolv.conf", "leads in a circle"),
        ] {
            fs::remove_file(&link).ok();
            symlink(target, &link).expect("link");

            let done = root.run(files, "echo ran").finish();

            assert_eq!(done.exited(125).text(), "", "{target}: {done}");
            let place = "/etc/resolv.conf of the sandbox's root";
            for word in [place, told, "put a file in its place"] {
                assert!(done.stderr.contains(word), "{word}: {done}");
            }
        }
    }
}

#[test]
fn resolv_conf_is_there_without_its_directory() {
    for area in everyone() {
        let Some(root) = Root::of(&area) else { return };
        for files in [
            "read_only: [PROGRAMS]",
            "read_only: [PROGRAMS, /etc/nsswitch.conf, /etc/hosts]",
        ] {
            let line =
                "cat /etc/resolv.conf; getent ahostsv4 origin.test >/dev/null && echo resolved";
            let done = root.run(files, line).finish();
            says(&done, "nameserver 198.18.0.1\nresolved\n");
        }
    }
}

/// The kernel lets nobody look below a mount by an overlay, so none is had of a directory that has one in it.
#[test]
fn where_nothing_can_be_added_the_start_goes_on_and_says_so() {
    if !Caller::Myself.is_root() {
        skip::skip("mounts in a root", "the tests run as an ordinary user");
        return;
    }
    for area in callers().into_iter().map(Area::new) {
        let Some(root) = Root::of(&area) else { return };
        let sub = root.path.join("etc/sub");
        let mounts = format!("mount -t tmpfs none {}", sub.display());
        let line = "cat /etc/resolv.conf || echo none; cat /etc/motd; for name in /etc/sub/* /.[!.]*; do echo $name; done; \
                    getent ahostsv4 origin.test >/dev/null && echo resolved";

        let run = root.run("read_only: [PROGRAMS, /etc]", line);
        let done = after(&area, &mounts, run).finish();

        says(&done, "none\nof the root\n/etc/sub/*\n/.fence\nresolved\n");
        let told = "the sandbox has no /etc/resolv.conf";
        assert!(done.stderr.contains(told), "{done}");
    }
}

#[test]
fn what_a_mount_forbids_an_addition_does_not_allow() {
    if !Caller::Myself.is_root() {
        skip::skip("mounts in a root", "the tests run as an ordinary user");
        return;
    }
    for area in callers().into_iter().map(Area::new) {
        let Some(root) = Root::of(&area) else { return };
        area.script(&root.path.join("etc/script"), "#!/bin/sh\necho executed\n");
        let etc = root.path.join("etc");
        let etc = etc.display();
        let line = "cat /etc/resolv.conf; /etc/script || echo refused";
        let files = "read_only: [PROGRAMS, /etc]";

        let usual = root.run(files, line).finish();
        let mounts = format!("mount --bind {etc} {etc}; mount -o remount,bind,noexec {etc}");
        let forbidden = after(&area, &mounts, root.run(files, line)).finish();

        says(&usual, "nameserver 198.18.0.1\nexecuted\n");
        says(&forbidden, "nameserver 198.18.0.1\nrefused\n");
    }
}
