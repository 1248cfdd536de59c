use super::*;

mod weather;

const SECOND: Duration = Duration::from_secs(1);

fn life(policy: Restart) -> Life {
    Life::new(policy, Seed::new(7), Moment::ORIGIN)
}

/// A life whose keeper has reported.
fn up(policy: Restart) -> (Life, Moment) {
    let (mut life, now) = (life(policy), Moment::ORIGIN);
    assert_eq!(life.step(Event::Woke, now), [Command::Spawn]);
    life.step(Event::Reported, now);
    (life, now)
}

fn crashed(boundary: bool) -> Event {
    Event::KeeperFell(End::Crashed {
        boundary,
        why: Why::new("KeeperLost", "the keeper was killed"),
    })
}

fn main_exited(success: bool) -> End {
    End::MainExited {
        success,
        why: Why::new("MainExited", "the main process exited with status 3"),
    }
}

fn exited(success: bool) -> Event {
    Event::KeeperFell(main_exited(success))
}

#[test]
fn a_sandbox_starts_and_is_up_with_its_first_report() {
    let (life, now) = up(Restart::Never);

    let until = now + LEASE;
    assert_eq!(life.stage, Stage::Up { until });
    assert_eq!((life.generation, life.epoch), (1, 1));
}

#[test]
fn a_keeper_that_dies_is_replaced_by_the_next_epoch() {
    let (mut life, now) = up(Restart::Never);

    assert_eq!(life.step(crashed(true), now), []);
    let at = life.deadline().expect("waits");
    let commands = life.step(Event::Woke, at);

    assert!(at - now <= SECOND);
    assert_eq!(commands, [Command::Spawn]);
    assert_eq!((life.generation, life.epoch, life.keepers), (1, 2, 1));
}

#[test]
fn a_silent_keeper_is_told_at_once_killed_later_and_replaced() {
    let (mut life, now) = up(Restart::Never);

    let lapsed = now + LEASE;
    assert_eq!(life.step(Event::Woke, lapsed), []);
    assert_eq!(
        life.stage,
        Stage::Silent {
            until: lapsed + SILENCE
        }
    );
    let dead = lapsed + SILENCE;
    assert_eq!(life.step(Event::Woke, dead), [Command::KillKeeper]);
    life.step(crashed(true), dead);
    let at = life.deadline().expect("waits");

    assert_eq!(life.step(Event::Woke, at), [Command::Spawn]);
    assert_eq!(life.epoch, 2);
}

#[test]
fn a_silent_keeper_that_reports_again_is_not_killed() {
    let (mut life, now) = up(Restart::Never);
    life.step(Event::Woke, now + LEASE);

    life.step(Event::Reported, now + LEASE + SECOND);

    assert!(matches!(life.stage, Stage::Up { .. }));
}

/// SV-01: reports that have ended are no lease.
#[test]
fn a_keeper_whose_reports_end_is_silent_at_once_and_up_with_the_next_one() {
    let (mut life, now) = up(Restart::Never);

    assert_eq!(life.step(Event::Unlinked, now), []);
    assert!(matches!(life.stage, Stage::Silent { .. }));

    life.step(Event::Reported, now + SECOND);
    assert!(matches!(life.stage, Stage::Up { .. }));
}

/// A keeper that says so is on its way out: nothing is waited for that its process would have to be there for, and nobody is
/// told of an end that is a beginning.
#[test]
fn a_sandbox_that_is_over_by_its_keepers_word_is_on_its_way_to_what_follows() {
    let over = |policy, end| {
        let (mut life, now) = up(policy);
        assert_eq!(life.step(Event::ToldOver(end), now), []);
        (life, now)
    };
    for end in [main_exited(false), End::BoundaryLost(lost())] {
        let (mut life, now) = over(Restart::Never, end.clone());
        let deleted = life.ask(Ask::Delete { force: false }, now);
        let killed = vec![Command::KillBoundary, Command::KillKeeper];
        assert_eq!(deleted, Ok(killed));

        let (mut life, now) = over(Restart::Never, end);
        assert_eq!(life.ask(Ask::Start, now), Ok(vec![]));
        life.step(Event::BoundaryFell, now);
        assert_eq!(life.step(crashed(false), now), [Command::Spawn]);
    }

    let grace = 10 * SECOND;
    let (mut life, now) = over(Restart::Never, main_exited(false));
    assert_eq!(life.ask(Ask::Stop { grace }, now), Ok(vec![]));
    let Stage::Ending {
        after: After::Stop(why),
        ..
    } = &life.stage
    else {
        panic!("{:?}", life.stage);
    };
    assert_eq!(why.reason, "MainExited", "it has ended by itself");

    let (life, _) = over(Restart::OnFailure, main_exited(false));
    let begins = matches!(
        life.stage,
        Stage::Ending {
            after: After::Begin { .. },
            ..
        }
    );
    assert!(begins, "{:?}", life.stage);
}

