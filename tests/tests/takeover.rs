//! A sandbox outlives its keeper: the next one takes it over, and what was under way goes on. (Promises 7 and 10.)

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use holdfast_tests::artefacts::share;
use holdfast_tests::probe::probe;
use holdfast_tests::servers::{FOUR, tcp};
use holdfast_tests::wait::{LONG, until};
use holdfast_tests::{Area, Policy, everyone, leaks, stat};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const TOKEN: &str = "f1a6-token-that-is-nowhere-inside-93c1";

/// A place of a sandbox, as a gateway makes it.
struct Place<'a> {
    area: &'a Area,
    directory: PathBuf,
}

/// One keeper.
struct Keeper {
    child: Child,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
    boundary: Pid,
}

impl<'a> Place<'a> {
    fn new(area: &'a Area, policy: &Policy) -> Self {
        let directory = area.root().join("box");
        area.directory(&directory);
        area.directory(&directory.join("work"));
        area.file(&directory.join("policy.yaml"), policy.text());
        area.file(&directory.join("token"), TOKEN);
        Self { area, directory }
    }

    fn start(&self, words: &[&str]) -> (Child, ChildStdin, mpsc::Receiver<String>) {
        let mut command = Command::new(program());
        command
            .arg(words[0])
            .arg(&self.directory)
            .args(&words[1..])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let uid = self.area.caller().uid();
        if uid != nix::unistd::geteuid().as_raw() {
            command.uid(uid).gid(uid);
        }
        let mut child = command.spawn().expect("start a keeper");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        (child, stdin, lines)
    }

    fn keeper(&self, words: &[&str]) -> Keeper {
        let (child, stdin, lines) = self.start(words);
        let ready = lines.recv_timeout(LONG).expect("a word of the keeper");
        let pid = ready.strip_prefix("ready ").expect(&ready);
        Keeper {
            child,
            stdin,
            lines,
            boundary: Pid::from_raw(pid.parse().expect("a pid")),
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("boundary.log")).expect("a log")
    }
}

impl Keeper {
    fn order(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("tell the keeper");
    }

    fn told(&self) -> String {
        self.lines.recv_timeout(LONG).expect("a word of the keeper")
    }

    fn ask(&mut self, line: &str) -> String {
        self.order(line);
        self.told()
    }

    fn launch(&mut self, verb: &str, request: &str, line: &str) -> u64 {
        let told = self.ask(&format!("{verb} {request} {line}"));
        let id = told.strip_prefix("session ").expect(&told);
        id.parse().expect("a number")
    }

    /// As a crash ends it: nothing is said, nothing is finished.
    fn die(mut self) {
        self.child.kill().expect("kill the keeper");
        self.child.wait().expect("its end");
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that plays the keepers, where everyone can execute it.
fn program() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| share(Path::new(env!("CARGO_BIN_EXE_holder")), "holder"))
}

/// Ends a boundary that a test has started.
struct Ending(Pid);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

fn is_there(pid: Pid) -> bool {
    stat::runs(pid.as_raw())
}

/// Promise 7: the workload survives the death of its keeper; a connect made meanwhile is served; what it wrote is there.
#[test]
fn a_workload_goes_on_and_its_connect_is_served_by_the_next_keeper() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let place = Place::new(&area, &Policy::origin(server.port()));
        let mut first = place.keeper(&["fork"]);
        let _ending = Ending(first.boundary);
        let (it, port) = (probe.display(), server.port());
        let line = format!(
            "echo before; while ! test -e go; do sleep 0.02; done; \
             {it} talk origin.test {port} hello; echo > done; exec sleep 1000"
        );
        let session = first.launch("launch", "agent", &line);
        until("the workload runs", LONG, || {
            first.ask("table").contains("-7")
        });
        let boundary = first.boundary;
        first.die();

        fs::write(place.directory.join("work/go"), "").expect("let it go on");
        let log_is = |text: &str| place.log().contains(text);
        until("the keeper is missed", LONG, || {
            log_is("the keeper is gone")
        });
        let mut second = place.keeper(&["take", "2"]);

        assert_eq!(
            second.boundary, boundary,
            "it is met at the door by its own number"
        );
        let attached = second.ask("attached");
        assert!(
            attached.starts_with(&format!("attached 1 {session}/agent/running/0-")),
            "{attached}"
        );
        until("the connect is served", LONG, || server.accepted() == 1);
        let done = place.directory.join("work/done");
        until("its answer has come", LONG, || done.exists());
        second.ask(&format!("signal {session} 9"));
        let read = second.ask(&format!("read {session} 0"));
        assert!(read.starts_with("exit signal:9 lost 0"), "{read}");
        assert!(read.contains("before|") && read.contains("hello"), "{read}");
    }
}

