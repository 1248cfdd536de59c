//! Writes on the board what is known of the sandbox: its health at once, what is merely counted with each beat.
//!
//! ```text
//!  supervision, link, canary, pressure, rulebook ── note ──> Health ── changed ──> board, at once
//!  desk, broker, descriptors ──────────────────────────────> counters ── each beat ──────> board
//!  time ── the first observation that grows old ───────────> Health
//! ```
//!
//! Whoever notes something is never held up: a step of the health is a few comparisons, and those who watch the board are
//! told without waiting for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use holdfast_actor::{Clock, Moment};
use holdfast_wire::v1;
use holdfast_wire::words::unnumbered;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::board::Board;
use crate::egress::desk::Desk;
use crate::health::{Condition, Event, Health, Phase, Report, Unlinked, Walked};
use crate::link::{self, Parting, Standing};

/// The sandbox's health, and where it is shown. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Vitals(Arc<Shared>);

struct Shared {
    board: Board,
    clock: Clock,
    anchor: Anchor,
    state: Mutex<State>,
    canary: Notify,
}

struct State {
    health: Health,
    canary: v1::CanaryState,
    /// What is counted since the last refresh.
    broker: v1::BrokerState,
    boundary: Option<v1::Descriptors>,
    keeper: Option<v1::Descriptors>,
    desk: Option<Arc<Desk>>,
    /// When all of it was shown last.
    shown: Moment,
    /// What was logged last.
    logged: (Phase, &'static str),
}

/// One moment with its date, so that a date that jumps later changes no other one.
#[derive(Clone, Copy, Debug)]
struct Anchor(Moment, SystemTime);

impl Vitals {
    /// Nothing is known yet. A keeper that takes a running sandbox over begins Degraded, not Pending.
    pub fn new(board: Board, clock: Clock, takes_over: bool) -> Self {
        let now = clock.now();
        let health = Health::new(now, takes_over);
        // How every keeper begins is no news.
        let logged = (health.report().phase, health.report().reason);
        let vitals = Self(Arc::new(Shared {
            board,
            anchor: Anchor(now, clock.wall()),
            state: Mutex::new(State {
                health,
                canary: v1::CanaryState::default(),
                broker: v1::BrokerState::default(),
                boundary: None,
                keeper: None,
                desk: None,
                shown: now,
                logged,
            }),
            canary: Notify::new(),
            clock,
        }));
        vitals.show(&mut vitals.0.state.lock());
        vitals
    }

    /// Counts of the egress come from this desk.
    pub fn count(&self, desk: &Arc<Desk>) {
        self.0.state.lock().desk = Some(Arc::clone(desk));
    }

    /// Takes in what happened. Those who watch hear of what follows from it before this returns.
    pub fn note(&self, event: Event) {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        let restarted = restarts_of(&event);
        // What is merely counted is shown with each beat: whoever watches is woken once for both.
        let is_beat = matches!(event, Event::Beat(..));
        state.keep(&event, self.0.anchor);
        let turn = state.health.step(event, now);
        if turn.changed {
            state.log();
        }
        if turn.changed || is_beat {
            self.show(&mut state);
        }
        drop(state);
        self.0
            .board
            .revise(|status| status.restarts.extend(restarted));
        if turn.canary {
            self.0.canary.notify_one();
        }
    }

    /// Ready when a canary should go at once.
    pub(crate) async fn canary_wanted(&self) {
        self.0.canary.notified().await;
    }

    /// Whether a canary could prove anything now.
    pub(crate) fn admits_canary(&self) -> bool {
        self.0.state.lock().health.admits_canary()
    }

    /// What is wrong with the ports that nobody can listen on; empty if there are none.
    pub(crate) fn unheard(&self) -> String {
        self.0.state.lock().health.unheard()
    }

    /// Whether the sandbox is Ready.
    pub fn is_ready(&self) -> bool {
        self.0.state.lock().health.report().phase == Phase::Ready
    }