#[test]
fn a_keeper_that_dies_in_a_stop_takes_no_more_than_the_grace() {
    let (mut life, now) = up(Restart::Never);
    let grace = 10 * SECOND;
    let halt = life.ask(Ask::Stop { grace }, now).expect("granted");
    assert_eq!(halt, [Command::Halt { grace }]);

    life.step(crashed(true), now + SECOND);

    assert_eq!(life.deadline(), Some(now + grace));
    let killed = life.step(Event::Woke, now + grace);
    assert!(killed.contains(&Command::KillBoundary), "{killed:?}");
}

#[test]
fn a_dead_boundary_is_a_failure_at_once() {
    let (mut life, now) = up(Restart::Never);

    life.step(Event::BoundaryFell, now);
    let Stage::Ending {
        after: After::Fail(why),
        ..
    } = &life.stage
    else {
        panic!("{:?}", life.stage);
    };
    assert_eq!(why.reason, "BoundaryLost");
    life.step(Event::KeeperFell(End::BoundaryLost(lost())), now);

    assert!(matches!(life.stage, Stage::Failed { .. }));
}

/// The keeper says how the sandbox ended, ends the boundary, then itself; whichever end is seen first.
#[test]
fn a_boundary_that_ends_after_the_keepers_last_words_is_no_loss() {
    for (policy, success, begins) in [
        (Restart::Never, false, false),
        (Restart::OnFailure, true, false),
        (Restart::OnFailure, false, true),
        (Restart::Always, true, true),
    ] {
        for silent in [false, true] {
            let (mut life, now) = up(policy);
            if silent {
                life.step(Event::Unlinked, now);
            }
            let Event::KeeperFell(end) = exited(success) else {
                panic!("another event");
            };

            assert_eq!(life.step(Event::BoundaryLeft(end), now), []);
            assert!(matches!(life.stage, Stage::Ending { .. }));
            life.step(exited(success), now);

            if begins {
                assert!(matches!(life.stage, Stage::Pending { .. }));
            } else {
                assert!(
                    matches!(&life.stage, Stage::Stopped { why } if why.reason == "MainExited"),
                    "{:?}",
                    life.stage
                );
            }
        }
    }
}

#[test]
fn a_keeper_that_does_not_follow_its_boundary_is_killed() {
    let (mut life, now) = up(Restart::Never);
    life.step(Event::BoundaryLeft(End::Halted), now);

    let commands = life.step(Event::Woke, now + LEAVE);

    assert!(commands.contains(&Command::KillKeeper), "{commands:?}");
}

#[test]
fn a_keeper_that_nobody_knew_of_is_killed_with_its_boundary() {
    let lost = Found::Running { gone: lost() };
    let (mut life, _) = life(Restart::Never).adopted(Alive::default(), lost, Moment::ORIGIN);
    assert!(matches!(life.stage, Stage::Failed { .. }));

    let commands = life.step(Event::Reported, Moment::ORIGIN);

    assert_eq!(commands, [Command::KillBoundary, Command::KillKeeper]);
}

#[test]
fn an_adopted_keeper_that_reports_has_a_boundary_that_its_death_leaves_behind() {
    let (now, alive) = (
        Moment::ORIGIN,
        Alive {
            keeper: true,
            boundary: false,
        },
    );
    let running = Found::Running { gone: lost() };
    let (mut life, _) = life(Restart::Never).adopted(alive, running, now);
    life.step(Event::Reported, now);

    life.step(crashed(true), now);

    assert!(
        matches!(life.stage, Stage::KeeperDown { .. }),
        "{:?}",
        life.stage
    );
}

#[test]
fn what_ended_in_good_order_without_a_gateway_is_no_loss() {
    let now = Moment::ORIGIN;
    let over = Found::Over(main_exited(true));

    let (life, _) = life(Restart::OnFailure).adopted(Alive::default(), over, now);

    assert!(matches!(life.stage, Stage::Stopped { .. }));
}

#[test]
fn a_generation_that_was_wanted_and_did_not_begin_begins_yet() {
    let now = Moment::ORIGIN;
    let life = Life {
        generation: 3,
        epoch: 1,
        ..life(Restart::Never)
    };

    let (mut life, commands) = life.adopted(Alive::default(), Found::Unbegun, now);

    assert!(commands.is_empty());
    assert_eq!(life.step(Event::Woke, now), [Command::Spawn]);
    assert_eq!((life.generation, life.epoch), (3, 1));
}

