//! How the values of messages are written: phases, conditions, states.

use holdfast_wire::v1::{ConditionType, Phase, Truth};

/// A phase.
pub(super) fn phase(phase: Phase) -> &'static str {
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
pub(super) fn condition(condition: ConditionType) -> &'static str {
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
pub(super) fn truth(truth: Truth) -> &'static str {
    match truth {
        Truth::Unknown => "Unknown",
        Truth::True => "True",
        Truth::False => "False",
    }
}

/// A reason and a message in one: `REASON: MESSAGE`, or the one there is.
pub(super) fn because(reason: &str, message: &str) -> String {
    match (reason, message) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// A program and its arguments on one line, as a shell would take it.
pub(super) fn command(arguments: &[Vec<u8>]) -> String {
    let words = arguments.iter().map(|argument| {
        let word = String::from_utf8_lossy(argument);
        let plain = |c: char| c.is_alphanumeric() || "_-./=:,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            // Control characters must not move the reader's cursor.
            format!(
                "'{}'",
                word.replace('\'', r"'\''")
                    .escape_debug()
                    .to_string()
                    .replace(r"\'", "'")
                    .replace("\\\"", "\"")
            )
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_as_a_shell_takes_it() {
        let words = ["sh", "-c", "echo \"a b\"", "x\n\x1b"].map(|word| word.as_bytes().to_vec());

        assert_eq!(command(&words), "sh -c 'echo \"a b\"' 'x\\n\\u{1b}'");
    }
}