    /// The present moment, by the clock that dates what is noted.
    pub(crate) fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// The descriptors of this process, as they were counted last.
    pub(crate) fn keep_descriptors(&self, counted: v1::Descriptors) {
        self.0.state.lock().keeper = Some(counted);
    }

    /// Shows what grows old when it does, and what is merely counted every [`REFRESH`] if no beat has shown it. Never ends.
    pub(crate) async fn refresh(&self) {
        loop {
            self.note(Event::Passed);
            let now = self.0.clock.now();
            let wake = {
                let mut state = self.0.state.lock();
                if now >= state.shown + REFRESH {
                    self.show(&mut state);
                }
                let expiry = state.health.expires();
                // A little later than the last moment at which it is still good.
                let expiry = expiry.map_or(Moment::NEVER, |expiry| expiry + MILLISECOND);
                (state.shown + REFRESH).min(expiry.max(now + MILLISECOND))
            };
            tokio::time::sleep(wake - now).await;
        }
    }

    /// Shows what is counted as it is now.
    pub(crate) fn count_now(&self) {
        self.show(&mut self.0.state.lock());
    }

    /// Follows the link until it is over: a beat that comes, and one that does not.
    pub(crate) async fn follow(&self, mut link: watch::Receiver<link::State>) {
        loop {
            let link::State {
                epoch,
                protocol,
                standing,
                reconnects,
                beat,
            } = link.borrow_and_update().clone();
            let connected = matches!(standing, Standing::Linked { .. });
            self.note(match standing {
                Standing::Linked { .. } => match beat {
                    Some((asked, beat)) => Event::Beat(asked.at, Box::new(beat)),
                    None => Event::Linked,
                },
                Standing::Lost { why, .. } => {
                    let what = format!("the boundary is not heard: {why}; it is tried again");
                    Event::Unlinked(Unlinked::Lost, what)
                }
                Standing::Over { why, .. } => {
                    let unlinked = match why {
                        Parting::Died => Unlinked::Gone,
                        Parting::Left(_) => Unlinked::Lost,
                    };
                    Event::Unlinked(unlinked, why.to_string())
                }
            });
            self.0.board.revise(|status| {
                status.link = Some(v1::LinkState {
                    epoch,
                    connected,
                    reconnects,
                    protocol,
                });
            });
            if link.changed().await.is_err() {
                // With the link's actor all falls that needs it.
                return;
            }
        }
    }

    /// Harmless races, as the broker counted them since it told last.
    pub(crate) fn count_races(&self, counted: &v1::Races) {
        let races = &mut self.0.state.lock().broker.races;
        for (race, count) in &counted.counts {
            if races.len() < MOST_RACES || races.contains_key(race) {
                *races.entry(race.clone()).or_default() += count;
            }
        }
    }

    /// Writes all of it on the board, under the lock, so that what is older never comes later.
    fn show(&self, state: &mut State) {
        let Shared {
            board,
            anchor,
            clock,
            ..
        } = &*self.0;
        state.shown = clock.now();
        board.revise(|status| {
            write_report(status, state.health.report(), *anchor);
            status.canary = Some(state.canary);
            status.broker = Some(state.broker.clone());
            for (process, counted) in [("keeper", state.keeper), ("boundary", state.boundary)] {
                if let Some(counted) = counted {
                    status.descriptors.insert(process.to_owned(), counted);
                }
            }
            if let Some(desk) = &state.desk {
                status.egress = Some(egress(desk));
            }
        });
    }
}

impl State {
    /// Says in the log what the sandbox's owner would be told, once.
    fn log(&mut self) {
        let Report {
            phase,
            reason,
            message,
            ..
        } = self.health.report();
        if is_news(&mut self.logged, (*phase, *reason)) {
            let said = if message.is_empty() {
                "every condition holds"
            } else {
                message
            };
            tracing::info!(?phase, reason, "{said}");
        }
    }

