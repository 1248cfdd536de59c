//! Moments and spans, as they are written: RFC 3339 with milliseconds, and `42s`, `5m`, `3h`.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Milliseconds since 1970. Wire times are of the host's clock, and so is this.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// `2026-11-29T12:00:00.000Z`; `None` for 0, which is never.
pub(crate) fn rfc3339(ms: i64) -> Option<String> {
    if ms == 0 {
        return None;
    }
    let moment = Timestamp::from_millisecond(ms).ok()?;
    Some(moment.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// How long ago that was; `-` for never.
pub(crate) fn age(ms: i64, now_ms: i64) -> String {
    if ms == 0 {
        return "-".to_owned();
    }
    span(u64::try_from(now_ms.saturating_sub(ms)).unwrap_or(0))
}

/// A span in the largest unit that leaves a number of some size.
pub(crate) fn span(ms: u64) -> String {
    match ms / 1000 {
        seconds if seconds < 120 => format!("{seconds}s"),
        seconds if seconds < 120 * 60 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_milliseconds_and_never_is_none() {
        let noon = 1_795_953_600_007;

        assert_eq!(rfc3339(noon).as_deref(), Some("2026-11-29T12:00:00.007Z"));
        assert_eq!(rfc3339(0), None);
    }

    #[test]
    fn a_span_has_one_unit() {
        assert_eq!(age(1_000, 43_900), "42s");
        assert_eq!(age(2_000, 1_000), "0s");
        assert_eq!(age(0, 1_000), "-");
        assert_eq!(span(300_000), "5m");
        assert_eq!(span(3 * 3_600_000), "3h");
    }
}
