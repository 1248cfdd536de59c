//! A session at a terminal is one: size, resize, job control, and the person's own terminal as it was. (Promise 6.)

use holdfast_tests::terminal::{Terminal, is_given_back};
use holdfast_tests::wait::LONG;
use holdfast_tests::{Area, Policy, Run, everyone, leaks, skip};
use nix::sys::signal::{Signal, kill};
use std::time::Duration;

fn at_terminal(area: &Area) -> Run<'_> {
    Run::new(area, &Policy::offline()).option("-t")
}

#[test]
fn a_terminal_has_the_callers_size_and_a_name() {
    for area in everyone() {
        let line = "stty size; test -t 0 && test -t 1 && test -t 2 && echo all; tty; echo x >/dev/tty; exit 5";
        let (status, shown) = Terminal::start(at_terminal(&area).shell(line), 50, 132).finish();
        assert!(shown.contains("50 132"), "{shown}");
        assert!(shown.contains("all"), "{shown}");
        assert!(shown.contains("/dev/"), "{shown}");
        assert_eq!(status.code(), Some(5), "{shown}");
    }
}

#[test]
fn a_new_size_is_told_and_the_last_of_many_holds() {
    for area in everyone() {
        let line = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
        let terminal = Terminal::start(at_terminal(&area).shell(line), 24, 80);
        terminal.expect("ready");
        terminal.resize(40, 100);
        terminal.expect("40 100");
        for rows in 41..=50 {
            terminal.resize(rows, 101);
        }
        terminal.expect("50 101");
        terminal.send("\x03");
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(130), "{shown}");
    }
}

#[test]
fn control_c_interrupts_the_program_and_control_d_ends_its_input() {
    for area in everyone() {
        let terminal = Terminal::start(
            at_terminal(&area).shell("echo ready; exec sleep 300"),
            24,
            80,
        );
        terminal.expect("ready");
        terminal.send("\x03");
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(130), "{shown}");

        let terminal = Terminal::start(
            at_terminal(&area).shell("echo ready; cat; echo over; exit 2"),
            24,
            80,
        );
        terminal.expect("ready");
        terminal.send("typed\r");
        terminal.expect("typed");
        terminal.send("\x04");
        let (status, shown) = terminal.finish();
        assert!(shown.contains("over"), "{shown}");
        assert_eq!(status.code(), Some(2), "{shown}");
    }
}

/// EX-18: at the program's own terminal Ctrl-C is a key; Ctrl-\ or signals to us end what ignores it.
#[test]
fn a_program_that_ignores_control_c_at_its_terminal_is_ended_otherwise() {
    for area in everyone() {
        let stubborn = || {
            let line = "trap '' INT; echo ready; while :; do read x; echo got-$x; done";
            let terminal = Terminal::start(at_terminal(&area).shell(line), 24, 80);
            terminal.expect("ready");
            terminal.send("\x03\x03\x03\x03\x03\x03on\r");
            terminal.expect("got-on");
            terminal
        };
        let terminal = stubborn();
        terminal.send("\x1c");
        assert_eq!(terminal.finish().0.code(), Some(131));

        let terminal = stubborn();
        for _ in 0..2 {
            kill(terminal.pid(), Signal::SIGINT).expect("it is there");
            std::thread::park_timeout(Duration::from_millis(100));
        }
        assert_eq!(terminal.finish().0.code(), Some(143));
    }
}

#[test]
fn control_c_without_a_terminal_inside_ends_the_run_too() {
    for area in everyone() {
        let run = Run::new(&area, &Policy::offline()).shell("echo ready; exec sleep 300");
        let terminal = Terminal::start(run, 24, 80);
        terminal.expect("ready");
        terminal.send("\x03");
        let (status, shown) = terminal.finish();
        assert_eq!(status.code(), Some(130), "{shown}");
    }
}

