use std::fs::{self, OpenOptions};
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use crate::Ruling;

/// A trail by way of the queue.
fn queued(path: &Path) -> Audit {
    Audit::new(Sink::Queue(Rotating::unbounded(path).expect("opens")))
}

const SOON: Duration = Duration::from_secs(10);

fn record(port: u16) -> Record {
    Record {
        port: Some(port),
        ..Record::connect("qa", SystemTime::UNIX_EPOCH, Ruling::Allowed, "allowed")
    }
}

#[test]
fn every_record_of_many_threads_is_one_line_of_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::file(&path).expect("opens");
    audit.start().expect("starts");

    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..250).for_each(|n| audit.record(record(n))));
        }
    });
    let tally = audit.close(SOON);

    let text = fs::read_to_string(&path).expect("reads");
    let read: Result<Vec<Record>, _> = text.lines().map(serde_json::from_str).collect();
    assert_eq!(read.expect("each line is a record").len(), 2000);
    assert_eq!((tally.written, tally.lost, tally.waiting), (2000, 0, 0));
}

#[test]
fn every_record_of_many_threads_is_one_line_of_what_a_queue_leads_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = queued(&path);
    audit.start().expect("starts");

    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..250).for_each(|n| audit.record(record(n))));
        }
    });
    let tally = audit.close(SOON);

    let text = fs::read_to_string(&path).expect("reads");
    let read: Result<Vec<Record>, _> = text.lines().map(serde_json::from_str).collect();
    assert_eq!(read.expect("each line is a record").len(), 2000);
    assert_eq!((tally.written, tally.lost, tally.waiting), (2000, 0, 0));
}

#[test]
fn a_trail_is_appended_to_and_belongs_to_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");

    for port in [1, 2] {
        let audit = Audit::file(&path).expect("opens");
        audit.record(record(port));
        audit.start().expect("starts");
        audit.close(SOON);
    }

    let text = fs::read_to_string(&path).expect("reads");
    assert_eq!(text.lines().count(), 2);
    let mode = fs::metadata(&path).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_full_queue_grants_no_slot_and_says_how_many_records_are_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = queued(&path);
    let slot = audit.reserve().expect("an empty queue has room");
    (1..ROOM).for_each(|_| audit.record(record(1)));

    let refused = audit.reserve();
    (0..7_u8).for_each(|_| audit.record(record(2)));
    slot.record(record(3)).expect("it has its room");
    audit.start().expect("starts");
    let tally = audit.close(SOON);

    assert!(refused.is_none());
    assert_eq!((tally.written, tally.lost), (ROOM as u64, 7));
    let text = fs::read_to_string(&path).expect("reads");
    assert!(text.contains(r#""activity":"records_lost","count":7"#));
    assert!(text.contains(r#""port":3"#) && !text.contains(r#""port":2"#));
}

#[test]
fn a_slot_that_is_given_back_is_room_again() {
    let audit = Audit::memory();
    let slots: Vec<Slot> = std::iter::from_fn(|| audit.reserve()).collect();
    assert_eq!(slots.len(), ROOM);

    drop(slots);

    assert!(audit.reserve().is_some());
}

#[test]
fn a_full_device_stops_nobody_and_is_counted() {
    let audit = Audit::file(Path::new("/dev/full")).expect("opens");
    audit.start().expect("starts");

    (0..10).for_each(|n| audit.record(record(n)));
    let tally = audit.close(SOON);

    assert_eq!((tally.written, tally.waiting), (0, 0));
    assert_eq!(tally.lost, 10);
}

#[test]
fn a_full_disk_is_counted_and_nothing_is_allowed_until_a_refusal_could_be_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    // As a file: what is written to it is refused with ENOSPC.
    let audit = Audit::direct(Rotating::unbounded(Path::new("/dev/full")).expect("opens"));
    let slot = audit.reserve().expect("nothing has failed yet");

    assert_eq!(slot.record(record(1)), Err(Unwritten));
    audit.record(record(2));
    assert!(audit.reserve().is_none());
    assert_eq!((audit.tally().written, audit.tally().lost), (0, 2));

    let room = Rotating::unbounded(&path).expect("opens");
    audit.0.state.lock().direct = Some(Direct::new(room));
    audit.record(record(3));
    let slot = audit.reserve().expect("it can be written to again");
    assert_eq!(slot.record(record(4)), Ok(()));

    let text = fs::read_to_string(&path).expect("reads");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].contains(r#""activity":"records_lost","count":2"#));
    assert!(lines[1].contains(r#""port":3"#) && lines[2].contains(r#""port":4"#));
}

#[test]
fn a_record_is_in_the_file_when_the_call_returns() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::file(&path).expect("opens");
    let lines = || fs::read_to_string(&path).expect("reads").lines().count();

    for n in 1..=100 {
        audit.record(record(1));
        assert_eq!(lines(), 2 * n - 1);
        let slot = audit.reserve().expect("there is room");
        slot.record(record(2)).expect("written");
        assert_eq!(lines(), 2 * n);
    }
}

#[test]
fn two_trails_over_one_bounded_file_lose_no_line_and_double_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let first = Audit::file(&path).expect("opens");
    first.record(record(0));
    let line = fs::metadata(&path).expect("is there").len();
    // Each comes to the bound in the middle of what it writes.
    let trails = [(); 2].map(|()| Audit::rotating(&path, 150 * line).expect("opens"));

    std::thread::scope(|scope| {
        for (from, trail) in [1_u16, 1001].into_iter().zip(&trails) {
            scope.spawn(move || (from..from + 200).for_each(|n| trail.record(record(n))));
        }
    });

    let read = |path: &Path| fs::read_to_string(path).expect("reads");
    let text = read(&crate::older(&path)) + &read(&path);
    let mut ports: Vec<u16> = text
        .lines()
        .map(|line| serde_json::from_str::<Record>(line).expect("a record"))
        .filter_map(|record| record.port)
        .collect();
    ports.sort_unstable();
    assert!(ports.into_iter().eq((0..201).chain(1001..1201)));
}

#[test]
fn a_record_after_the_end_is_counted_as_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let audit = Audit::file(&dir.path().join("audit.jsonl")).expect("opens");
    audit.start().expect("starts");
    audit.close(SOON);

    audit.record(record(1));

    assert_eq!(audit.tally().lost, 1);
}

#[test]
fn closing_a_trail_that_was_never_started_does_not_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let audit = queued(&dir.path().join("audit.jsonl"));
    audit.record(record(1));

    let tally = audit.close(Duration::MAX);

    assert_eq!(tally.written, 0);
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error = Audit::file(Path::new("/nowhere/audit.jsonl")).expect_err("no such directory");

    assert_eq!(error.to_string(), "open /nowhere/audit.jsonl");
}

