//! What can be seen: audit records, races, logs.
