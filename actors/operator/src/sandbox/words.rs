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
        } else if word.chars().all(shows) {
            format!("'{}'", word.replace('\'', r"'\''"))
        } else {
            let inside: String = word.chars().map(told).collect();
            format!("$'{inside}'")
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Is `c` seen as itself? What is not could move the reader's cursor, or turn the line around.
fn shows(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().count() == 1
}

/// `c` within `$'…'`.
fn told(c: char) -> String {
    match c {
        '\'' | '\\' => format!("\\{c}"),
        '\n' => r"\n".to_owned(),
        '\t' => r"\t".to_owned(),
        c if shows(c) => c.to_string(),
        c => format!(r"\U{:08x}", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_written_as_a_shell_takes_it() {
        for (word, expected) in [
            ("sh", "sh"),
            ("", "''"),
            ("echo \"a b\"", "'echo \"a b\"'"),
            ("it's", r"'it'\''s'"),
            (r"a\b", r"'a\b'"),
            ("x\n\x1b\u{202e}", r"$'x\n\U0000001b\U0000202e'"),
            ("it's\n", r"$'it\'s\n'"),
        ] {
            assert_eq!(command(&[word.as_bytes().to_vec()]), expected);
        }
        let words = ["printf", "a b"].map(|word| word.as_bytes().to_vec());
        assert_eq!(command(&words), "printf 'a b'");
    }

    #[test]
    fn a_shell_takes_it_for_the_same_words() {
        for word in ["it's", "x\n\x1b\t", "\u{202e}", r"a\'b\\", "$HOME `id`"] {
            let line = command(&["printf".into(), "%s".into(), word.into()]);

            let said = std::process::Command::new("bash")
                .args(["-c", &line])
                .output();

            assert_eq!(said.expect("bash runs").stdout, word.as_bytes(), "{line}");
        }
    }
}
