//! Decides what follows a death: supervision trees as values.
