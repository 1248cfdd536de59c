//! A tree, as it is told to people.

use holdfast_clock::Clock;
use holdfast_supervision::{Strategy, View};
use holdfast_wire::v1;

/// A row for each member, in the order of the views. Dates are of the wall clock.
pub fn rows<'a>(views: impl IntoIterator<Item = &'a View>, clock: &Clock) -> Vec<v1::TreeRow> {
    let views = views.into_iter();
    views.map(|view| row(view, clock)).collect()
}

fn row(view: &View, clock: &Clock) -> v1::TreeRow {
    let strategy = view.strategy.map(Strategy::as_str);
    let reason = view.last.as_ref().map(ToString::to_string);
    v1::TreeRow {
        path: view.path.to_string(),
        strategy: strategy.unwrap_or_default().to_owned(),
        state: state(view.state).to_owned(),
        restarts: view.restarts.into(),
        last_reason: reason.unwrap_or_default(),
        next_ms: view.next.map_or(0, |next| clock.date_ms(next)),
    }
}

/// The supervision's word for how a member stands, in those of the wire.
fn state(word: &str) -> &'static str {
    match word {
        "up" => "Running",
        "idle" | "starting" => "Starting",
        "waiting" => "Waiting",
        "stopping" | "killing" => "Stopping",
        "lost" => "GivenUp",
        _ => "Stopped",
    }
}
