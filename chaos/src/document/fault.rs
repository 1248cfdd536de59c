//! Reads one fault: which keys it takes, which it needs, and when it is made.

use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::words::{duration, nearest};
use super::{Complaint, complain};
use crate::scenario::{Actor, Breakage, Fault, Kind, Process, Shuffle, When};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    fault: Spanned<String>,
    process: Option<Spanned<String>>,
    actor: Option<Spanned<String>>,
    spare: Option<Spanned<i64>>,
    count: Option<Spanned<u32>>,
    by: Option<Spanned<String>>,
    #[serde(rename = "for")]
    lasts: Option<Spanned<String>>,
    at: Option<Spanned<Vec<Spanned<String>>>>,
    every: Option<Spanned<String>>,
    random: Option<Spanned<u32>>,
}

/// Reads a fault of a scenario whose faults are made within this time.
pub(super) fn read(
    written: &Spanned<Written>,
    shuffle: Option<Shuffle>,
    within: Duration,
) -> Result<Breakage, Complaint> {
    let (place, written) = (written.referenced, &written.value);
    let kind = kind(&written.fault)?;
    written.has_only(kind)?;
    let fault = written.fault(kind)?;
    written.may_last(&fault)?;
    let lasts = written.lasts(kind)?;
    let when = written.when(place, shuffle.is_some())?;
    let from_start = shuffle.map_or(Duration::ZERO, |shuffle| shuffle.rest);
    written.fits(place, from_start, lasts.0, within)?;
    Ok(Breakage { fault, lasts, when })
}

fn kind(word: &Spanned<String>) -> Result<Kind, Complaint> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.word() == word.value)
        .ok_or_else(|| unknown("fault", word, Kind::ALL.map(Kind::word)))
}

fn unknown<'k>(
    what: &str,
    word: &Spanned<String>,
    known: impl IntoIterator<Item = &'k str>,
) -> Complaint {
    let known: Vec<&str> = known.into_iter().collect();
    let suggestion = match nearest(&word.value, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are `{}`", known.join("`, `")),
    };
    let message = format!("unknown {what} `{}`", word.value);
    complain(word.referenced, message, Some(suggestion))
}

impl Written {
    /// Refuses a key that this fault has no use for.
    fn has_only(&self, kind: Kind) -> Result<(), Complaint> {
        let takes = keys(kind);
        let given: [(&str, Option<Location>); 5] = [
            ("process", self.process.as_ref().map(|key| key.referenced)),
            ("actor", self.actor.as_ref().map(|key| key.referenced)),
            ("spare", self.spare.as_ref().map(|key| key.referenced)),
            ("count", self.count.as_ref().map(|key| key.referenced)),
            ("by", self.by.as_ref().map(|key| key.referenced)),
        ];
        for (key, place) in given {
            if let (Some(place), false) = (place, takes.contains(&key)) {
                let message = format!("`{}` has no `{key}`", kind.word());
                let suggestion = if takes.is_empty() {
                    "remove it".to_owned()
                } else {
                    format!("it has `{}`", takes.join("`, `"))
                };
                return Err(complain(place, message, Some(suggestion)));
            }
        }
        Ok(())
    }

    fn fault(&self, kind: Kind) -> Result<Fault, Complaint> {
        Ok(match kind {
            Kind::Emfile => Fault::Emfile {
                process: self.process(&[Process::Gateway, Process::Keeper, Process::Boundary])?,
                spare: self.spare.as_ref().map_or(USUAL_SPARE, |spare| spare.value),
            },
            Kind::Enfile => Fault::Enfile {
                spare: self.spare.as_ref().map_or(FULL, |spare| spare.value),
            },
            Kind::Kill => Fault::Kill(self.process(&Process::ALL)?),
            Kind::Stop => Fault::Stop(self.process(&Process::ALL)?),
            Kind::Panic => Fault::Panic(self.actor()?),
            Kind::Hang => Fault::Hang(self.actor()?),
            Kind::FdFlood => Fault::FdFlood(self.count(FLOOD)?),
            Kind::ExecStorm => Fault::ExecStorm(self.count(STORM)?),
            Kind::SlowReader => Fault::SlowReader(self.count(READERS)?),
            Kind::DiskFull => Fault::DiskFull,
            Kind::ClockJump => Fault::ClockJump(self.by()?),
        })
    }

