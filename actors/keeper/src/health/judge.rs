//! Judges each condition by what is known at a moment.

use holdfast_actor::Moment;

use super::{
    BEAT_AGE, CANARY_AGE, Condition, End, Health, Kind, Link, Listening, Phase, Report, SAMPLE_AGE,
    Sample, Short, Truth, Unlinked,
};

/// What a condition is found to be.
struct Finding {
    status: Truth,
    reason: &'static str,
    message: String,
    observed: Moment,
}

impl Health {
    /// The report at `now`; what does not change keeps its date.
    pub(super) fn judged(&self, now: Moment) -> Report {
        let before = &self.report;
        let conditions = Kind::ALL.map(|kind| {
            let Finding {
                status,
                reason,
                message,
                observed,
            } = match &self.end {
                // Whatever was seen of it says nothing of what is left.
                Some(End::Coming(reason, message) | End::Come(_, reason, message)) => {
                    unknown(reason, message, now)
                }
                None => self.find(kind, now),
            };
            let last = &before.conditions[kind as usize];
            let since = if last.status == status {
                last.since
            } else {
                now
            };
            Condition {
                kind,
                status,
                reason,
                message,
                since,
                observed,
            }
        });
        let failing = conditions
            .iter()
            .find(|condition| condition.status != Truth::True);
        let (reason, message) = failing.map_or(("", String::new()), |condition| {
            (condition.reason, condition.message.clone())
        });
        let phase = match (&self.end, failing) {
            (Some(End::Come(phase, ..)), _) => *phase,
            (None, None) => Phase::Ready,
            (Some(End::Coming(..)) | None, _) => self.phase_of_failure(),
        };
        let since = if before.phase == phase {
            before.since
        } else {
            now
        };
        Report {
            phase,
            reason,
            message,
            since,
            conditions,
        }
    }

    /// Whether nothing is missing but, perhaps, a canary.
    pub(super) fn is_whole(&self, now: Moment) -> bool {
        let direct = Kind::ALL
            .into_iter()
            .filter(|kind| !Kind::WAY.contains(kind));
        self.down.is_empty()
            && self.listening == Listening::default()
            && self.unheard.ports.is_empty()
            && direct
                .map(|kind| self.find(kind, now).status)
                .all(|status| status == Truth::True)
    }

    fn phase_of_failure(&self) -> Phase {
        let refused = matches!(self.fence, Some(Err(_)));
        let unsupported = matches!(self.link, Link::Down(Unlinked::Version, _));
        if refused || unsupported {
            Phase::Failed
        } else if self.was_ready {
            Phase::Degraded
        } else {
            Phase::Pending
        }
    }

    fn find(&self, kind: Kind, now: Moment) -> Finding {
        let down = self.down.values().find(|part| part.kind == kind);
        if let Some(part) = down {
            return failing(part.reason, part.message.clone(), now);
        }
        match kind {
            Kind::ConfinementVerified => self.find_fence(now),
            Kind::BoundaryLinked => self.find_link(now),
            Kind::ProxyServing if self.listening != Listening::default() => {
                failing("AcceptBackoff", held_back(self.listening), now)
            }
            Kind::ProxyServing if !self.unheard.ports.is_empty() => {
                failing(self.unheard.reason(), self.unheard.message(), now)
            }
            Kind::BrokerServing
            | Kind::ResolverServing
            | Kind::ProxyServing
            | Kind::ExecAdmitting => self.find_proof(kind, now),
            Kind::DescriptorsAvailable => self.find_descriptors(now),
            Kind::PolicyCurrent => self.find_policy(now),
        }
    }

    fn find_fence(&self, now: Moment) -> Finding {
        match &self.fence {
            Some(Ok(())) => holding("Proven", now),
            Some(Err(gap)) => failing("FenceUnproven", gap.clone(), now),
            None => self.beginning(now),
        }
    }

    /// Nothing has been heard of the boundary yet, and nothing is wrong with it.
    fn beginning(&self, now: Moment) -> Finding {
        // Before the proof nothing but a takeover has been Ready.
        if self.was_ready {
            let what = "a new keeper takes the sandbox over; the workload goes on";
            unknown("KeeperRestarting", what, now)
        } else {
            unknown("Starting", "the keeper builds the fence", now)
        }
    }

