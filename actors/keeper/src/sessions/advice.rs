//! What to do about a program that is not found or cannot be executed.

/// The advice for the step and the errno with which a start failed; `None` where there is nothing to advise. `message` tells a program
/// that names an interpreter which is not there from one that is none.
pub(crate) fn advice(step: &str, errno: i32, message: &str) -> Option<&'static str> {
    if !matches!(step, "find" | "execute") {
        return None;
    }
    match errno {
        libc::ENOENT => {
            Some("it has to be in the sandbox's view (filesystem_policy) and on its PATH")
        }
        libc::EACCES => {
            Some("it must be executable for the sandbox's user, and its path in the view")
        }
        libc::ENOEXEC if message.contains("interpreter") => Some(
            "what its first line (`#!`) or its header names has to be in the sandbox's view, too (filesystem_policy)",
        ),
        libc::ENOEXEC => Some(
            "a script begins with its interpreter, such as `#!/bin/sh`; a program has to be made for this machine and be whole",
        ),
        libc::ELOOP => Some(
            "check its path and its first line: links, or scripts that execute each other, lead in a circle",
        ),
        libc::ENOTDIR => Some("check its path: a part of it before the last `/` is a file"),
        libc::ENAMETOOLONG => {
            Some("check its path: a part of it has 255 bytes at most, the whole 4095")
        }
        libc::E2BIG => {
            Some("pass less as arguments and environment: a file or its input can hold more")
        }
        libc::ETXTBSY => Some("somebody has it open for writing: try again when it is written"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_that_is_missing_is_told_from_a_file_that_is_no_program() {
        let told = |message| advice("execute", libc::ENOEXEC, message).expect("is told");

        assert!(told("/x: the interpreter it names is not there").contains("view"));
        assert!(told("execve: Exec format error").contains("`#!/bin/sh`"));
    }

    #[test]
    fn other_steps_are_none_of_the_programs() {
        assert_eq!(advice("enter its directory", libc::ENOENT, ""), None);
    }
}
