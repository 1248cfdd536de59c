//! Who watches what happens in a tree.

use holdfast_supervision::Change;

/// Hears of each change in a tree before anything else follows from it.
///
/// Called from the warden: it must not block, and what it sends it sends without waiting. A closure will do.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, change: &Change);
}

impl<F: Fn(&Change) + Send + Sync + 'static> Observer for F {
    fn observe(&self, change: &Change) {
        self(change);
    }
}
