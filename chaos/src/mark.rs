//! Who is attacked: one sandbox by its id. A sandbox that is made anew under the same name is another one, and is left alone.

use std::time::Duration;

use holdfast_wire::v1;
use tokio::time::sleep;

use crate::gate::{Gate, Unanswered};

/// The sandbox that is attacked.
#[derive(Clone)]
pub(crate) struct Mark {
    gate: Gate,
    name: String,
    id: String,
}

impl Mark {
    pub(crate) fn new(gate: Gate, name: &str, id: &str) -> Self {
        Self {
            gate,
            name: name.to_owned(),
            id: id.to_owned(),
        }
    }

    /// Its status; or why there is none, or none of its own.
    pub(crate) async fn status(&self) -> Result<v1::Status, String> {
        let status = self.gate.status(&self.name, ANSWER).await;
        if let Some(why) = lost(&self.name, &self.id, &status) {
            return Err(why);
        }
        status.map_err(|why| format!("nobody tells its status: {why}"))
    }

    /// Waits until it is gone, whether or not another one has its name; answers what became of it.
    pub(crate) async fn gone(&self) -> String {
        // What is attacked has connections enough of its own to wait on.
        let gate = self.gate.apart();
        loop {
            let status = gate.status(&self.name, ANSWER).await;
            if let Some(why) = lost(&self.name, &self.id, &status) {
                return why;
            }
            sleep(EVERY).await;
        }
    }
}

/// Why the one with this id is not there any more; a gateway that does not answer says nothing of it.
fn lost(name: &str, id: &str, status: &Result<v1::Status, Unanswered>) -> Option<String> {
    match status {
        Ok(status) if status.id != id => Some(format!(
            "{name} was deleted and made anew: it was {id} and is {}",
            status.id
        )),
        Ok(status) if status.phase() == v1::Phase::Deleting => {
            Some(format!("{name} ({id}) is being deleted"))
        }
        Err(Unanswered::Refused { reason, .. }) if reason == "NoSuchSandbox" => {
            Some(format!("{name} ({id}) was deleted"))
        }
        Ok(_) | Err(Unanswered::Refused { .. } | Unanswered::Gone(_)) => None,
    }
}

const ANSWER: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_lost_when_it_is_deleted_or_another_has_its_name() {
        let of = |id: &str, phase: v1::Phase| {
            Ok(v1::Status {
                id: id.into(),
                phase: phase.into(),
                ..v1::Status::default()
            })
        };
        let refused = |reason: &str| {
            Err(Unanswered::Refused {
                reason: reason.into(),
                message: "no".into(),
                again: false,
            })
        };
        let why = |status| lost("qa", "one", &status);

        assert_eq!(why(of("one", v1::Phase::Ready)), None);
        assert_eq!(why(of("one", v1::Phase::Failed)), None);
        assert_eq!(why(refused("DescriptorPressure")), None);
        assert_eq!(why(Err(Unanswered::Gone("no answer".into()))), None);
        assert_eq!(
            why(of("two", v1::Phase::Ready)).as_deref(),
            Some("qa was deleted and made anew: it was one and is two")
        );
        assert_eq!(
            why(of("one", v1::Phase::Deleting)).as_deref(),
            Some("qa (one) is being deleted")
        );
        assert_eq!(
            why(refused("NoSuchSandbox")).as_deref(),
            Some("qa (one) was deleted")
        );
    }
}
