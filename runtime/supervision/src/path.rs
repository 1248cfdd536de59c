//! Which child, and which life of it.

use std::fmt;
use std::sync::Arc;

/// Where a child or supervisor stands: the ids from the root down, joined by `/` (`keeper/outside/uplink`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Arc<str>);

impl Path {
    /// The path that is written so.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The path of a child of this supervisor.
    #[must_use]
    pub fn join(&self, id: &str) -> Self {
        Self(format!("{}/{id}", self.0).into())
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last id in it.
    pub fn id(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Whether this is the other path or stands above it.
    pub fn covers(&self, other: &Self) -> bool {
        other
            .0
            .strip_prefix(&*self.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl From<&str> for Path {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// One life of one child. Never given twice in a tree, so that news of a past life cannot be taken for the
/// present one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_covers_itself_and_what_is_below_but_no_namesake() {
        let outside = Path::new("keeper/outside");
        assert!(outside.covers(&outside));
        assert!(outside.covers(&outside.join("uplink")));
        assert!(!outside.covers(&Path::new("keeper/outsider")));
        assert!(!outside.covers(&Path::new("keeper")));
        assert_eq!(outside.join("uplink").id(), "uplink");
    }
}
