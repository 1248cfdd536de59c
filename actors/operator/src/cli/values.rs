//! The values of the command line: names and durations.

use std::time::Duration;

use holdfast_observability::Decision;
use nix::sys::signal::Signal;

/// A sandbox's name.
pub(super) fn name(text: &str) -> Result<String, String> {
    holdfast_wire::name::check(text).map_err(|why| why.to_string())?;
    Ok(text.to_owned())
}

/// A session's number.
pub(super) fn session(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_malformed| {
        "a session is a number; `holdfast sessions NAME` lists them".to_owned()
    })
}

/// A port to connect to.
pub(super) fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a port is a number from 1 to 65535".into()),
        Ok(port) => Ok(port),
    }
}

/// A place in a session's output.
pub(super) fn offset(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_malformed| "an offset is a number of bytes, from 0 on".to_owned())
}

/// A decision's id.
pub(super) fn decision(text: &str) -> Result<String, String> {
    let parsed: Result<Decision, _> = text.parse();
    parsed.map(|decision| decision.to_string()).map_err(|_malformed| {
        "an id is 26 characters of 0-9 and A-Z without I, L, O and U, as denials and audit records have it"
            .to_owned()
    })
}

/// A duration with its unit: `500ms`, `30s`, `5m`, `2h`. Longer than zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        return Err("expected a whole number and a unit: 500ms, 30s, 5m, 2h".into());
    }
    let number: u64 = number.parse().map_err(|_too_large| "too long".to_owned())?;
    let milliseconds = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "" => return Err(format!("say the unit: {number}s, {number}m or {number}ms")),
        _ => return Err(format!("{unit:?} is no unit: use ms, s, m or h")),
    };
    match milliseconds {
        Some(0) => Err("must be longer than zero".into()),
        Some(milliseconds) if milliseconds <= LONGEST => Ok(Duration::from_millis(milliseconds)),
        Some(_) | None => Err("too long: at most ten years".into()),
    }
}

/// `KEY=VALUE` of a label. The key is not empty.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) | None => Err("a label is written KEY=VALUE".into()),
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
    }
}

/// A signal by its name, with or without SIG, or by its number.
pub(super) fn signal(text: &str) -> Result<i32, String> {
    if let Ok(number) = text.parse::<i32>() {
        let known = (1..=LAST_SIGNAL).contains(&number);
        return known
            .then_some(number)
            .ok_or_else(|| format!("signals are numbered 1 to {LAST_SIGNAL}"));
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") {
        name
    } else {
        format!("SIG{name}")
    };
    let found: Result<Signal, _> = name.parse();
    found
        .map(|signal| signal as i32)
        .map_err(|_unknown| format!("{text:?} is no signal: write TERM, SIGTERM or 15"))
}

/// `LOCAL:REMOTE`, two ports; LOCAL may be 0 for any that is free.
pub(super) fn ports(text: &str) -> Result<(u16, u16), String> {
    let wrong = || "two ports are written LOCAL:REMOTE, as 8080:80".to_owned();
    let (local, remote) = text.split_once(':').ok_or_else(wrong)?;
    match (local.parse(), remote.parse()) {
        (Ok(local), Ok(remote)) if remote > 0 => Ok((local, remote)),
        _ => Err(wrong()),
    }
}

/// The last real-time signal.
const LAST_SIGNAL: i32 = 64;

/// Ten years: beyond it somebody has mistyped, and timers have limits too.
const LONGEST: u64 = 10 * 366 * 24 * 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(duration("2h"), Ok(Duration::from_hours(2)));
    }

    #[test]
    fn a_wrong_duration_says_how_to_write_it() {
        let error = |text| duration(text).expect_err("is wrong");

        assert_eq!(error("30"), "say the unit: 30s, 30m or 30ms");
        assert_eq!(error("3x"), "\"x\" is no unit: use ms, s, m or h");
        assert_eq!(error("0s"), "must be longer than zero");
        assert_eq!(error("99999999999h"), "too long: at most ten years");
        assert_eq!(error("99999999999999999999s"), "too long");
        for text in ["", "s", "-1s", "1.5s", "é"] {
            assert!(error(text).starts_with("expected a whole number") || text == "1.5s");
        }
    }

    #[test]
    fn ports_and_offsets_say_what_they_are() {
        assert_eq!(port("65535"), Ok(65535));
        for text in ["0", "65536", "-1", "x", ""] {
            let told = port(text).expect_err("is none");
            assert_eq!(told, "a port is a number from 1 to 65535");
        }
        assert_eq!(offset("0"), Ok(0));
        for text in ["-1", "x", ""] {
            let told = offset(text).expect_err("is none");
            assert_eq!(told, "an offset is a number of bytes, from 0 on");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(signal(text), Ok(15), "{text}");
        }
        assert_eq!(signal("64"), Ok(64));
        for text in ["", "0", "65", "-9", "NOSUCH"] {
            assert!(signal(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_session_is_a_number_and_a_decision_has_an_id() {
        assert_eq!(session("7"), Ok(7));
        for text in ["", "abc", "-1", "1.5"] {
            let wrong = session(text).expect_err("is none");
            assert!(wrong.contains("`holdfast sessions NAME`"), "{wrong}");
        }
        let id = "01J9ZQ3V5W8X7Y6T4S2R1P0N9M";
        assert_eq!(decision(&id.to_lowercase()).as_deref(), Ok(id));
        for text in ["", "nosuch", &id[1..]] {
            assert!(decision(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn labels_and_ports_are_pairs() {
        assert_eq!(label("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(label("a="), Ok(("a".into(), String::new())));
        assert!(label("a").is_err() && label("=b").is_err());
        assert_eq!(ports("0:80"), Ok((0, 80)));
        for text in ["80", "a:b", "1:0", "1:70000", ""] {
            assert!(ports(text).is_err(), "{text} was taken");
        }
    }
}