/// A connect that the dead keeper had been asked about and had not answered is put to the next one.
#[test]
fn a_connect_that_waits_for_its_verdict_gets_it_from_the_next_keeper() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let place = Place::new(&area, &Policy::origin(server.port()));
        let mut first = place.keeper(&["fork"]);
        let _ending = Ending(first.boundary);
        let (it, port) = (probe.display(), server.port());
        let looked = first.launch("launch", "", "getent ahostsv4 origin.test");
        let told = first.ask(&format!("read {looked} 0"));
        let address = told
            .split_whitespace()
            .find(|word| word.starts_with("198.1"))
            .expect(&told)
            .to_owned();
        let line = format!(
            "while ! test -e go; do sleep 0.02; done; exec {it} talk {address} {port} hello"
        );
        let session = first.launch("launch", "agent", &line);
        let pid = i32::try_from(first.child.id()).expect("a pid");

        stat::stop(Pid::from_raw(pid));
        fs::write(place.directory.join("work/go"), "").expect("let it go on");
        // The thread that stands still in its connect is one that waits for a notification to be answered.
        until("it connects", LONG, || {
            stands_in(first.boundary, libc::SYS_connect)
        });
        first.die();
        let mut second = place.keeper(&["take", "2"]);

        let read = second.ask(&format!("read {session} 0"));
        assert!(read.starts_with("exit code:0"), "{read}");
        assert!(read.contains("hello"), "{read}");
        assert_eq!(server.accepted(), 1);
        // Records are written behind the verdict. Rules with programs could be kept, too: it is known who called.
        let audit = place.directory.join("audit.2");
        until("its caller is on record", LONG, || {
            fs::read_to_string(&audit).is_ok_and(|text| text.contains("probe"))
        });
    }
}

/// Whether a process below `root` stands in the system call `number`.
fn stands_in(root: Pid, number: libc::c_long) -> bool {
    let below = leaks::descendants(root.as_raw());
    below.iter().any(|pid| {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        call.split(' ').next() == Some(&number.to_string())
    })
}

/// A workload that has looked a name up before its keeper died uses the address afterwards.
#[test]
fn an_address_that_an_agent_has_cached_works_after_the_keeper_is_replaced() {
    let Some(probe) = probe() else { return };
    for area in everyone() {
        let server = tcp::echo(FOUR);
        let place = Place::new(&area, &Policy::origin(server.port()));
        let mut first = place.keeper(&["fork"]);
        let _ending = Ending(first.boundary);
        let looked = first.launch("launch", "", "getent ahostsv4 origin.test");
        let told = first.ask(&format!("read {looked} 0"));
        let address = told
            .split_whitespace()
            .find(|word| word.starts_with("198.1"))
            .expect(&told)
            .to_owned();
        first.die();

        let mut second = place.keeper(&["take", "2"]);
        let (it, port) = (probe.display(), server.port());
        let talked = second.launch("launch", "", &format!("{it} talk {address} {port} hello"));
        let told = second.ask(&format!("read {talked} 0"));

        assert!(
            told.starts_with("exit code:0") && told.contains("hello"),
            "{told}"
        );
        let again = second.launch("launch", "", "getent ahostsv4 origin.test");
        assert!(second.ask(&format!("read {again} 0")).contains(&address));
    }
}