    fn process(&self, possible: &[Process]) -> Result<Process, Complaint> {
        let Some(word) = &self.process else {
            let words: Vec<_> = possible.iter().map(|process| process.word()).collect();
            let suggestion = format!("write `process:` and one of `{}`", words.join("`, `"));
            let message = format!("`{}` needs a process", self.fault.value);
            return Err(complain(self.fault.referenced, message, Some(suggestion)));
        };
        possible
            .iter()
            .copied()
            .find(|process| process.word() == word.value)
            .ok_or_else(|| {
                unknown(
                    "process",
                    word,
                    possible.iter().map(|process| process.word()),
                )
            })
    }

    /// `actor: keeper/egress`, or `process: keeper` for any of it.
    fn actor(&self) -> Result<Actor, Complaint> {
        let with_trees = [Process::Gateway, Process::Keeper, Process::Boundary];
        let Some(path) = &self.actor else {
            return self.process(&with_trees).map(Actor::AnyOf);
        };
        let process = path.value.split('/').next().unwrap_or_default();
        if !path.value.contains('/') || !with_trees.iter().any(|known| known.word() == process) {
            let message = format!("`{}` is no path of an actor", path.value);
            let suggestion = "write it as `holdfast tree` does: `keeper/outside/canary`";
            return Err(complain(path.referenced, message, Some(suggestion.into())));
        }
        Ok(Actor::Named(path.value.clone()))
    }

    fn count(&self, (usual, most): (u32, u32)) -> Result<u32, Complaint> {
        let Some(count) = &self.count else {
            return Ok(usual);
        };
        if count.value == 0 || count.value > most {
            let message = format!("{} is not from 1 to {most}", count.value);
            return Err(complain(count.referenced, message, None));
        }
        Ok(count.value)
    }

    fn by(&self) -> Result<Duration, Complaint> {
        let Some(by) = &self.by else {
            return Ok(JUMP);
        };
        let far = duration(by)?;
        if far.is_zero() {
            return Err(complain(by.referenced, "`by` needs some time", None));
        }
        Ok(far)
    }

    /// Refuses a time for what nobody undoes.
    fn may_last(&self, fault: &Fault) -> Result<(), Complaint> {
        let at_once = match fault {
            Fault::Kill(process) => *process != Process::Gateway,
            Fault::Panic(_) => true,
            Fault::Emfile { .. }
            | Fault::Enfile { .. }
            | Fault::Stop(_)
            | Fault::Hang(_)
            | Fault::FdFlood(_)
            | Fault::ExecStorm(_)
            | Fault::SlowReader(_)
            | Fault::DiskFull
            | Fault::ClockJump(_) => false,
        };
        if let (Some(lasts), true) = (&self.lasts, at_once) {
            let message = format!("`{fault}` has no `for`: it is done at once");
            let suggestion = Some("remove it".to_owned());
            return Err(complain(lasts.referenced, message, suggestion));
        }
        Ok(())
    }

    /// Refuses what would never be made, because it would not be undone before the end.
    fn fits(
        &self,
        place: Location,
        from_start: Duration,
        lasts: Duration,
        within: Duration,
    ) -> Result<(), Complaint> {
        let mut firsts = Vec::new();
        for at in self.at.iter().flat_map(|at| &at.value) {
            firsts.push((at.referenced, duration(at)?));
        }
        if let Some(every) = &self.every {
            firsts.push((every.referenced, duration(every)?));
        }
        if firsts.is_empty() {
            firsts.push((place, from_start));
        }
        for (place, at) in firsts {
            let until = at.saturating_add(lasts);
            if until > within {
                let message = format!(
                    "never made: it would last until {until:?}, and all ends at {within:?}"
                );
                let suggestion = "make `duration` longer, or the fault earlier or shorter";
                return Err(complain(place, message, Some(suggestion.to_owned())));
            }
        }
        Ok(())
    }

