//! The files are those of the policy. (Promise 2.)

use holdfast_tests::probe::probe;
use holdfast_tests::{Area, Caller, Policy, Run, artefacts, everyone, skip};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a file looks like from outside: nothing of it may change.
fn looks(path: &Path) -> (Vec<u8>, u32, i64, u64) {
    let known = fs::metadata(path).expect("the file is still there");
    (
        fs::read(path).expect("read"),
        known.permissions().mode(),
        known.mtime_nsec(),
        known.nlink(),
    )
}

/// A writable tree with a read-only one below it: `work/ro/file`.
fn nested(area: &Area) -> (Policy, PathBuf) {
    let below = area.directory(&area.work().join("ro"));
    let file = area.file(&below.join("file"), "content");
    (
        Policy::offline().read_write(area.work()).read_only(&below),
        file,
    )
}

#[test]
fn what_the_policy_does_not_list_is_not_there() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let secret = area.file(&area.root().join("secret"), "s");
        let link = area.work().join("link");
        std::os::unix::fs::symlink(&secret, &link).expect("link");
        for path in [
            &secret,
            &link,
            &area.home(),
            &PathBuf::from("/root"),
            &PathBuf::from("/var/lib"),
        ] {
            let done = Run::new(&area, &Policy::offline())
                .attempt(&format!("file read {}", path.display()))
                .finish();
            assert_eq!(done.answer("read"), "ENOENT", "{}: {done}", path.display());
        }
        let done = Run::new(&area, &Policy::offline())
            .attempt(&format!(
                "file create {}",
                area.root().join("new").display()
            ))
            .finish();
        assert_ne!(done.answer("create"), "ok", "{done}");
        assert!(!area.root().join("new").exists());
    }
}

/// LL-02, LL-05, LL-11: neither the bytes nor the name nor the mode.
#[test]
fn what_is_listed_to_read_cannot_be_changed_in_any_way() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        let (policy, file) = nested(&area);
        let before = looks(&file);
        let work = area.work();
        let (path, outside) = (file.display(), work.join("taken"));
        let mut attempts: Vec<String> = [
            "write",
            "open-truncate",
            "truncate",
            "chmod",
            "chown",
            "utime",
            "setxattr",
            "unlink",
        ]
        .iter()
        .map(|what| format!("file {what} {path}"))
        .collect();
        let directory = file.parent().expect("a directory").display();
        attempts.extend([
            format!("file create {directory}/new"),
            format!("file mkdir {directory}/new"),
            format!("two-files rename {path} {}", outside.display()),
            format!("two-files link {path} {}", outside.display()),
            format!("two-files symlink {path} {directory}/new"),
            format!("two-files rename {directory} {}", outside.display()),
        ]);
        area.file(&work.join("mine"), "mine");
        attempts.extend([
            format!("two-files rename {}/mine {path}", work.display()),
            format!("two-files exchange {}/mine {path}", work.display()),
            format!("two-files link {}/mine {directory}/new", work.display()),
        ]);
        for attempt in attempts {
            let done = Run::new(&area, &policy).attempt(&attempt).finish();
            let answers = holdfast_tests::probe::answers(&done.stdout);
            assert_eq!(answers.len(), 1, "{attempt}: {done}");
            assert!(
                answers.values().all(|it| it.starts_with('E')),
                "{attempt}: {done}"
            );
            assert_eq!(looks(&file), before, "{attempt}: {done}");
            assert!(!file.with_file_name("new").exists(), "{attempt}: {done}");
        }
    }
}

