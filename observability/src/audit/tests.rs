use std::fs::{self, OpenOptions};
use std::time::{SystemTime, UNIX_EPOCH};

use super::*;
use crate::Ruling;

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
    let audit = Audit::file(&path).expect("opens");
    let slot = audit.reserve().expect("an empty queue has room");
    (1..ROOM).for_each(|_| audit.record(record(1)));

    let refused = audit.reserve();
    (0..7_u8).for_each(|_| audit.record(record(2)));
    slot.record(record(3));
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
fn a_full_disk_stops_nobody_and_is_counted() {
    let audit = Audit::file(Path::new("/dev/full")).expect("opens");
    audit.start().expect("starts");

    (0..10).for_each(|n| audit.record(record(n)));
    let tally = audit.close(SOON);

    assert_eq!((tally.written, tally.waiting), (0, 0));
    assert_eq!(tally.lost, 10);
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
    let audit = Audit::file(&dir.path().join("audit.jsonl")).expect("opens");
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

#[test]
fn a_writer_that_is_stuck_holds_nobody_up_and_closing_is_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo runs").success());
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
