//! The status page: a table for people, without a script.

use std::fmt::Write as _;

use holdfast_wire::{v1, words};

/// All sandboxes as one page.
pub(super) fn page(statuses: &[impl AsRef<v1::Status>]) -> String {
    let mut rows = String::new();
    for status in statuses {
        let status = status.as_ref();
        let phase = words::phase(status.phase());
        let _infallible = writeln!(
            rows,
            "<tr class=\"{phase}\"><td>{}<td>{phase}<td>{}<td>{}<td>{}<td>{}",
            escaped(&status.name),
            escaped(&status.reason),
            escaped(&status.message),
            status.generation,
            status
                .sessions
                .as_ref()
                .map_or(0, |sessions| sessions.running),
        );
    }
    format!(
        "<!doctype html><meta charset=utf-8><title>Holdfast</title>\
         <style>body{{font:14px sans-serif;margin:2em}}td,th{{text-align:left;padding:.2em 1em .2em 0}}\
         .Ready td:nth-child(2){{color:#080}}.Degraded td:nth-child(2){{color:#b60}}\
         .Failed td:nth-child(2){{color:#b00}}</style>\
         <h1>Holdfast {}</h1><p>Gateway {} · <a href=/readyz>readyz</a> · <a href=/metrics>metrics</a>\
         <table><tr><th>Sandbox<th>Phase<th>Reason<th>Message<th>Generation<th>Sessions\n{rows}</table>\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn words_of_others_are_no_markup() {
        let status = v1::Status {
            name: "qa".to_owned(),
            message: "<script>".to_owned(),
            ..v1::Status::default()
        };

        let page = page(&[Arc::new(status)]);

        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
    }
}