/// LL-05: what leads to a protected path cannot be put aside, and something else in its place.
#[test]
fn the_way_to_a_protected_path_cannot_be_renamed() {
    for area in everyone() {
        let hooks = area.work().join("project/.git/hooks");
        for directory in ["project", "project/.git", "project/.git/hooks"] {
            area.directory(&area.work().join(directory));
        }
        area.file(&hooks.join("kept"), "kept");
        let own = area.directory(&area.work().join("local"));
        let own = area.directory(&own.join("state"));
        area.file(&own.join("registry"), "content");
        let attempts = [
            "mv .git .g2",
            "mv .git/hooks .git/h2",
            "mv ../project ../p2",
            "rm -r .git/hooks",
            "rmdir .git/hooks",
            "echo x >.git/hooks/new",
            "ln -s /tmp .git/hooks/new",
            "ln .git/own .git/hooks/new",
            "mv .git/own .git/hooks/kept",
            "mv ../local ../l2",
            "mv ../local/state ../local/s2",
        ];
        let tried = attempts.map(|it| format!("if {it}; then echo \"through: {it}\"; fi"));
        let line = format!(
            "cd project && echo mine >.git/own && {{ {}; }} 2>/dev/null; \
             mv .git/own .git/other && ln .git/other .git/more && mkdir a b && touch a/f && mv a/f b/f && echo works",
            tried.join("; ")
        );

        let done = Run::new(&area, &Policy::offline().read_only(&hooks))
            .environment("HOLDFAST_STATE_DIR", own.as_os_str())
            .shell(&line)
            .finish();

        assert_eq!(done.text(), "works\n", "{done}");
        assert_eq!(
            fs::read_to_string(hooks.join("kept")).expect("there"),
            "kept"
        );
        assert!(own.join("registry").exists(), "{done}");
        assert_eq!(fs::read_dir(&hooks).expect("there").count(), 1, "{done}");
    }
}

#[test]
fn the_system_cannot_be_changed_even_by_root() {
    if probe().is_none() {
        return;
    }
    for area in everyone() {
        // A directory of the caller's own, so that ordinary permissions would allow everything.
        let own = area.directory(&area.root().join("system"));
        let file = area.file(&own.join("file"), "content");
        let before = looks(&file);
        let policy = Policy::offline().read_only(&own);
        for what in [
            "write",
            "truncate",
            "open-truncate",
            "chmod",
            "utime",
            "setxattr",
            "unlink",
        ] {
            let attempt = format!("file {what} {}", file.display());
            let done = Run::new(&area, &policy).attempt(&attempt).finish();
            assert!(done.answer(what).starts_with('E'), "{done}");
            assert_eq!(looks(&file), before, "{done}");
        }
        let done = Run::new(&area, &policy)
            .attempt("file create /etc/holdfast-was-here")
            .finish();
        assert!(done.answer("create").starts_with('E'), "{done}");
        let done = Run::new(&area, &policy)
            .attempt("file create /holdfast-was-here")
            .finish();
        assert!(
            done.answer("create").starts_with('E'),
            "the view's own root: {done}"
        );
        assert!(!Path::new("/holdfast-was-here").exists());
    }
}

#[test]
fn what_is_listed_to_write_works_as_outside() {
    for area in everyone() {
        area.directory(&area.work().join("a"));
        area.directory(&area.work().join("b"));
        let line = "set -e; echo x >a/f; mv a/f b/f; ln b/f a/g; ln -s ../b/f a/s; cat a/s; \
                    chmod 600 b/f; touch -d @1000 b/f; mkdir a/d; rmdir a/d; mv a c; cat c/g; rm -r c; echo done";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        done.exited(0);
        assert_eq!(done.text(), "x\nx\ndone\n", "{done}");
        let known = fs::metadata(area.work().join("b/f")).expect("the file is there outside");
        assert_eq!((known.mtime(), known.mode() & 0o777), (1000, 0o600));
        assert_eq!(known.uid(), area.caller().uid());
    }
}

