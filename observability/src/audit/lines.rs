//! What the lines of a trail look like.

use std::time::SystemTime;

use serde::Serialize;

use crate::record::written;

/// Appends one line.
pub(super) fn say(text: &mut Vec<u8>, line: &impl Serialize) {
    let before = text.len();
    // Strings and numbers in memory: this cannot fail, and a half-written line must not stay if it does.
    if serde_json::to_writer(&mut *text, line).is_err() {
        text.truncate(before);
    } else {
        text.push(b'\n');
    }
}

/// Appends the line that stands for `count` lines that are missing.
pub(super) fn say_missing(text: &mut Vec<u8>, count: u64) {
    if count > 0 {
        say(text, &Gap::new(count));
    }
}

#[derive(Serialize)]
struct Gap {
    time: String,
    class_uid: u32,
    class_name: &'static str,
    activity: &'static str,
    count: u64,
}

impl Gap {
    fn new(count: u64) -> Self {
        Self {
            time: written(SystemTime::now()),
            class_uid: 0,
            class_name: "Base Event",
            activity: "records_lost",
            count,
        }
    }
}
