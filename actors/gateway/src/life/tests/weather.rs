//! Processes die and people want whenever they like: what holds of every life.

use proptest::prelude::*;

use super::*;

/// What the world does next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Wait,
    Report,
    KeeperDies,
    BoundaryDies,
    Exit(bool),
    /// The keeper says that it is over, and is still there.
    TellOver(bool),
    Refuse,
    Start,
    Stop,
    Restart,
    Delete,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => Just(Turn::Wait),
        4 => Just(Turn::Report),
        2 => Just(Turn::KeeperDies),
        1 => Just(Turn::BoundaryDies),
        1 => any::<bool>().prop_map(Turn::Exit),
        1 => any::<bool>().prop_map(Turn::TellOver),
        1 => Just(Turn::Refuse),
        1 => Just(Turn::Start),
        1 => Just(Turn::Stop),
        1 => Just(Turn::Restart),
        1 => Just(Turn::Delete),
    ]
}

/// Processes that obey.
#[derive(Debug)]
struct World {
    life: Life,
    now: Moment,
    keeper: bool,
    boundary: bool,
    epochs: (u64, u64),
    removed: bool,
}

impl World {
    fn new(policy: Restart) -> Self {
        Self {
            life: life(policy),
            now: Moment::ORIGIN,
            keeper: false,
            boundary: false,
            epochs: (0, 0),
            removed: false,
        }
    }

    fn step(&mut self, event: Event) {
        let commands = self.life.step(event, self.now);
        self.obey(commands);
    }

    fn ask(&mut self, ask: Ask) -> Result<(), Denied> {
        let commands = self.life.ask(ask, self.now)?;
        self.obey(commands);
        Ok(())
    }

    /// Who is killed is dead at once, and that is heard when all is done that was wanted with it: the keeper's end first.
    fn obey(&mut self, commands: Vec<Command>) {
        let (mut keeper, mut boundary) = (None, None);
        for command in commands {
            assert!(!self.removed, "{command:?} after the removal");
            match command {
                Command::Spawn => {
                    assert!(!self.keeper, "two keepers");
                    let epochs = (self.life.generation, self.life.epoch);
                    assert!(epochs > self.epochs, "{epochs:?} after {:?}", self.epochs);
                    assert!(
                        epochs.1 > 1 || !self.boundary,
                        "a generation over another one"
                    );
                    self.epochs = epochs;
                    self.keeper = true;
                    self.boundary |= epochs.1 == 1;
                }
                Command::KillBoundary => boundary = self.boundary_dies(),
                Command::KillKeeper => {
                    let left = self.boundary || boundary.is_some();
                    keeper = self.keeper_dies(left);
                }
                Command::Halt { .. } => {
                    self.boundary = false;
                    self.keeper = false;
                    keeper = Some(Event::KeeperFell(End::Halted));
                }
                Command::Remove => {
                    assert!(!self.keeper && !self.boundary, "removed while it runs");
                    self.removed = true;
                }
            }
        }
        for heard in keeper.into_iter().chain(boundary) {
            self.step(heard);
        }
    }

    fn keeper_dies(&mut self, boundary: bool) -> Option<Event> {
        let died = std::mem::take(&mut self.keeper) || self.life.alive().keeper;
        died.then(|| crashed(boundary))
    }

    fn boundary_dies(&mut self) -> Option<Event> {
        let died = std::mem::take(&mut self.boundary) || self.life.alive().boundary;
        died.then_some(Event::BoundaryFell)
    }

    fn wait(&mut self) {
        if let Some(deadline) = self.life.deadline() {
            self.now = self.now.max(deadline);
            self.step(Event::Woke);
        }
    }

    fn report(&mut self) {
        if self.keeper {
            if self.boundary {
                self.step(Event::Reported);
            } else {
                self.keeper = false;
                self.step(Event::KeeperFell(End::BoundaryLost(lost())));
            }
        }
    }

    fn turn(&mut self, turn: Turn) {
        let grace = SECOND;
        match turn {
            Turn::Wait => self.wait(),
            Turn::Report => self.report(),
            Turn::KeeperDies => {
                if let Some(died) = self.keeper_dies(self.boundary) {
                    self.step(died);
                }
            }
            Turn::BoundaryDies => {
                if let Some(died) = self.boundary_dies() {
                    self.step(died);
                }
            }
            Turn::Exit(success) if self.keeper => {
                (self.keeper, self.boundary) = (false, false);
                self.step(exited(success));
            }
            Turn::TellOver(success) if self.keeper => {
                self.step(Event::ToldOver(main_exited(success)));
            }
            Turn::Refuse if self.keeper && self.life.epoch == 1 => {
                (self.keeper, self.boundary) = (false, false);
                self.step(Event::BoundaryFell);
                self.step(Event::KeeperFell(End::Refused(Why::new(
                    "FenceUnproven",
                    "no",
                ))));
            }
            Turn::Exit(_) | Turn::TellOver(_) | Turn::Refuse => {}
            Turn::Start => drop(self.ask(Ask::Start)),
            Turn::Stop => drop(self.ask(Ask::Stop { grace })),
            Turn::Restart => drop(self.ask(Ask::Restart { grace })),
            Turn::Delete => drop(self.ask(Ask::Delete { force: false })),
        }
    }
}

fn policy() -> impl Strategy<Value = Restart> {
    prop_oneof![
        Just(Restart::Never),
        Just(Restart::OnFailure),
        Just(Restart::Always)
    ]
}

proptest! {
    /// SV-02: no state without a way out, after whatever happened.
    #[test]
    fn from_everywhere_there_is_a_way_on(policy in policy(), turns in prop::collection::vec(turn(), 0..80)) {
        let mut world = World::new(policy);
        for turn in turns {
            if world.removed {
                return Ok(());
            }
            world.turn(turn);
            let settled = matches!(world.life.stage, Stage::Stopped { .. } | Stage::Failed { .. });
            prop_assert_eq!(world.life.deadline().is_none(), settled, "{:?}", world.life.stage);
        }
        if matches!(world.life.stage, Stage::Deleting { .. } | Stage::Ending { after: After::Delete, .. }) {
            return Ok(());
        }

        let mut started = world.life.clone();
        let mut world_up = World { life: started.clone(), ..world };
        world_up.ask(Ask::Start).expect("may start");
        for _ in 0..8 {
            if matches!(world_up.life.stage, Stage::Up { .. }) {
                break;
            }
            world_up.report();
            if !matches!(world_up.life.stage, Stage::Up { .. }) {
                world_up.wait();
            }
            if matches!(world_up.life.stage, Stage::Failed { .. } | Stage::Stopped { .. }) {
                world_up.ask(Ask::Start).expect("may start");
            }
        }
        prop_assert!(matches!(world_up.life.stage, Stage::Up { .. }), "{:?}", world_up.life.stage);

        started = world_up.life.clone();
        let mut end = World { life: started, ..world_up };
        end.ask(Ask::Delete { force: true }).expect("may be deleted");
        if !end.removed {
            end.wait();
        }
        prop_assert!(end.removed, "{:?}", end.life.stage);
    }
}