#[test]
fn tmp_and_shm_are_private() {
    for area in everyone() {
        let name = format!("holdfast-tests-private-{}", std::process::id());
        let line = format!(
            "echo x >/tmp/{name} && echo x >/dev/shm/{name} && cat /tmp/{name} /dev/shm/{name}; ls -A /tmp"
        );
        let done = Run::new(&area, &Policy::offline()).shell(&line).finish();
        done.exited(0);
        assert_eq!(done.text(), format!("x\nx\n{name}\n"), "{done}");
        assert!(!Path::new("/tmp").join(&name).exists());
        assert!(!Path::new("/dev/shm").join(&name).exists());
        let mode = Run::new(&area, &Policy::offline())
            .shell("stat -c %a /tmp")
            .finish();
        assert_eq!(mode.text(), "1777\n", "{mode}");
    }
}

#[test]
fn message_queues_work_and_are_private() {
    let Some(python) = skip::program("python3") else {
        return;
    };
    for area in everyone() {
        let policy = Policy::offline().read_only(&python);
        let done = Run::new(&area, &policy)
            .command([python.as_os_str(), "-c".as_ref(), QUEUES.as_ref()])
            .finish();
        assert_eq!(done.exited(0).text(), "word\n['one']\n", "{done}");
        let again = Run::new(&area, &policy).shell("ls /dev/mqueue").finish();
        assert_eq!(again.exited(0).text(), "", "{again}");
    }
}

/// Makes a queue, sends a word through it, and lists what queues there are.
const QUEUES: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def done(answer):
    if answer < 0:
        raise OSError(ctypes.get_errno(), "mq")
    return answer
queue = done(libc.mq_open(b"/one", os.O_RDWR | os.O_CREAT, 0o600, None))
done(libc.mq_send(queue, b"word", 4, 0))
room = ctypes.create_string_buffer(8192)
length = done(libc.mq_receive(queue, room, 8192, None))
print(room.raw[:length].decode())
print(os.listdir("/dev/mqueue"))
"#;

#[test]
fn what_is_listed_below_dev_shm_is_the_hosts() {
    for area in everyone() {
        let place = tempfile::Builder::new()
            .prefix("holdfast-tests-")
            .tempdir_in("/dev/shm")
            .expect("a directory");
        area.give(place.path());
        let line = format!("echo x >{}/here; ls -A /dev/shm", place.path().display());
        let policy = Policy::offline().read_write(place.path());
        let done = Run::new(&area, &policy).shell(&line).finish();
        let name = place.path().file_name().expect("a name").display();
        assert_eq!(done.exited(0).text(), format!("{name}\n"), "{done}");
        assert!(place.path().join("here").exists(), "{done}");
    }
}

/// A mount that is read-only does not keep a device from being written to.
#[test]
fn a_device_that_is_listed_to_be_read_cannot_be_written_to() {
    let device = Path::new("/dev/kmsg");
    let opened = fs::OpenOptions::new().write(true).open(device);
    if opened.is_err() {
        skip::skip("a device of root's", "/dev/kmsg cannot be written to");
        return;
    }
    let area = Area::new(Caller::Myself);
    let line = "(exec 3>/dev/kmsg) 2>/dev/null && echo opened; test -c /dev/kmsg && echo there";
    for (policy, said) in [
        (Policy::offline().read_only(device), "there\n"),
        (Policy::offline().read_write(device), "opened\nthere\n"),
    ] {
        let done = Run::new(&area, &policy).shell(line).finish();
        assert_eq!(done.text(), said, "{done}");
    }
}

#[test]
fn a_working_directory_below_tmp_works() {
    for area in everyone() {
        let place = tempfile::Builder::new()
            .prefix("holdfast-tests-")
            .tempdir_in("/tmp")
            .expect("a directory");
        artefacts::open_to_all(place.path());
        area.give(place.path());
        let line = "pwd; echo x >here; ls -A /tmp";
        let run = Run::new(&area, &Policy::offline())
            .shell(line)
            .directory(place.path());
        let done = run.finish();
        done.exited(0);
        let name = place
            .path()
            .file_name()
            .expect("a name")
            .to_str()
            .expect("text");
        assert_eq!(done.text(), format!("/tmp/{name}\n{name}\n"), "{done}");
        assert!(place.path().join("here").exists());
    }
}

