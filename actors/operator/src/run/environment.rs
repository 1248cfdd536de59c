//! The program's environment: PATH, HOME, USER, TERM, LANG and what `--env` gives. Nothing else is inherited.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use holdfast_policy::Account;
use nix::unistd::geteuid;

use crate::config::Config;
use crate::failure::{Failure, Kind};

/// Assembles the environment of a program. Of two `--env` for one name the later one counts.
pub(crate) fn assemble(
    config: &Config,
    given: &[OsString],
    person: &Person,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut variables = inherited(config, person);
    for (name, value) in self::given(config, given)? {
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
    }
    Ok(variables)
}

/// What `--env` gives, and nothing else. Of two for one name the later one counts.
pub(crate) fn given(
    config: &Config,
    given: &[OsString],
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    for text in given {
        let (name, value) = variable(config, text)?;
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
    }
    Ok(variables)
}

/// The `PATH` of a program for which `--env` gives none.
pub(crate) fn path(config: &Config) -> OsString {
    let callers = config.variable("PATH");
    callers.map_or_else(|| PATH.into(), OsStr::to_owned)
}

fn inherited(config: &Config, person: &Person) -> Vec<(OsString, OsString)> {
    let fallbacks = [
        ("PATH", Some(PATH.into())),
        ("HOME", Some(person.home.clone())),
        ("USER", Some(person.name.clone())),
        ("TERM", None),
        ("LANG", Some("C.UTF-8".into())),
    ];
    let chosen = fallbacks.into_iter().filter_map(|(name, fallback)| {
        // Another account has another home and another name than the caller's.
        let personal = name == "HOME" || name == "USER";
        let callers = config
            .variable(name)
            .filter(|_| !personal || person.is_caller);
        let value = callers.map(OsStr::to_owned).or(fallback)?;
        Some((name.into(), value))
    });
    chosen.collect()
}

/// `K=V`, or `K` for the caller's own value.
fn variable(config: &Config, text: &OsStr) -> Result<(OsString, OsString), Failure> {
    let bytes = text.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(place) => (&bytes[..place], Some(&bytes[place + 1..])),
        None => (bytes, None),
    };
    if name.is_empty() {
        let message = format!("read --env {}: the name is missing", text.display());
        return Err(Failure::new(Kind::Usage, message).hint("write --env NAME=VALUE"));
    }
    let name = OsString::from_vec(name.to_vec());
    let value = match value {
        Some(value) => OsString::from_vec(value.to_vec()),
        None => callers(config, &name)?,
    };
    Ok((name, value))
}

fn callers(config: &Config, name: &OsStr) -> Result<OsString, Failure> {
    let found = config.environment.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone()).ok_or_else(|| {
        let name = name.display();
        Failure::new(Kind::Usage, format!("pass on {name}: it is not set here"))
            .hint(format!("set it, or write --env {name}=VALUE"))
    })
}

/// Whom the program runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    name: OsString,
    home: OsString,
    is_caller: bool,
}

impl Person {
    /// The policy's user, or the caller. `accounts` is the text of an `/etc/passwd`.
    pub(crate) fn of(user: Option<&Account>, accounts: &str) -> Self {
        let caller = geteuid().as_raw().to_string();
        let (number, name) = match user {
            None => (Some(caller.clone()), None),
            Some(Account::Id(id)) => (Some(id.to_string()), None),
            Some(Account::Name(name)) => (None, Some(name.as_str())),
        };
        let known = accounts.lines().find_map(|line| {
            let entry = Entry::of(line)?;
            let found = Some(entry.uid) == number.as_deref() || Some(entry.name) == name;
            found.then_some(entry)
        });
        let fallback = name.map(str::to_owned).or(number).unwrap_or_default();
        match known {
            Some(entry) => Self {
                name: entry.name.into(),
                home: entry.home.into(),
                is_caller: entry.uid == caller,
            },
            None => Self {
                is_caller: fallback == caller,
                name: fallback.into(),
                home: "/".into(),
            },
        }
    }
}

/// `name:password:uid:gid:description:home:shell`
struct Entry<'a> {
    name: &'a str,
    uid: &'a str,
    home: &'a str,
}