#[test]
fn a_trail_in_memory_holds_what_was_recorded() {
    let audit = Audit::memory();

    audit.record(record(443));

    assert_eq!(audit.records(), [record_like(&audit)]);
    assert_eq!(audit.records()[0].time, UNIX_EPOCH);
}

fn record_like(audit: &Audit) -> Record {
    Record {
        decision: audit.records()[0].decision,
        ..record(443)
    }
}

fn pipe(dir: &Path) -> PathBuf {
    let path = dir.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo runs").success());
    path
}

/// Waits until the writer has found out whether it can write.
fn until_it_writes(audit: &Audit, writes: bool) {
    let patience = std::iter::repeat_n(Duration::from_millis(10), 1000);
    assert!(
        patience
            .inspect(|it| std::thread::sleep(*it))
            .any(|_| audit.writes() == writes)
    );
}

#[test]
fn a_device_that_is_full_grants_no_slot_and_takes_no_verdict() {
    let audit = Audit::file(Path::new("/dev/full")).expect("opens");
    audit.start().expect("starts");
    let early = [(); 2].map(|()| audit.reserve().expect("nothing has failed yet"));
    let [first, second] = early;

    first.record(record(1)).expect("it is on its way");
    until_it_writes(&audit, false);

    assert!(audit.reserve().is_none());
    assert_eq!(second.record(record(2)), Err(Unwritten));
    assert_eq!(audit.close(SOON).lost, 2);
}

#[test]
fn a_pipe_that_nobody_reads_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = pipe(dir.path());

    let error = Audit::file(&path).expect_err("nobody reads it");

    assert!(matches!(error, Unopened::Unread { .. }), "{error}");
}

