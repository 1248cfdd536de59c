//! The only unsafe code: safe, named wrappers of what Linux offers.