#[test]
fn the_top_of_the_view_is_that_of_the_host() {
    for area in everyone() {
        for name in ["bin", "lib", "lib64", "sbin"] {
            let Ok(target) = fs::read_link(Path::new("/").join(name)) else {
                continue;
            };
            let done = Run::new(&area, &Policy::offline())
                .shell(&format!("readlink /{name}"))
                .finish();
            assert_eq!(done.text().trim(), target.to_str().expect("text"), "{done}");
        }
        let done = Run::new(&area, &Policy::offline())
            .shell("ls -A /; pwd")
            .finish();
        for hidden in ["root", "home", "boot", "srv", "mnt"] {
            assert!(
                !done.text().lines().any(|line| line == hidden),
                "{hidden}: {done}"
            );
        }
        assert!(
            done.text()
                .ends_with(&format!("{}\n", area.work().display())),
            "{done}"
        );
    }
}

#[test]
fn resolv_conf_is_readable_and_names_a_server_that_answers() {
    for area in everyone() {
        let line =
            "grep -c ^nameserver /etc/resolv.conf; getent hosts localhost >/dev/null && echo local";
        let done = Run::new(&area, &Policy::offline()).shell(line).finish();
        let text = done.text();
        let mut lines = text.lines();
        let count = lines.next().and_then(|line| line.parse::<u32>().ok());
        assert!(count.unwrap_or(0) >= 1, "{done}");
        assert_eq!(lines.next(), Some("local"), "{done}");
    }
}

/// LL-06: the file that a link leads to is shown, and nothing beside it.
#[test]
fn links_at_the_top_and_to_resolv_conf_lead_where_they_did() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        // As distributions have it: `/bin` is a link, and `resolv.conf` leads into `/run`, which the policy does not list.
        let root = area.directory(&area.root().join("linked-root"));
        area.directory(&root.join("usr"));
        area.directory(&root.join("usr/bin"));
        area.directory(&root.join("etc"));
        area.directory(&root.join("run"));
        area.directory(&root.join("run/resolver"));
        area.file(
            &root.join("run/resolver/stub.conf"),
            "nameserver 127.0.0.53\n",
        );
        area.file(&root.join("run/secret"), "s");
        std::os::unix::fs::symlink("usr/bin", root.join("bin")).expect("link");
        std::os::unix::fs::symlink("../run/resolver/stub.conf", root.join("etc/resolv.conf"))
            .expect("link");
        fs::copy(probe, root.join("usr/bin/probe")).expect("copy");
        artefacts::open_to_all(&root.join("usr/bin/probe"));
        let policy = "version: 1\nfilesystem_policy: {read_only: [/usr, /etc]}\n";
        for (path, answer) in [("/etc/resolv.conf", "ok"), ("/run/secret", "ENOENT")] {
            let done = Run::with_text(&area, policy)
                .option("--rootfs")
                .option(&root)
                .option("--cwd")
                .option("/")
                .command(["/bin/probe", "file", "read", path])
                .finish();
            assert_eq!(done.exited(0).answer("read"), answer, "{path}: {done}");
        }
    }
}