/// BD-03: a keeper that was replaced can do nothing any more, whether it knows or not.
#[test]
fn the_old_holder_is_fenced_and_wrong_ones_are_refused() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut first = place.keeper(&["fork"]);
        let _ending = Ending(first.boundary);
        assert!(first.ask("beat").starts_with("beat "));

        let wrong = first.ask("attach 9 another-token");
        assert!(wrong.contains("launch token"), "{wrong}");
        let equal = first.ask(&format!("attach 1 {TOKEN}"));
        assert!(equal.contains("epoch 1 is fenced"), "{equal}");
        assert!(
            first.ask("beat").starts_with("beat "),
            "refusals change nothing"
        );

        let mut second = place.keeper(&["take", "5"]);
        let ended = first.ask("ended");
        assert!(ended.contains("boundary"), "{ended}");
        assert!(first.ask("beat").starts_with("error"));
        assert!(second.ask("beat").starts_with("beat "));
        let late = second.ask(&format!("attach 4 {TOKEN}"));
        assert!(
            late.contains("epoch 4 is fenced: the boundary was taken with epoch 5"),
            "{late}"
        );
    }
}

/// Promise 5: how many descriptors the boundary has does not depend on how many keepers there were.
#[test]
fn twenty_takeovers_cost_no_descriptor() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::origin(443));
        let mut keeper = place.keeper(&["fork"]);
        let _ending = Ending(keeper.boundary);
        let descriptors = |pid: Pid| leaks::descriptors(pid.as_raw()).expect("it runs");
        let boundary = keeper.boundary;
        for epoch in 2..22 {
            keeper.die();
            keeper = place.keeper(&["take", &epoch.to_string()]);
            assert!(keeper.ask("beat").starts_with("beat "));
        }
        let before = descriptors(boundary);
        for epoch in 22..32 {
            keeper.die();
            keeper = place.keeper(&["take", &epoch.to_string()]);
            assert!(keeper.ask("beat").starts_with("beat "));
        }
        until("connections that have ended are closed", LONG, || {
            descriptors(boundary) <= before
        });
    }
}

/// Fail closed: nobody inside goes on when nobody has judged for the grace period.
#[test]
fn without_a_keeper_for_the_grace_period_everything_ends() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut first = place.keeper(&["fork", "1500"]);
        let boundary = first.boundary;
        let _ending = Ending(boundary);
        first.launch("launch", "", "exec sleep 1000");
        std::thread::sleep(Duration::from_secs(2));
        assert!(is_there(boundary), "a keeper that is there keeps it");
        first.die();

        until("the boundary ends", LONG, || !is_there(boundary));
        assert!(place.log().contains("no keeper for the grace period"));
    }
}

/// A boundary that is silent is waited for; one that is dead is gone at once.
#[test]
fn a_stopped_boundary_is_a_lost_link_and_a_dead_one_the_end() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut keeper = place.keeper(&["fork"]);
        let boundary = keeper.boundary;
        let _ending = Ending(boundary);

        stat::stop(boundary);
        until("the link is lost", Duration::from_secs(4), || {
            keeper.ask("link").contains("lost")
        });
        kill(boundary, Signal::SIGCONT).expect("let it go on");
        until("the link is back", LONG, || keeper.ask("link") == "link up");

        kill(boundary, Signal::SIGKILL).expect("kill the boundary");
        let ended = keeper.ask("ended");
        assert!(ended.contains("the boundary"), "{ended}");
        assert!(keeper.ask("link").contains("over"));
    }
}

/// A boundary that was stopped has heard nobody meanwhile, and its keeper is not to blame for that.
#[test]
fn a_boundary_that_was_stopped_for_longer_than_the_grace_period_goes_on() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut keeper = place.keeper(&["fork", "1500"]);
        let boundary = keeper.boundary;
        let _ending = Ending(boundary);
        keeper.launch("launch", "", "exec sleep 1000");

        stat::stop(boundary);
        std::thread::sleep(Duration::from_secs(3));
        kill(boundary, Signal::SIGCONT).expect("let it go on");

        until("the link is back", LONG, || keeper.ask("link") == "link up");
        std::thread::sleep(Duration::from_secs(2));
        assert!(is_there(boundary), "{}", place.log());
        assert_eq!(keeper.ask("link"), "link up");
    }
}

