use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::thread;

use bytes::Bytes;
use holdfast_keeper::sessions::{self, Exit};
use tokio::sync::{mpsc, oneshot};

use super::rest::unwritten;
use super::*;

/// The other side of a session.
struct Program {
    stdin: mpsc::Receiver<Bytes>,
    stdout: mpsc::Sender<Bytes>,
    stderr: mpsc::Sender<Bytes>,
    control: mpsc::Receiver<Control>,
    exit: oneshot::Sender<Exit>,
}

/// The other side of our three ends.
struct Person {
    input: PipeWriter,
    output: PipeReader,
    errors: PipeReader,
}

fn session() -> (Session, Program) {
    let (stdin, stdin_end) = mpsc::channel(1);
    let (stdout_end, stdout) = mpsc::channel(1);
    let (stderr_end, stderr) = mpsc::channel(1);
    let (control, control_end) = mpsc::channel(1);
    let (exit_end, exit) = oneshot::channel();
    let session = sessions::Session {
        stdin,
        stdout,
        stderr,
        control,
        exit,
    };
    let program = Program {
        stdin: stdin_end,
        stdout: stdout_end,
        stderr: stderr_end,
        control: control_end,
        exit: exit_end,
    };
    (session.into(), program)
}

fn ends() -> (Ends, Person) {
    let pipe = || io::pipe().expect("a pipe");
    let ((input, theirs), (output_end, output), (errors_end, errors)) = (pipe(), pipe(), pipe());
    let ends = Ends {
        input: input.into(),
        output: Sink::File(output.into()),
        errors: Sink::File(errors.into()),
    };
    let person = Person {
        input: theirs,
        output: output_end,
        errors: errors_end,
    };
    (ends, person)
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn bounds(limit: Option<Duration>) -> Bounds {
    Bounds {
        limit,
        ..Bounds::default()
    }
}

/// Attends a session on a runtime whose time jumps to the next timer as soon as nothing else is to be done.
fn in_no_time(session: Session, ends: Ends, limit: Option<Duration>) -> Result<u8, Failure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let paused = builder.enable_all().start_paused(true).build();
    let launched = async { Ok(session) };
    let attending = attend(launched, ends, bounds(limit), None);
    paused.expect("a runtime").block_on(attending)
}

/// Attends `program` on a runtime of its own, beside this thread.
fn attended(
    session: Session,
    ends: Ends,
    limit: Option<Duration>,
) -> thread::JoinHandle<Result<u8, Failure>> {
    thread::spawn(move || {
        runtime().block_on(attend(async { Ok(session) }, ends, bounds(limit), None))
    })
}

fn all(mut pipe: PipeReader) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).expect("reads");
    bytes
}

#[test]
fn every_byte_reaches_its_own_end_however_slow_the_reader_is() {
    let (session, program) = session();
    let (ends, person) = ends();
    let attended = attended(session, ends, None);
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();

    // More than pipe and channel hold: this can end only as the reader reads.
    let writer = thread::spawn({
        let sent = sent.clone();
        move || {
            for chunk in sent.chunks(1000) {
                let chunk = Bytes::copy_from_slice(chunk);
                program.stdout.blocking_send(chunk).expect("is read");
            }
            let errors = Bytes::from_static(b"oops\n");
            program.stderr.blocking_send(errors).expect("is read");
            // The exit is told while output is still on its way.
            program.exit.send(Exit::Code(7)).expect("is awaited");
        }
    });
    let output = all(person.output);
    writer.join().expect("writes all");

    assert_eq!(output, sent);
    assert_eq!(all(person.errors), b"oops\n");
    assert_eq!(attended.join().expect("ends").expect("has a code"), 7);
}

#[test]
fn the_end_of_our_input_is_the_end_of_the_programs() {
    let (session, mut program) = session();
    let (ends, mut person) = ends();
    let attended = attended(session, ends, None);

    person.input.write_all(b"hello").expect("writes");
    let first = program.stdin.blocking_recv();
    drop(person.input);
    let second = program.stdin.blocking_recv();
    program.exit.send(Exit::Code(0)).expect("is awaited");
    drop((program.stdout, program.stderr));

    assert_eq!(first.as_deref(), Some(b"hello".as_slice()));
    assert_eq!(second, None);
    assert_eq!(attended.join().expect("ends").expect("has a code"), 0);
}

#[test]
fn an_input_that_nobody_ends_keeps_nobody_from_ending() {
    let (session, program) = session();
    let (ends, person) = ends();
    let attended = attended(session, ends, None);

    program.exit.send(Exit::Signal(9)).expect("is awaited");
    drop((program.stdout, program.stderr));

    assert_eq!(attended.join().expect("ends").expect("has a code"), 137);
    drop(person.input);
}

#[test]
fn a_reader_who_goes_away_closes_the_programs_output_and_its_status_stays() {
    let (session, program) = session();
    let (ends, person) = ends();
    let attended = attended(session, ends, None);

    drop(person.output);
    let told = thread::spawn(move || {
        let program = program;
        while program
            .stdout
            .blocking_send(Bytes::from_static(b"y\n"))
            .is_ok()
        {}
        program
            .exit
            .send(Exit::Signal(libc::SIGPIPE))
            .expect("is awaited");
    });
    told.join().expect("learns that nobody reads");

    assert_eq!(attended.join().expect("ends").expect("has a code"), 141);
}

