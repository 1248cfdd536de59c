//! Durations and words with slips in them.

use std::time::Duration;

use serde_saphyr::Spanned;

use super::{Complaint, complain};

/// "500ms", "30s", "5m", "2h".
pub(super) fn duration(written: &Spanned<String>) -> Result<Duration, Complaint> {
    span(&written.value).ok_or_else(|| {
        let message = format!("`{}` is no duration", written.value);
        complain(
            written.referenced,
            message,
            Some("write `500ms`, `30s` or `5m`".into()),
        )
    })
}

/// A duration as the command line and scenarios write it.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let count: u64 = count.parse().ok()?;
    let millis = match unit {
        "ms" => count,
        "s" => count.checked_mul(1_000)?,
        "m" => count.checked_mul(60_000)?,
        "h" => count.checked_mul(3_600_000)?,
        _ => return None,
    };
    (millis <= LONGEST).then(|| Duration::from_millis(millis))
}

/// The one of `known` that was probably meant.
pub(crate) fn nearest<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let written = written.to_lowercase().replace('_', "-");
    // A third of the letters may be wrong: more is another word.
    let bound = (written.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|known| {
            (
                strsim::osa_distance(&written, &known.replace('_', "-")),
                known,
            )
        })
        .filter(|(slips, _)| *slips <= bound)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, known)| known)
}

/// A week.
const LONGEST: u64 = 7 * 24 * 3_600_000;