    /// Keeps what an event brings besides health.
    fn keep(&mut self, event: &Event, anchor: Anchor) {
        match event {
            Event::Beat(_, beat) => {
                let v1::BrokerCounts {
                    notifications,
                    denied,
                    faults,
                } = beat.broker.unwrap_or_default();
                self.broker.notifications = notifications;
                self.broker.denied = denied;
                self.broker.faults = faults;
                self.boundary = beat.descriptors.or(self.boundary);
            }
            Event::Walked(Walked { began, ended, fell }) => {
                let took = ended.since(*began).as_micros();
                self.canary.last_ms = anchor.date(*ended);
                self.canary.duration_us = u64::try_from(took).unwrap_or(u64::MAX);
                if fell.is_some() {
                    self.canary.failures += 1;
                } else {
                    self.canary.last_ok_ms = self.canary.last_ms;
                }
            }
            Event::Changed(_)
            | Event::Boundary(_)
            | Event::Fence(_)
            | Event::Linked
            | Event::Unlinked(..)
            | Event::Refused(_)
            | Event::Descriptors(..)
            | Event::Listening(_)
            | Event::Unheard(_)
            | Event::Asked(_)
            | Event::Recording(_)
            | Event::Policy { .. }
            | Event::Ending { .. }
            | Event::Over { .. }
            | Event::Passed => {}
        }
    }
}

impl Anchor {
    /// Milliseconds since 1970.
    fn date(self, moment: Moment) -> i64 {
        let Self(known, date) = self;
        let at = date + moment.since(known);
        let since = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Whether this was not the last thing to be said.
fn is_news(said: &mut (Phase, &'static str), now: (Phase, &'static str)) -> bool {
    std::mem::replace(said, now) != now
}

/// The actors that came back, and how often they have: the keeper's own by their places in it, the boundary's by their paths. Single
/// sessions are not told: each is its own.
fn restarts_of(event: &Event) -> Vec<(String, u64)> {
    let told: Vec<(&str, u64)> = match event {
        Event::Changed(change) => {
            let own = change.path.as_str().strip_prefix("keeper/");
            let own = own.filter(|actor| !actor.starts_with("sessions/"));
            let restarts = change.restarts.into();
            own.map(|actor| (actor, restarts)).into_iter().collect()
        }
        Event::Boundary(changed) => vec![(&changed.path, changed.restarts)],
        Event::Beat(_, beat) => {
            let rows = beat.tree.iter().flat_map(|tree| &tree.rows);
            rows.map(|row| (row.path.as_str(), row.restarts)).collect()
        }
        Event::Fence(_)
        | Event::Linked
        | Event::Unlinked(..)
        | Event::Walked(_)
        | Event::Refused(_)
        | Event::Descriptors(..)
        | Event::Listening(_)
        | Event::Unheard(_)
        | Event::Asked(_)
        | Event::Recording(_)
        | Event::Policy { .. }
        | Event::Ending { .. }
        | Event::Over { .. }
        | Event::Passed => Vec::new(),
    };
    let told = told.into_iter().filter(|(_, restarts)| *restarts > 0);
    told.map(|(actor, restarts)| (actor.to_owned(), restarts))
        .collect()
}

fn write_report(status: &mut v1::Status, report: &Report, anchor: Anchor) {
    status.conditions = report
        .conditions
        .iter()
        .map(|condition| write_condition(condition, anchor))
        .collect();
    status.set_phase(report.phase.into());
    report.reason.clone_into(&mut status.reason);
    status.message = unnumbered(&report.message);
    status.since_ms = anchor.date(report.since);
}

fn write_condition(condition: &Condition, anchor: Anchor) -> v1::Condition {
    v1::Condition {
        r#type: v1::ConditionType::from(condition.kind).into(),
        status: v1::Truth::from(condition.status).into(),
        reason: condition.reason.to_owned(),
        message: unnumbered(&condition.message),
        since_ms: anchor.date(condition.since),
        observed_ms: anchor.date(condition.observed),
    }
}

fn egress(desk: &Desk) -> v1::EgressCounts {
    let counters = &desk.counters;
    v1::EgressCounts {
        open: counters.open.load(Ordering::Relaxed) as u64,
        allowed: counters.allowed.load(Ordering::Relaxed),
        denied: counters.denied.load(Ordering::Relaxed),
        refused_upstream: counters.refused_upstream.load(Ordering::Relaxed),
    }
}

/// How often what is merely counted is shown when no beat comes: each that comes shows it, and is there before.
const REFRESH: Duration = Duration::from_millis(850);

/// So many kinds of races are told apart.
const MOST_RACES: usize = 64;

const MILLISECOND: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{BEAT_AGE, Sample};

    fn vitals() -> (Vitals, Board) {
        let board = Board::new(v1::Status::default());
        (Vitals::new(board.clone(), Clock::tokio(), false), board)
    }

    fn all_but_the_canary(vitals: &Vitals) {
        let (desired, enforced, error) = (1, 1, String::new());
        for event in [
            Event::Fence(Ok(())),
            Event::Linked,
            Event::Descriptors(Clock::tokio().now(), Sample::default()),
            Event::Policy {
                desired,
                enforced,
                error,
            },
        ] {
            vitals.note(event);
        }
    }

    fn walked() -> Event {
        let now = Clock::tokio().now();
        Event::Walked(Walked {
            began: now,
            ended: now + MILLISECOND,
            fell: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_on_the_board_before_anything_else_happens() {
        let (vitals, board) = vitals();
        assert_eq!(board.status().phase(), v1::Phase::Pending);

        all_but_the_canary(&vitals);
        vitals.canary_wanted().await;
        vitals.note(walked());
        assert_eq!(board.status().phase(), v1::Phase::Ready);
        assert!(
            board
                .status()
                .canary
                .is_some_and(|canary| canary.duration_us == 1000)
        );
        vitals.note(Event::Fence(Err("a gap".to_owned())));

        let status = board.status();
        assert_eq!(status.phase(), v1::Phase::Failed);
        assert_eq!(status.reason, "FenceUnproven");
        assert_eq!(status.conditions.len(), 8);
    }

    /// Conditions may change as they like: a line in the log is another phase or another reason of it.
    #[tokio::test(start_paused = true)]
    async fn the_log_is_told_of_another_phase_or_reason_only() {
        let (vitals, _) = vitals();
        let first = vitals.0.state.lock().logged;
        assert_eq!(first, (Phase::Pending, "Starting"));

        let mut said = first;
        let news = [
            first,
            first,
            (Phase::Pending, "CanaryStale"),
            (Phase::Pending, "CanaryStale"),
            (Phase::Ready, ""),
        ]
        .map(|now| is_news(&mut said, now));

        assert_eq!(news, [false, false, true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_grows_old_is_shown_when_it_does() {
        let (vitals, board) = vitals();
        all_but_the_canary(&vitals);
        vitals.note(walked());
        assert_eq!(board.status().phase(), v1::Phase::Ready);

        let late = BEAT_AGE + MILLISECOND * 5;
        let _ = tokio::time::timeout(late, vitals.refresh()).await;

        assert_eq!(board.status().reason, "LinkLost");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_not_taken_back_and_holds_no_condition() {
        let (vitals, board) = vitals();
        all_but_the_canary(&vitals);
        vitals.note(walked());
        vitals.note(Event::Over {
            phase: Phase::Stopped,
            reason: "MainExited",
            message: "the main process exited with status 3".to_owned(),
        });

        all_but_the_canary(&vitals);
        vitals.note(walked());

        let status = board.status();
        assert_eq!(status.phase(), v1::Phase::Stopped);
        assert_eq!(status.conditions.len(), 8);
        for condition in &status.conditions {
            assert_eq!(condition.status(), v1::Truth::Unknown);
            assert_eq!(condition.reason, "MainExited");
            assert_eq!(condition.message, status.message);
        }
    }
}