    fn find_link(&self, now: Moment) -> Finding {
        match &self.link {
            Link::Unreached => self.beginning(now),
            Link::Up { heard } if now.since(*heard) <= BEAT_AGE => holding("Linked", *heard),
            Link::Up { heard } => {
                let what = "the boundary has given no sign of life for too long; it is stopped or the host is busy";
                unknown("LinkLost", what, *heard)
            }
            Link::Down(how, why) => {
                let reason = match how {
                    Unlinked::Lost => "LinkLost",
                    Unlinked::Gone => "BoundaryLost",
                    Unlinked::Version => "VersionUnsupported",
                };
                failing(reason, why.clone(), now)
            }
        }
    }

    fn find_proof(&self, kind: Kind, now: Moment) -> Finding {
        let Some(proof) = &self.proofs[kind as usize] else {
            return unknown("CanaryStale", "no canary has come through yet", now);
        };
        let mended = self.back[kind as usize].max(self.whole.unwrap_or(Moment::ORIGIN));
        let is_older = proof.began < mended;
        if let Some(fallen) = self.fallen.as_ref().filter(|_| is_older) {
            let what = format!("{}; it is back, and a canary has to prove it", fallen.cause);
            return if fallen.kind == kind {
                failing("ActorRestarting", what, proof.ended)
            } else {
                unknown("ActorRestarting", &what, proof.ended)
            };
        }
        if let Some((reason, why)) = &proof.failed {
            return failing(reason, why.clone(), proof.ended);
        }
        if is_older {
            let what = "it was mended after the last canary; the next one has to prove it";
            return unknown("CanaryStale", what, proof.ended);
        }
        if now.since(proof.ended) > CANARY_AGE && self.is_pressed() {
            let what = "no canary is sent while descriptors are short";
            return unknown("DescriptorPressure", what, proof.ended);
        }
        if now.since(proof.ended) > CANARY_AGE {
            let what = "no canary has come through for too long; see the log of the keeper";
            return unknown("CanaryStale", what, proof.ended);
        }
        holding("CanaryPassed", proof.ended)
    }

    fn find_descriptors(&self, now: Moment) -> Finding {
        let Some((keeper, seen)) = self.keeper else {
            return unknown("SampleStale", "descriptors have not been counted yet", now);
        };
        if now.since(seen) > SAMPLE_AGE {
            let what = "descriptors have not been counted for too long; see the log of the keeper";
            return unknown("SampleStale", what, seen);
        }
        if keeper.host_full {
            let what = "the host's table of open files is full; raise fs.file-max or end what holds them (`/proc/sys/fs/file-nr`)";
            return failing("DescriptorPressure", what.to_owned(), seen);
        }
        if keeper.pressed {
            return failing("DescriptorPressure", pressed("keeper", keeper), seen);
        }
        if let Some(Short { since, message }) = self.short.iter().flatten().next() {
            return failing("DescriptorPressure", message.clone(), *since);
        }
        match self.boundary {
            Some((boundary, seen)) if boundary.pressed => {
                failing("DescriptorPressure", pressed("boundary", boundary), seen)
            }
            Some(_) | None => holding("Sufficient", seen),
        }
    }

    fn find_policy(&self, now: Moment) -> Finding {
        match &self.policy {
            None => unknown("PolicyPending", "no policy is in force yet", now),
            // One that was refused is not wanted any more.
            Some((desired, enforced, error)) if desired != enforced && !error.is_empty() => {
                let what = format!(
                    "revision {desired} is not in force, revision {enforced} still is: {error}"
                );
                failing("PolicyInvalid", what, now)
            }
            Some((desired, enforced, _)) if desired != enforced => {
                let what = format!("revision {desired} is being put in force after {enforced}");
                failing("PolicyPending", what, now)
            }
            Some(_) => holding("Current", now),
        }
    }
}

fn held_back(Listening { full, starved }: Listening) -> String {
    if starved > 0 {
        format!(
            "{starved} listeners wait for a descriptor or memory; their connections wait in the backlog"
        )
    } else {
        format!(
            "{full} listeners have as many connections as the descriptors bear; others wait until some end, or raise the limit of open files"
        )
    }
}

fn pressed(who: &str, Sample { limit, used, .. }: Sample) -> String {
    let free = limit.saturating_sub(used);
    format!(
        "the {who} has {free} of its {limit} descriptors left; raise its limit of open files or let connections end"
    )
}

fn holding(reason: &'static str, observed: Moment) -> Finding {
    Finding {
        status: Truth::True,
        reason,
        message: String::new(),
        observed,
    }
}

fn failing(reason: &'static str, message: String, observed: Moment) -> Finding {
    Finding {
        status: Truth::False,
        reason,
        message,
        observed,
    }
}

fn unknown(reason: &'static str, message: &str, observed: Moment) -> Finding {
    Finding {
        status: Truth::Unknown,
        reason,
        message: message.to_owned(),
        observed,
    }
}
