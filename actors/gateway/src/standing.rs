//! How a sandbox stands: what its keeper last said, and what the gateway knows better. The one evaluation behind every
//! surface.

use holdfast_wire::v1;

use crate::registry::row::Row;

/// The status for all surfaces.
pub(crate) fn status(row: &Row, last: Option<&v1::Status>) -> v1::Status {
    let mut status = last.cloned().unwrap_or_default();
    let request = row.request();
    status.name = request.name;
    status.id.clone_from(&row.id);
    status.generation = row.generation;
    status.labels = request.labels;
    status.created_ms = row.created_ms;
    if last.is_none() {
        status.phase = v1::Phase::Pending.into();
        status.reason = "Created".to_owned();
        status.message = "it has not started yet".to_owned();
        status.since_ms = row.since_ms;
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
    }
    status
}
