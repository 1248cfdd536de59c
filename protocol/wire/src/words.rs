//! How the values of messages are written, on every surface: phases, conditions, whether one holds.

use crate::v1::{ConditionType, Phase, Truth};

/// A phase.
pub fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Unspecified => "Unknown",
        Phase::Pending => "Pending",
        Phase::Ready => "Ready",
        Phase::Degraded => "Degraded",
        Phase::Failed => "Failed",
        Phase::Stopped => "Stopped",
        Phase::Deleting => "Deleting",
    }
}

/// A type of condition.
pub fn condition(condition: ConditionType) -> &'static str {
    match condition {
        ConditionType::Unspecified => "Unknown",
        ConditionType::ConfinementVerified => "ConfinementVerified",
        ConditionType::BoundaryLinked => "BoundaryLinked",
        ConditionType::BrokerServing => "BrokerServing",
        ConditionType::ResolverServing => "ResolverServing",
        ConditionType::ProxyServing => "ProxyServing",
        ConditionType::ExecAdmitting => "ExecAdmitting",
        ConditionType::DescriptorsAvailable => "DescriptorsAvailable",
        ConditionType::PolicyCurrent => "PolicyCurrent",
    }
}

/// Whether a condition holds.
pub fn truth(truth: Truth) -> &'static str {
    match truth {
        Truth::Unknown => "Unknown",
        Truth::True => "True",
        Truth::False => "False",
    }
}

/// A sentence without the numbers of errnos, which say the same once more.
pub fn unnumbered(message: &str) -> String {
    let mut plain = String::new();
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_number, after)| after);
    }
    plain + rest
}

/// The conditions, in the order in which they are told.
pub const CONDITIONS: [ConditionType; 8] = [
    ConditionType::ConfinementVerified,
    ConditionType::BoundaryLinked,
    ConditionType::BrokerServing,
    ConditionType::ResolverServing,
    ConditionType::ProxyServing,
    ConditionType::ExecAdmitting,
    ConditionType::DescriptorsAvailable,
    ConditionType::PolicyCurrent,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errnos_are_left_out() {
        assert_eq!(
            unnumbered("find x: no (os error 2), or so"),
            "find x: no, or so"
        );
        assert_eq!(unnumbered("a (os error"), "a (os error");
    }
}