/// Promise 10: the launch token is nowhere inside. (The launcher is a copy of the boundary, and that of the keeper.)
#[test]
fn the_launch_token_is_in_no_process_inside() {
    for area in everyone().filter(|area| area.caller().is_root()) {
        let place = Place::new(&area, &Policy::offline());
        let mut keeper = place.keeper(&["fork"]);
        let _ending = Ending(keeper.boundary);
        keeper.launch("launch", "", "exec sleep 1000");
        let launcher = stat::child_of(keeper.boundary).expect("a launcher");
        let inside = stat::child_of(launcher).expect("a process inside");

        assert!(
            memory_has(keeper.boundary, TOKEN),
            "this test can find it where it is"
        );
        assert!(!memory_has(launcher, TOKEN));
        assert!(!memory_has(inside, TOKEN));
    }
}

/// Looks for `text` in everything that a process can write to.
fn memory_has(pid: Pid, text: &str) -> bool {
    use std::os::unix::fs::FileExt as _;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("memory");
    maps.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let Some((from, to)) = range.split_once('-') else {
            return false;
        };
        let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let (from, to) = (parse(from), parse(to));
        if !rights.starts_with("rw") || to - from > 256 << 20 {
            return false;
        }
        let mut bytes = vec![0; usize::try_from(to - from).expect("small")];
        memory.read_exact_at(&mut bytes, from).is_ok()
            && bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
    })
}

/// A request that is sent again, after a lost answer or by the next keeper, starts nothing.
#[test]
fn a_launch_that_is_asked_for_again_is_answered_and_not_repeated() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut first = place.keeper(&["fork"]);
        let _ending = Ending(first.boundary);
        let line = "echo once >> count; exec sleep 1000";
        let session = first.launch("launch", "r1", line);
        assert_eq!(first.launch("launch", "r1", line), session);
        first.die();
        let mut second = place.keeper(&["take", "2"]);
        assert_eq!(second.launch("launch", "r1", line), session);
        assert_ne!(second.launch("launch", "r2", "true"), session);
        let count = fs::read_to_string(place.directory.join("work/count")).expect("it ran");
        assert_eq!(count, "once\n");
    }
}

/// EX-02: killing a session kills what has left its process group, too.
#[test]
fn a_herded_session_takes_along_what_has_forked_away() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut keeper = place.keeper(&["fork"]);
        let _ending = Ending(keeper.boundary);
        let other = keeper.launch("launch", "", "exec sleep 1001");
        let line =
            "(setsid sh -c 'setsid sleep 1002 & exec sleep 1003' &) ; echo up; exec sleep 1004";
        let session = keeper.launch("herded", "", line);
        let sleeping = |keeper: &mut Keeper| {
            let looked = keeper.launch("launch", "", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '");
            keeper.ask(&format!("read {looked} 0"))
        };
        until("all are there", LONG, || {
            let all = sleeping(&mut keeper);
            ["1002", "1003", "1004"]
                .iter()
                .all(|one| all.contains(&format!("sleep {one}")))
        });

        keeper.ask(&format!("signal {session} 9"));
        let read = keeper.ask(&format!("read {session} 0"));

        assert!(read.starts_with("exit signal:9"), "{read}");
        until("all are gone", LONG, || {
            let all = sleeping(&mut keeper);
            !["1002", "1003", "1004"]
                .iter()
                .any(|one| all.contains(&format!("sleep {one}")))
        });
        assert!(
            sleeping(&mut keeper).contains("sleep 1001"),
            "nobody else is harmed"
        );
        keeper.ask(&format!("signal {other} 9"));
        let quick = keeper.launch("herded", "", "exit 7");
        assert!(
            keeper
                .ask(&format!("read {quick} 0"))
                .starts_with("exit code:7")
        );
    }
}

