//! Attempts whose connect failed in the kernel, which nobody tells: found when room runs short.

use super::*;

impl Desk {
    /// A blocking connect of curl that was allowed, dialled and let go.
    fn let_go(&mut self, call: u64, thread: u32) {
        let attempted = Attempted {
            thread: Some(thread),
            ..attempted(call, OPEN, curl(), true)
        };
        assert_eq!(self.step(Event::Attempted(attempted)).len(), 1, "dialled");
        self.dialled(call, OPEN);
    }

    fn doubtful(&mut self) -> Vec<u64> {
        let doubtful = self.book.doubtful(self.now).into_iter();
        let mut serials: Vec<_> = doubtful.map(|(serial, _)| serial.0).collect();
        serials.sort_unstable();
        serials
    }

    fn missing(&mut self, serials: &[u64]) -> Vec<String> {
        let serials = serials.iter().copied().map(Serial).collect();
        self.step(Event::Missing { serials })
    }
}

#[test]
fn whose_thread_has_called_again_or_has_had_time_is_in_doubt() {
    let mut desk = Desk::new();
    for (call, thread) in [(1, 7), (2, 7), (3, 8)] {
        desk.let_go(call, thread);
    }
    // Its thread waits in the call.
    desk.attempt(4, OPEN, curl(), true);
    assert_eq!(desk.doubtful(), [1]);

    let nearly = Duration::from_millis(999);
    desk.now += nearly;
    assert_eq!(desk.doubtful(), [1]);
    desk.now += TARDY.saturating_sub(nearly);
    assert_eq!(desk.doubtful(), [1, 2, 3]);
}

#[test]
fn what_is_missing_leaves_one_record_and_lets_go_of_its_dial() {
    let mut desk = Desk::new();
    desk.let_go(1, 7);
    desk.attempt(2, OPEN, curl(), false);
    desk.step(Event::Released { serial: Serial(2) });

    let told = desk.missing(&[1, 2]);

    assert_eq!(told, ["record abandoned", "record abandoned", "cancel 2"]);
    assert_eq!((desk.book.pending(), desk.book.counts().missing), (0, 2));
    assert!(desk.missing(&[1, 2]).is_empty(), "late news");
    assert!(desk.dialled(2, OPEN).is_empty());
}

#[test]
fn what_has_come_meanwhile_or_was_not_let_go_is_not_missing() {
    let mut desk = Desk::new();
    desk.let_go(1, 7);
    desk.let_go(2, 7);
    desk.attempt(3, OPEN, curl(), true);
    desk.accept(4, OPEN);
    desk.accept(1, OPEN);

    assert!(desk.missing(&[1, 3, 4]).is_empty());

    assert_eq!(
        desk.accept(2, OPEN),
        ["record connected 127.0.0.1", "relay 2"]
    );
    assert_eq!(desk.book.counts().missing, 0);
}

#[test]
fn a_usual_load_asks_for_nothing_and_a_high_one_seldom() {
    let mut desk = Desk::new();
    let (many, more) = (doubt::MANY as u64, doubt::MORE as u64);
    for call in 1..many {
        desk.let_go(call, 7);
        assert!(!desk.book.is_short());
    }
    desk.let_go(many, 7);
    assert!(desk.book.is_short());

    // None is missing: it is asked again after some more, or a while.
    desk.doubtful();
    assert!(desk.missing(&[]).is_empty());
    for call in many + 1..many + more {
        desk.let_go(call, 7);
        assert!(!desk.book.is_short());
    }
    desk.step(Event::Passed);
    assert!(desk.book.is_short());

    // All but the last one are.
    let doubtful = desk.doubtful();
    assert_eq!(desk.missing(&doubtful).len() as u64, many + more - 2);
    assert!(!desk.book.is_short());
}