    /// "3s", or "1s..5s".
    fn lasts(&self, kind: Kind) -> Result<(Duration, Duration), Complaint> {
        let Some(written) = &self.lasts else {
            return Ok((usual(kind), usual(kind)));
        };
        let part = |text: &str| {
            let spanned = Spanned::new(text.to_owned(), written.referenced, written.defined);
            duration(&spanned)
        };
        let (least, most) = match written.value.split_once("..") {
            Some((least, most)) => (part(least.trim())?, part(most.trim())?),
            None => (part(&written.value)?, part(&written.value)?),
        };
        if least > most {
            let message = format!("`{}` ends before it begins", written.value);
            let suggestion = "write the shorter one first".to_owned();
            return Err(complain(written.referenced, message, Some(suggestion)));
        }
        Ok((least, most))
    }

    fn when(&self, place: Location, shuffled: bool) -> Result<When, Complaint> {
        let times = (self.at.as_ref(), self.every.as_ref(), self.random.as_ref());
        let when = match times {
            (Some(at), None, None) if at.value.is_empty() => {
                let suggestion = "write `at: [5s]`".to_owned();
                return Err(complain(
                    at.referenced,
                    "`at` has no time",
                    Some(suggestion),
                ));
            }
            (Some(at), None, None) => {
                let times: Result<Vec<_>, _> = at.value.iter().map(duration).collect();
                When::At(times?)
            }
            (None, Some(every), None) => {
                let apart = duration(every)?;
                if apart.is_zero() {
                    return Err(complain(every.referenced, "`every` needs some time", None));
                }
                When::Every(apart)
            }
            (None, None, Some(times)) if times.value == 0 => {
                let suggestion = "write `random: 3`".to_owned();
                let place = times.referenced;
                return Err(complain(place, "`random` is 0", Some(suggestion)));
            }
            (None, None, Some(times)) => When::Random(times.value),
            (None, None, None) if shuffled => return Ok(When::Drawn),
            (None, None, None) => {
                let suggestion = "write `at: [5s]`, `every: 10s` or `random: 3`".to_owned();
                return Err(complain(place, "the fault has no time", Some(suggestion)));
            }
            _ => {
                let suggestion = "keep one of `at`, `every` and `random`".to_owned();
                return Err(complain(
                    place,
                    "the fault has two kinds of time",
                    Some(suggestion),
                ));
            }
        };
        if shuffled {
            let message = "under `shuffle` a fault has no time of its own";
            let suggestion = "remove `at`, `every` and `random`, or `shuffle`".to_owned();
            return Err(complain(place, message, Some(suggestion)));
        }
        Ok(when)
    }
}

/// The keys that a fault takes beside its times.
const fn keys(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Emfile => &["process", "spare"],
        Kind::Enfile => &["spare"],
        Kind::Kill | Kind::Stop => &["process"],
        Kind::Panic | Kind::Hang => &["actor", "process"],
        Kind::FdFlood | Kind::ExecStorm | Kind::SlowReader => &["count"],
        Kind::DiskFull => &[],
        Kind::ClockJump => &["by"],
    }
}

/// How long a fault lasts that does not say. What happens in an instant is over when it has been answered.
const fn usual(kind: Kind) -> Duration {
    match kind {
        Kind::Kill | Kind::Panic | Kind::Hang => Duration::from_secs(1),
        Kind::Emfile
        | Kind::Enfile
        | Kind::Stop
        | Kind::FdFlood
        | Kind::ExecStorm
        | Kind::SlowReader
        | Kind::DiskFull
        | Kind::ClockJump => Duration::from_secs(3),
    }
}

const USUAL_SPARE: i64 = 8;
/// A table that is full stays so although others on the host give files back, and although each processor counts some for itself.
const FULL: i64 = -256;
const JUMP: Duration = Duration::from_hours(1);
/// The usual and the greatest count.
const FLOOD: (u32, u32) = (64, 4_096);
const STORM: (u32, u32) = (32, 1_024);
const READERS: (u32, u32) = (4, 64);
