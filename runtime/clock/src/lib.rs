//! Time and chance as arguments.
