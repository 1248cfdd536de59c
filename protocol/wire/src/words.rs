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