#[test]
fn a_shell_at_a_terminal_controls_its_jobs() {
    let Some(bash) = skip::program("bash") else {
        return;
    };
    for area in everyone() {
        let words = [bash.to_str().expect("text"), "--norc", "-i"];
        let terminal = Terminal::start(at_terminal(&area).command(words), 24, 80);
        terminal.send("sh -c 'echo slee''ping; exec sleep 300'\r");
        terminal.expect("sleeping");
        terminal.send("\x1a");
        terminal.expect("Stopped");
        terminal.send("jobs; bg; kill %1; wait; echo job-$((40+2))\r");
        terminal.expect("job-42");
        terminal.send("exit 9\r");
        let (status, shown) = terminal.finish();
        assert!(!shown.contains("no job control"), "{shown}");
        assert_eq!(status.code(), Some(9), "{shown}");
    }
}

/// EX-15: what is in the terminal when its program ends is still read.
#[test]
fn the_last_output_is_never_lost() {
    for area in everyone() {
        for _ in 0..10 {
            let line = "head -c 60000 /dev/zero | tr '\\0' x; echo END";
            let (status, shown) = Terminal::start(at_terminal(&area).shell(line), 24, 80).finish();
            assert_eq!(status.code(), Some(0), "{}", shown.len());
            assert_eq!(shown.matches('x').count(), 60000);
            assert!(shown.ends_with("END\r\n"), "{}", &shown[shown.len() - 20..]);
        }
    }
}

#[test]
fn the_persons_terminal_is_afterwards_as_it_was() {
    for area in everyone() {
        for (line, keys) in [
            ("stty raw -echo; exit 0", ""),
            ("echo ready; exec sleep 300", "\x03"),
        ] {
            is_given_back(at_terminal(&area).shell(line), keys);
        }
    }
}

/// EX-16: nothing is left behind at a terminal that is gone.
#[test]
fn a_hang_up_ends_everything() {
    let Some(bash) = skip::program("bash") else {
        return;
    };
    for area in everyone() {
        let words = [bash.to_str().expect("text"), "--norc", "-i"];
        let terminal = Terminal::start(at_terminal(&area).command(words), 24, 80);
        terminal.send("echo rea''dy\r");
        terminal.expect("ready");
        let below = leaks::descendants(terminal.pid().as_raw());
        assert!(!below.is_empty(), "a sandbox has processes");
        let end = terminal.hang_up();
        end.recv_timeout(LONG).expect("the run ends");
        leaks::all_gone(&below);
    }
}

/// EX-25: it neither reads nor sets a terminal that is somebody else's.
#[test]
fn a_run_in_the_background_is_not_stopped() {
    let Some(bash) = skip::program("bash") else {
        return;
    };
    for area in everyone() {
        let line = "\"$@\" & wait $!; echo rc=$?";
        let wrapper = [bash.to_str().expect("text"), "--norc", "-ic", line, "bash"];
        let run = Run::new(&area, &Policy::offline())
            .command(["true"])
            .under(wrapper);
        let (_, shown) = Terminal::start(run, 24, 80).finish();
        assert!(shown.contains("rc=0"), "{shown}");
    }
}

/// LL-08: a terminal that a program makes is one.
#[test]
fn programs_may_open_terminals_of_their_own() {
    for area in everyone() {
        let Some(python) = skip::program("python3") else {
            return;
        };
        let line = "
import os, pty, sys
child, master = pty.fork()
if child == 0:
    os.execvp('stty', ['stty', 'size'])
said = b''
while True:
    try: got = os.read(master, 100)
    except OSError: break
    if not got: break
    said += got
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print('inside', len(said.split()))
";
        let done = Run::new(&area, &Policy::offline())
            .command([python.as_os_str(), "-c".as_ref(), line.as_ref()])
            .finish();
        assert_eq!(done.text(), "inside 2\n", "{done}");
    }
}

#[test]
fn a_terminal_without_a_size_gets_a_usual_one() {
    for area in everyone() {
        let (_, shown) = Terminal::start(at_terminal(&area).shell("stty size"), 0, 0).finish();
        assert!(shown.contains("24 80"), "{shown}");
    }
}

#[test]
fn a_terminal_that_is_asked_for_without_one_is_said() {
    for area in everyone() {
        let done = at_terminal(&area).shell("stty size; exit 3").finish();
        // Either a terminal of the usual size, or a refusal with the reason: never a silent pipe.
        let served = done.code() == Some(3) && done.text().contains("24 80");
        let refused = done.code() == Some(125) && done.stderr.contains("terminal");
        assert!(served || refused, "{done}");
    }
}