#[test]
fn a_terminal_that_was_hung_up_is_a_reader_who_went_away() {
    let (session, program) = session();
    let (mut ends, _person) = ends();
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    ends.output = Sink::File(terminal.slave);
    let attended = attended(session, ends, None);
    let show = |text| program.stdout.blocking_send(Bytes::from_static(text));

    show(b"shown").expect("is taken");
    let mut shown = [0; 5];
    let mut screen = File::from(terminal.master);
    screen.read_exact(&mut shown).expect("shows");
    drop(screen);
    while show(b"never seen").is_ok() {}
    program
        .exit
        .send(Exit::Signal(libc::SIGHUP))
        .expect("is awaited");
    drop(program.stderr);

    assert_eq!(attended.join().expect("ends").expect("has a code"), 129);
}

#[test]
fn output_that_cannot_be_written_is_a_failure_with_its_reason() {
    let (session, program) = session();
    let (mut ends, _person) = ends();
    let full = File::options().write(true).open("/dev/full");
    ends.output = Sink::File(full.expect("opens").into());
    let attended = attended(session, ends, None);

    let chunk = Bytes::from_static(b"hello\n");
    program.stdout.blocking_send(chunk).expect("is taken");
    program.exit.send(Exit::Code(0)).expect("is awaited");
    drop((program.stdout, program.stderr));

    let failure = attended.join().expect("ends").expect_err("must not be 0");
    assert_eq!(failure.kind(), Kind::OutputFailed);
    assert!(failure.message().contains("No space left on device"));
}

#[test]
fn a_program_that_outlives_its_time_is_killed_and_the_code_is_124() {
    let (session, mut program) = session();
    let (ends, person) = ends();
    let attended = attended(session, ends, Some(Duration::from_millis(20)));

    let asked = program.control.blocking_recv();
    program
        .exit
        .send(Exit::Signal(libc::SIGKILL))
        .expect("is awaited");
    drop((program.stdout, program.stderr));

    assert_eq!(asked, Some(Control::Kill));
    let failure = attended.join().expect("ends").expect_err("timed out");
    assert_eq!(failure.kind(), Kind::TimedOut);
    drop(person.input);
}

/// The program has ended by itself, and nobody reads what it wrote.
#[test]
fn output_that_is_not_read_within_the_time_is_waited_for_no_longer() {
    for exit in [Exit::Code(0), Exit::Code(3), Exit::Signal(libc::SIGPIPE)] {
        let (session, program) = session();
        let (ends, person) = ends();
        let more_than_a_pipe_holds = Bytes::from(vec![0; 1 << 20]);
        let taken = program.stdout.try_send(more_than_a_pipe_holds);
        taken.expect("has room for one");
        program.exit.send(exit).expect("is awaited");
        drop((program.stdout, program.stderr));

        let outcome = in_no_time(session, ends, Some(Duration::from_hours(1)));

        let failure = outcome.expect_err("not all was read");
        assert_eq!(failure.kind(), Kind::TimedOut);
        assert!(failure.message().contains("the program ended"));
        drop(person.output);
    }
}

#[test]
fn a_killed_session_that_does_not_answer_is_left_after_a_while() {
    let (session, mut program) = session();
    let (ends, person) = ends();

    let outcome = in_no_time(session, ends, Some(Duration::from_hours(1)));

    assert_eq!(program.control.try_recv(), Ok(Control::Kill));
    assert_eq!(outcome.expect_err("timed out").kind(), Kind::TimedOut);
    drop(person.input);
}

/// What it has sent hangs on us: it is waited for, and let go of when its time is up.
#[test]
fn what_an_ended_session_has_sent_is_delivered_within_its_time_and_its_status_stays() {
    for (delivers, limit) in [(true, None), (false, Some(Duration::from_hours(1)))] {
        let (mut session, program) = session();
        let (ends, _person) = ends();
        let (delivery, delivered) = oneshot::channel::<()>();
        session.delivery = Some(Box::pin(async move {
            if !delivers {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_secs(9)).await;
            delivery.send(()).expect("is awaited");
        }));
        program.exit.send(Exit::Code(3)).expect("is awaited");
        drop((program.stdout, program.stderr));

        let code = in_no_time(session, ends, limit);

        assert_eq!(code.expect("has a code"), 3);
        assert_eq!(delivered.blocking_recv().is_ok(), delivers);
    }
}

#[test]
fn an_end_that_nobody_tells_is_never_a_success() {
    let (session, program) = session();
    let (ends, _person) = ends();
    let attended = attended(session, ends, None);

    drop(program);

    let failure = attended.join().expect("ends").expect_err("is unknown");
    assert_eq!(failure.kind(), Kind::Internal);
}

#[test]
fn a_start_that_fails_is_told_as_it_is() {
    let (ends, _person) = ends();
    let launching = async { Err(Failure::new(Kind::ProgramNotFound, "find nosuch")) };

    let outcome = runtime().block_on(attend(launching, ends, Bounds::default(), None));

    assert_eq!(outcome.expect_err("fails").kind(), Kind::ProgramNotFound);
}

/// EX-23: a thread that is refused is a want of threads, and no fault of what it was to write to.
#[test]
fn a_refused_thread_is_told_from_output_that_cannot_be_written() {
    let of = |errno| unwritten("stdout", &io::Error::from_raw_os_error(errno));

    assert_eq!(of(libc::ENOSPC).kind(), Kind::OutputFailed);
    let thread = of(libc::EAGAIN);
    assert_eq!(thread.kind(), Kind::Internal);
    assert!(thread.message().contains("thread"), "{}", thread.message());
    assert!(thread.advice().is_some());
}
