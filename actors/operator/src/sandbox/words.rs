//! How the values of messages are written for people.

pub(super) use holdfast_wire::words::{condition, phase, truth};

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
