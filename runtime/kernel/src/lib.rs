//! The only unsafe code: safe, named wrappers of what Linux offers.
//!
//! A wrapper knows no policy. It does one thing, says which call failed, and each unsafe block holds one operation with
//! the argument why it is sound.

pub mod error;

pub use error::{Called, Error, Result};