#[test]
fn a_pipe_that_nobody_reads_any_more_grants_no_slot_until_somebody_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = pipe(dir.path());
    let both = OpenOptions::new().read(true).write(true).open(&path);
    let reader = both.expect("opens");
    let audit = Audit::file(&path).expect("opens");
    audit.start().expect("starts");
    drop(reader);

    audit.record(record(1));
    until_it_writes(&audit, false);
    assert!(audit.reserve().is_none());

    // Nobody asks for a verdict meanwhile.
    let mut reader = OpenOptions::new().read(true).open(&path).expect("opens");
    until_it_writes(&audit, true);
    let slot = audit.reserve().expect("it is read again");
    slot.record(record(2)).expect("it has its room");
    let tally = audit.close(SOON);
    drop(audit);

    let mut text = String::new();
    io::Read::read_to_string(&mut reader, &mut text).expect("reads");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].contains(r#""activity":"records_lost","count":1"#),
        "{text}"
    );
    assert!(
        lines[1].contains(r#""port":2"#) && lines.len() == 2,
        "{text}"
    );
    assert_eq!((tally.written, tally.lost), (1, 1));
}

#[test]
fn a_writer_that_is_stuck_holds_nobody_up_and_closing_is_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = pipe(dir.path());
    // A pipe that is full and that nobody reads: the writer blocks inside its write.
    let reader = OpenOptions::new().read(true).write(true).open(&path);
    let _reader = reader.expect("opens");
    let audit = Audit::file(&path).expect("opens");
    audit.start().expect("starts");

    (0..2 * ROOM).for_each(|_| audit.record(record(1)));
    let tally = audit.close(Duration::from_millis(50));

    assert!(tally.lost > 0);
    assert_eq!(tally.waiting, 0);
}

/// What a killed process leaves: its files, and no lock.
fn killed(audit: Audit, slots: Vec<Slot>) {
    let owed = audit.0.state.lock().owed.take();
    drop(slots);
    drop((owed, audit));
}

fn notes(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).expect("reads").flatten();
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries
        .filter(|entry| name(entry).contains(".owed."))
        .count()
}

fn read(path: &Path) -> Vec<Record> {
    let text = fs::read_to_string(path).expect("reads");
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("records")
}

#[test]
fn what_a_killed_process_owed_is_recorded_once_by_the_next_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let mut slots: Vec<Slot> = std::iter::from_fn(|| audit.reserve()).take(3).collect();
    for (slot, port) in slots.iter().zip(1..) {
        audit.owe(slot.place(), || record(port)).expect("noted");
    }
    // The first has its record; the second has it, too, but dies before that is settled.
    slots.remove(0).record(record(1)).expect("written");
    let decision = audit
        .0
        .state
        .lock()
        .owed
        .as_ref()
        .and_then(|owed| owed.decision(slots[0].place()));
    let decision = decision.expect("it is owed");
    audit.record(Record {
        decision,
        ..record(2)
    });
    killed(audit, slots);

    for _ in 0..2 {
        let audit = Audit::rotating(&path, 1 << 20).expect("opens");
        audit.start().expect("starts");

        let ports: Vec<_> = read(&path).into_iter().filter_map(|it| it.port).collect();
        assert_eq!(ports, [1, 2, 3]);
        assert_eq!(notes(dir.path()), 0);
    }
}

/// What was dialled has been seen by its server: its record is late on a full disk, and not lost.
#[test]
fn what_is_owed_is_recorded_when_the_disk_has_room_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let disk = |path: &Path| {
        let file = Rotating::open(path, 1 << 20).expect("opens");
        audit.0.state.lock().direct = Some(Direct::new(file));
    };
    let slots: Vec<Slot> = std::iter::from_fn(|| audit.reserve()).take(2).collect();
    for (slot, port) in slots.iter().zip(1..) {
        audit.owe(slot.place(), || record(port)).expect("noted");
    }

    disk(Path::new("/dev/full"));
    for (slot, port) in slots.into_iter().zip(1..) {
        assert_eq!(slot.record(record(port)), Err(Unwritten));
    }
    audit.record(record(3));
    let full = audit.tally();
    disk(&path);
    audit.record(record(4));

    assert_eq!((full.written, full.lost, full.waiting), (0, 1, 2));
    let text = fs::read_to_string(&path).expect("reads");
    let ports: Vec<u16> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Record>(line).ok()?.port)
        .collect();
    assert_eq!(ports, [4, 1, 2], "{text}");
    assert_eq!((audit.tally().written, audit.tally().waiting), (3, 0));
    let room = std::iter::from_fn(|| audit.reserve()).collect::<Vec<_>>();
    assert_eq!(room.len(), ROOM);
    drop(room);
    audit.close(SOON);
    assert_eq!(notes(dir.path()), 0);
}

