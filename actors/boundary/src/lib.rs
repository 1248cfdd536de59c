//! The half of a sandbox inside the fence.