#[test]
fn the_end_of_the_main_process_follows_the_restart_policy() {
    for (policy, success, begins) in [
        (Restart::Never, false, false),
        (Restart::OnFailure, true, false),
        (Restart::OnFailure, false, true),
        (Restart::Always, true, true),
    ] {
        let (mut life, now) = up(policy);

        life.step(exited(success), now);

        match &life.stage {
            Stage::Stopped { why } => assert!(!begins && why.reason == "MainExited"),
            Stage::Pending { at, why } => {
                assert!(begins && *at - now >= SECOND && why.reason == "MainExited");
            }
            Stage::Starting { .. }
            | Stage::Up { .. }
            | Stage::Adopting { .. }
            | Stage::Silent { .. }
            | Stage::KeeperDown { .. }
            | Stage::Ending { .. }
            | Stage::Failed { .. }
            | Stage::Deleting { .. } => panic!("{:?}", life.stage),
        }
    }
}

/// SV-04: each start succeeds, and it is given up all the same.
#[test]
fn a_crash_loop_ends_as_failed_with_its_reason() {
    let (mut life, mut now) = up(Restart::Always);
    for _ in 0..MOST_TRIES {
        now += 2 * SECOND;
        life.step(exited(false), now);
        now = life.deadline().expect("tried again");
        assert_eq!(life.step(Event::Woke, now), [Command::Spawn]);
        life.step(Event::Reported, now);
    }

    life.step(exited(false), now);

    let Stage::Failed { why } = &life.stage else {
        panic!("{:?}", life.stage);
    };
    assert!(why.message.contains("status 3") && why.message.contains("not tried again"));
}

/// SV-06: whoever cannot be kept is not left running without being watched.
#[test]
fn keepers_that_fall_again_and_again_are_given_up_with_their_boundary() {
    let (mut life, mut now) = up(Restart::Always);
    for _ in 0..MOST_TRIES {
        now += SECOND;
        life.step(crashed(true), now);
        now = life.deadline().expect("replaced");
        assert_eq!(life.step(Event::Woke, now), [Command::Spawn]);
        life.step(Event::Reported, now);
    }

    let commands = life.step(crashed(true), now);

    assert_eq!(commands.first(), Some(&Command::KillBoundary));
    life.step(Event::BoundaryFell, now);
    let (Stage::Failed { why } | Stage::Pending { why, .. }) = &life.stage else {
        panic!("{:?}", life.stage);
    };
    assert_eq!(why.reason, "KeeperGivenUp");
    assert!(why.message.contains("the keeper was killed"), "{why:?}");
}

#[test]
fn a_stop_goes_through_the_keeper_and_kills_what_does_not_leave() {
    let (mut life, now) = up(Restart::Always);
    let grace = 10 * SECOND;

    let halted = life.ask(Ask::Stop { grace }, now).expect("granted");
    assert_eq!(halted, [Command::Halt { grace }]);
    let killed = life.step(Event::Woke, now + grace + LEAVE);
    assert_eq!(killed, [Command::KillBoundary, Command::KillKeeper]);
    life.step(Event::BoundaryFell, now);
    life.step(crashed(false), now);

    let Stage::Stopped { why } = &life.stage else {
        panic!("{:?}", life.stage);
    };
    assert_eq!(why.reason, ASKED);
}

#[test]
fn one_that_runs_is_not_deleted_without_force() {
    let (mut life, now) = up(Restart::Never);

    assert_eq!(
        life.ask(Ask::Delete { force: false }, now),
        Err(Denied::StillRunning)
    );
    let killed = life.ask(Ask::Delete { force: true }, now).expect("granted");
    assert_eq!(killed, [Command::KillBoundary, Command::KillKeeper]);
    life.step(crashed(true), now);

    assert_eq!(life.step(Event::BoundaryFell, now), [Command::Remove]);
    assert_eq!(life.ask(Ask::Start, now), Err(Denied::Deleting));
}

#[test]
fn what_the_next_gateway_finds_is_adopted() {
    let now = Moment::ORIGIN;
    let found = |keeper, boundary| {
        let life = Life {
            generation: 1,
            epoch: 1,
            ..life(Restart::Never)
        };
        life.adopted(
            Alive { keeper, boundary },
            Found::Running { gone: lost() },
            now,
        )
    };

    let (mut life, commands) = found(true, true);
    assert_eq!(
        (&life.stage, commands),
        (&Stage::Adopting { until: now + LEASE }, vec![])
    );
    // It has one lease to come back in, as if its last report had just been heard.
    life.step(Event::Woke, now + LEASE);
    assert!(matches!(life.stage, Stage::Silent { .. }));
    let (life, commands) = found(false, true);
    assert_eq!((life.epoch, commands), (2, vec![Command::Spawn]));
    let (life, commands) = found(false, false);
    assert!(commands.is_empty());
    assert!(matches!(life.stage, Stage::Failed { why } if why.reason == "BoundaryLost"));
}