impl<'a> Entry<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut fields = line.split(':');
        Some(Self {
            name: fields.next()?,
            uid: fields.nth(1)?,
            home: fields.nth(2)?,
        })
    }
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(variables: &[(&str, &str)]) -> Config {
        let own = |(name, value): &(&str, &str)| (name.into(), value.into());
        Config {
            arguments: Vec::new(),
            environment: variables.iter().map(own).collect(),
        }
    }

    fn me() -> Person {
        Person::of(None, "")
    }

    fn value<'a>(variables: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_os_str())
    }

    #[test]
    fn five_variables_are_inherited_and_no_other() {
        let config = caller(&[
            ("PATH", "/opt/bin"),
            ("HOME", "/home/a"),
            ("USER", "a"),
            ("TERM", "xterm"),
            ("LANG", "de_DE.UTF-8"),
            ("AWS_SECRET", "s"),
            ("LD_PRELOAD", "x.so"),
        ]);

        let mut variables = assemble(&config, &[], &me()).expect("assembles");

        variables.sort();
        let names: Vec<_> = variables.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["HOME", "LANG", "PATH", "TERM", "USER"]);
        assert_eq!(value(&variables, "PATH"), Some(OsStr::new("/opt/bin")));
    }

    #[test]
    fn what_the_caller_lacks_has_a_fallback_but_a_terminal_is_not_invented() {
        let variables = assemble(&caller(&[]), &[], &me()).expect("assembles");

        assert_eq!(value(&variables, "PATH"), Some(OsStr::new(PATH)));
        assert_eq!(value(&variables, "LANG"), Some(OsStr::new("C.UTF-8")));
        assert_eq!(value(&variables, "TERM"), None);
        assert!(value(&variables, "HOME").is_some());
    }

    #[test]
    fn another_account_does_not_get_the_callers_home() {
        let config = caller(&[("HOME", "/home/a"), ("USER", "a")]);

        let variables = assemble(
            &config,
            &[],
            &Person::of(Some(&Account::Id(4_000_000_000)), ""),
        )
        .expect("assembles");

        assert_eq!(value(&variables, "HOME"), Some(OsStr::new("/")));
        assert_eq!(value(&variables, "USER"), Some(OsStr::new("4000000000")));
    }

    #[test]
    fn given_variables_win_and_the_later_one_counts() {
        let config = caller(&[("KEY", "callers"), ("LANG", "C")]);
        let given = ["LANG=x", "A=1", "A=2=3", "KEY", "EMPTY="].map(OsString::from);

        let variables = assemble(&config, &given, &me()).expect("assembles");

        assert_eq!(value(&variables, "LANG"), Some(OsStr::new("x")));
        assert_eq!(value(&variables, "A"), Some(OsStr::new("2=3")));
        assert_eq!(value(&variables, "KEY"), Some(OsStr::new("callers")));
        assert_eq!(value(&variables, "EMPTY"), Some(OsStr::new("")));
        let count = variables.iter().filter(|(name, _)| name == "A").count();
        assert_eq!(count, 1);
    }

    #[test]
    fn a_variable_that_is_not_set_or_has_no_name_is_wrong_usage() {
        for text in ["NOSUCH", "=x", ""] {
            let failure = assemble(&caller(&[]), &[text.into()], &me()).expect_err(text);
            assert_eq!(failure.kind(), Kind::Usage, "{text}");
        }
    }

    #[test]
    fn a_person_is_found_by_number_or_by_name() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nagent:x:1500:1500::/home/agent:/bin/sh\n";

        let by_number = Person::of(Some(&Account::Id(1500)), accounts);
        let by_name = Person::of(Some(&Account::Name("agent".into())), accounts);
        let stranger = Person::of(Some(&Account::Name("nobody".into())), accounts);

        assert_eq!(by_number, by_name);
        assert_eq!(
            (&*by_name.name, &*by_name.home),
            ("agent".as_ref(), "/home/agent".as_ref())
        );
        assert_eq!(
            (&*stranger.name, &*stranger.home),
            ("nobody".as_ref(), "/".as_ref())
        );
    }
}