#[test]
fn a_resolv_conf_that_is_no_list_of_servers_is_covered_or_refused() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let root = area.directory(&area.root().join("odd-root"));
        for directory in ["usr", "etc"] {
            area.directory(&root.join(directory));
        }
        let program = root.join("usr/probe");
        fs::copy(probe, &program).expect("copy");
        artefacts::open_to_all(&program);
        let odd = root.join("etc/resolv.conf");
        let policy = "version: 1\nfilesystem_policy: {read_only: [/usr, /etc]}\n";
        let run = || {
            Run::with_text(&area, policy)
                .option("--rootfs")
                .option(&root)
                .option("--cwd")
                .option("/")
                .command(["/usr/probe", "file", "read", "/etc/resolv.conf"])
                .finish()
        };

        nix::unistd::mkfifo(&odd, nix::sys::stat::Mode::S_IRWXU).expect("mkfifo");
        let pipe = run();
        fs::remove_file(&odd).expect("remove");
        let huge = fs::File::create(&odd).expect("create");
        huge.set_len(200 << 20).expect("grow");
        let long = run();
        fs::remove_file(&odd).expect("remove");
        area.directory(&odd);
        let directory = run();

        assert_eq!(pipe.exited(0).answer("read"), "ok", "{pipe}");
        let told = "/etc/resolv.conf of the sandbox's root is";
        for (done, what) in [(long, "longer than 64 KiB"), (directory, "a directory")] {
            let told = format!("{told} {what}");
            assert!(done.exited(125).stderr.contains(&told), "{done}");
        }
    }
}

#[test]
fn single_files_and_devices_may_be_listed() {
    for area in everyone() {
        let file = area.file(&area.root().join("one"), "one\n");
        area.file(&area.root().join("two"), "two\n");
        let fifo = area.root().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("mkfifo");
        area.give(&fifo);
        let policy = Policy::offline()
            .read_only(&file)
            .read_only(&fifo)
            .read_only("/dev/urandom")
            .with("landlock: {compatibility: hard_requirement}");
        let line = format!(
            "cat {}; ls {}; test -p {}",
            file.display(),
            area.root().display(),
            fifo.display()
        );
        let done = Run::new(&area, &policy).shell(&line).finish();
        done.exited(0);
        assert!(done.text().starts_with("one\n"), "{done}");
        assert!(!done.text().contains("two"), "{done}");
    }
}

/// LL-07: a link that the sandbox may have made is told by name, and not followed.
#[test]
fn a_link_that_one_run_leaves_opens_nothing_to_the_next() {
    for area in everyone() {
        let secret = area.directory(&area.root().join("secret"));
        let build = area.directory(&area.work().join("build"));
        let policy = Policy::offline().read_write(&build);
        let line = format!("rm -r build && ln -s {} build", secret.display());
        Run::new(&area, &policy).shell(&line).finish();
        assert!(
            build.is_symlink(),
            "the first run may do as it likes with its own"
        );

        let done = Run::new(&area, &policy)
            .shell("echo started; ls build/")
            .finish();

        assert_eq!(done.exited(125).text(), "", "nothing was started: {done}");
        assert!(done.stderr.contains("build"), "the link is named: {done}");
    }
}

/// LL-01: one path that is missing costs no other its rule.
#[test]
fn a_missing_path_is_refused_or_said_and_never_opens_the_rest() {
    for area in everyone() {
        let missing = area.root().join("not-there");
        let hard = Policy::offline()
            .read_only(&missing)
            .with("landlock: {compatibility: hard_requirement}");
        let done = Run::new(&area, &hard).shell("echo started").finish();
        done.exited(125);
        assert_eq!(done.text(), "", "nothing was started: {done}");
        assert!(
            done.stderr.contains("not-there"),
            "it names the path: {done}"
        );

        let soft = Policy::offline()
            .read_only(&missing)
            .with("landlock: {compatibility: best_effort}");
        let line = "touch /usr/x 2>/dev/null; echo $?; touch mine; echo $?";
        let done = Run::new(&area, &soft).shell(line).finish();
        assert_eq!(done.text(), "1\n0\n", "{done}");
        assert!(
            done.stderr.contains("not-there"),
            "one line says so: {done}"
        );
    }
}