/// SV-07 and promise 5: sessions that are over cost nothing.
#[test]
fn launches_one_by_one_and_at_once_leave_no_descriptor_behind() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut keeper = place.keeper(&["fork"]);
        let _ending = Ending(keeper.boundary);
        let used = |keeper: &mut Keeper| {
            let told = keeper.ask("beat");
            let used = told.split(' ').nth(1).expect(&told);
            used.parse::<u64>().expect("a number")
        };
        assert_eq!(keeper.ask("many 20 true"), "done");
        let before = used(&mut keeper);
        assert_eq!(keeper.ask("many 400 true"), "done");
        assert_eq!(keeper.ask("crowd 32 true"), "crowd 32");
        until("descriptors are closed", LONG, || {
            used(&mut keeper) <= before
        });
        let table = keeper.ask("table");
        assert!(table.starts_with("table 452 "), "{table}");
    }
}

/// What `cp` and `forward` are made of: no program is executed for them.
#[test]
fn files_go_out_and_in_as_they_are() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut keeper = place.keeper(&["fork"]);
        let _ending = Ending(keeper.boundary);
        let work = place.directory.join("work");
        let path = |name: &str| work.join(name).display().to_string();
        let made = keeper.launch(
            "launch",
            "",
            "mkdir -p tree/sub && echo one > tree/sub/file && chmod 750 tree/sub/file && \
             touch -d @1000000000 tree/sub/file && ln -s sub/file tree/link && mkdir into",
        );
        assert!(
            keeper
                .ask(&format!("read {made} 0"))
                .starts_with("exit code:0")
        );
        let tar = place.directory.join("work.tar").display().to_string();

        let told = keeper.ask(&format!("out {} {tar}", path("tree")));
        assert_eq!(told, "exit code:0 lost 0 []");
        let told = keeper.ask(&format!("in {} {tar}", path("into")));
        assert_eq!(told, "exit code:0 lost 0 []");
        let told = keeper.ask(&format!("in {} {tar}", path("other")));
        assert_eq!(told, "exit code:0 lost 0 []");

        for copy in ["into/tree", "other"] {
            let file = fs::metadata(work.join(copy).join("sub/file")).expect(copy);
            assert_eq!((file.mode() & 0o777, file.mtime()), (0o750, 1_000_000_000));
            let link = fs::read_link(work.join(copy).join("link")).expect(copy);
            assert_eq!(link, Path::new("sub/file"));
        }
        let missing = keeper.ask(&format!("out {} {tar}", path("nothing")));
        assert!(missing.starts_with("exit code:1"), "{missing}");
        assert!(
            missing.contains("nothing: no such file or directory"),
            "{missing}"
        );
        let nowhere = keeper.ask(&format!("in {}/x/y {tar}", path("nothing")));
        assert!(nowhere.starts_with("exit code:1"), "{nowhere}");
        let outside = keeper.ask(&format!("out /root/none {tar}"));
        assert!(outside.starts_with("exit code:1"), "{outside}");
    }
}

/// The sandbox's own loopback is reached from outside through a session, and not otherwise.
#[test]
fn a_port_of_the_sandbox_is_dialled_with_half_close() {
    for area in everyone() {
        let place = Place::new(&area, &Policy::offline());
        let mut keeper = place.keeper(&["fork"]);
        let _ending = Ending(keeper.boundary);
        let free = TcpListener::bind((FOUR, 0))
            .and_then(|one| one.local_addr())
            .expect("a port")
            .port();
        let refused = keeper.ask(&format!("dial {free} hello"));
        assert!(
            refused.starts_with("exit code:1 lost 0 [connect to 127.0.0.1:"),
            "{refused}"
        );
        let line = format!(
            "exec python3 -c \"import socket;s=socket.socket();s.bind(('127.0.0.1',{free}));s.listen();\
             c=s.accept()[0];d=b''.join(iter(lambda:c.recv(99),b''));c.sendall(b'got '+d)\""
        );
        keeper.launch("launch", "", &line);
        until("it is answered", LONG, || {
            keeper.ask(&format!("dial {free} hello")) == "exit code:0 lost 0 [] got hello"
        });
    }
}