/// Whoever shows how the sandbox stands asks, and nobody has to be refused for it.
#[test]
fn whether_records_can_be_written_is_known_without_another_verdict() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let disk = |path: &Path| {
        let file = Rotating::open(path, 1 << 20).expect("opens");
        audit.0.state.lock().direct = Some(Direct::new(file));
    };
    assert!(audit.writes());

    // Once with something that is only missing, once with something that is owed.
    for round in [1, 2] {
        let slot = audit.reserve().expect("there is room");
        if round == 2 {
            audit.owe(slot.place(), || record(2)).expect("noted");
        }
        disk(Path::new("/dev/full"));
        assert_eq!(slot.record(record(round)), Err(Unwritten));
        assert!(!audit.writes());
        disk(&path);
        assert!(audit.writes());
    }

    let text = fs::read_to_string(&path).expect("reads");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains(r#""activity":"records_lost","count":1"#));
    assert!(lines[1].contains(r#""port":2"#));
}

/// Without room for notes nothing is dialled, so that has to be known as well.
#[test]
fn a_note_that_cannot_be_written_is_known_until_there_is_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let beside = dir.path().join("gone");
    fs::create_dir(&beside).expect("made");
    let path = beside.join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let slot = audit.reserve().expect("there is room");
    fs::remove_dir_all(&beside).expect("removed");

    assert_eq!(audit.owe(slot.place(), || record(1)), Err(Unwritten));
    assert!(!audit.writes());
    fs::create_dir(&beside).expect("made");

    assert!(audit.writes());
    audit.owe(slot.place(), || record(1)).expect("noted");
}

/// The same, when the process does not live to see that.
#[test]
fn what_is_late_on_a_full_disk_is_left_to_the_next_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let slot = audit.reserve().expect("there is room");
    audit.owe(slot.place(), || record(1)).expect("noted");
    let full = Rotating::unbounded(Path::new("/dev/full")).expect("opens");
    audit.0.state.lock().direct = Some(Direct::new(full));
    assert_eq!(slot.record(record(1)), Err(Unwritten));
    audit.close(SOON);
    drop(audit);

    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    audit.start().expect("starts");

    assert_eq!((read(&path)[0].port, notes(dir.path())), (Some(1), 0));
}

#[test]
fn half_a_line_of_a_killed_process_goes_and_its_record_is_written_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let slot = audit.reserve().expect("there is room");
    audit.owe(slot.place(), || record(7)).expect("noted");
    let owed = audit
        .0
        .state
        .lock()
        .owed
        .as_ref()
        .and_then(|owed| owed.decision(slot.place()));
    let whole = "{\"of\":\"another\"}\n";
    let half = format!("{{\"decision\":\"{}\",\"verd", owed.expect("it is owed"));
    fs::write(&path, format!("{whole}{half}")).expect("written");
    killed(audit, vec![slot]);

    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    audit.start().expect("starts");

    let text = fs::read_to_string(&path).expect("reads");
    let rest = text.strip_prefix(whole).expect("it is left");
    let record: Record = serde_json::from_str(rest).expect("a record and nothing else");
    assert_eq!((record.port, notes(dir.path())), (Some(7), 0));
}

#[test]
fn nobody_collects_from_a_process_that_lives() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let slot = audit.reserve().expect("there is room");
    audit.owe(slot.place(), || record(1)).expect("noted");

    Audit::rotating(&path, 1 << 20)
        .expect("opens")
        .start()
        .expect("starts");
    assert_eq!((read(&path).len(), notes(dir.path())), (0, 1));

    slot.record(record(1)).expect("written");
    audit.close(SOON);
    assert_eq!((read(&path).len(), notes(dir.path())), (1, 0));
}

#[test]
fn a_note_that_is_too_long_for_its_place_leaves_out_who_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("audit.jsonl");
    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    let slots: Vec<Slot> = std::iter::from_fn(|| audit.reserve()).take(2).collect();
    for (slot, port) in slots.iter().zip(1..) {
        let long = Record {
            ancestors: vec!["/a".repeat(2000); 3],
            binary: Some("/b".repeat(1000 * usize::from(port))),
            ..record(port)
        };
        audit.owe(slot.place(), || long).expect("noted");
    }
    killed(audit, slots);

    let audit = Audit::rotating(&path, 1 << 20).expect("opens");
    audit.start().expect("starts");

    let read = read(&path);
    assert!(read[0].binary.is_some() && read[0].ancestors.is_empty());
    assert!(read[1].binary.is_none());
}