/// LL-14: with a thousand entries.
#[test]
fn thousands_of_entries_start_quickly_and_with_few_descriptors() {
    for area in everyone() {
        let many = area.directory(&area.root().join("many"));
        let mut policy = Policy::offline();
        for number in 0..1000 {
            let one = many.join(format!("d{number}"));
            fs::create_dir(&one).expect("create a directory");
            artefacts::open_to_all(&one);
            policy = policy.read_only(one);
        }
        let done = Run::new(&area, &policy)
            .under(["prlimit", "--nofile=256:256"])
            .shell(&format!("ls {} | wc -l", many.display()))
            .finish();
        done.exited(0);
        assert_eq!(done.text(), "1000\n", "{done}");
        assert!(done.took < Duration::from_secs(10), "{done}");
    }
}

#[test]
fn another_root_can_be_given() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let root = area.directory(&area.root().join("other-root"));
        area.directory(&root.join("bin"));
        area.directory(&root.join("data"));
        area.file(&root.join("data/file"), "of the other root");
        fs::copy(probe, root.join("bin/probe")).expect("copy");
        artefacts::open_to_all(&root.join("bin/probe"));
        let policy =
            "version: 1\nfilesystem_policy: {include_workdir: false, read_only: [/bin, /data]}\n";
        for (attempt, name, answer) in [
            (["file", "read", "/data/file"], "read", "ok"),
            (["file", "write", "/data/file"], "write", "E"),
            (["file", "read", "/etc/passwd"], "read", "ENOENT"),
        ] {
            let done = Run::with_text(&area, policy)
                .option("--rootfs")
                .option(&root)
                .option("--cwd")
                .option("/")
                .command(["/bin/probe"].iter().chain(&attempt))
                .finish();
            done.exited(0);
            assert!(done.answer(name).starts_with(answer), "{attempt:?}: {done}");
        }
    }
}

#[test]
fn without_a_policy_the_system_is_readable_and_there_is_no_network() {
    for area in everyone() {
        let line = "echo x >here && cat here; touch /usr/x 2>/dev/null || echo no; \
                    echo y >/tmp/y && cat /tmp/y; ls /root >/dev/null 2>&1 || echo hidden";
        let done = Run::plain(&area, ["run"]).shell(line).finish();
        done.exited(0);
        assert_eq!(done.text(), "x\nno\ny\nhidden\n", "{done}");
        let Some(curl) = skip::program("curl") else {
            return;
        };
        let done = Run::plain(&area, ["run"])
            .command([
                curl.as_os_str(),
                "-sS".as_ref(),
                "http://192.0.2.1/".as_ref(),
            ])
            .finish();
        assert_eq!(done.code(), Some(7), "curl could not connect: {done}");
    }
}

/// What the runtime will keep its files in is there before a sandbox could make it: its registry would be the sandbox's.
#[test]
fn the_runtimes_own_directory_cannot_be_made_by_a_sandbox() {
    for area in everyone() {
        let own = area.work().join("local/state/holdfast");

        let done = Run::new(&area, &Policy::offline())
            .environment("HOLDFAST_STATE_DIR", own.as_os_str())
            .shell("mkdir -p local/state/holdfast; echo x >local/state/holdfast/registry || mv local l2 || echo covered")
            .finish();

        assert_eq!(done.text(), "covered\n", "{done}");
        assert_eq!(fs::read_dir(&own).expect("it is there").count(), 0);
    }
}

/// A working directory may lie above the runtime's own files, as a home does; a sandbox that reached them would rule its
/// gateway.
#[test]
fn the_runtimes_own_files_are_in_no_view() {
    for area in everyone() {
        let own = area.directory(&area.work().join("state"));
        area.file(&own.join("registry"), "content");

        let done = Run::new(&area, &Policy::offline().read_write(area.work()))
            .environment("HOLDFAST_STATE_DIR", own.as_os_str())
            .shell(&format!(
                "ls {0} && ! touch {0}/new && ! mv {0} {0}2 && echo covered",
                own.display()
            ))
            .finish();

        assert_eq!(done.text().trim(), "covered", "{done}");
        assert!(own.join("registry").exists() && !own.join("new").exists());
    }
}
