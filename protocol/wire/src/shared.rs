//! The two directories that a gateway shares with the keepers of one sandbox: what the files in them are called, and how a
//! keeper's process ends.

/// What a keeper is given: a `Spec`.
pub const SPEC: &str = "spec";

/// What a keeper said last: a `Status`.
pub const LAST: &str = "last";

/// Why a keeper could not keep: a `Problem`.
pub const FAILED: &str = "failed";

/// Where a keeper serves.
pub const KEEPER_SOCKET: &str = "keeper.sock";

/// Where a boundary is taken over.
pub const BOUNDARY_SOCKET: &str = "boundary.sock";

/// Which process the keeper is: `PID START`.
pub const KEEPER_PID: &str = "keeper.pid";

/// Which process the boundary is: `PID START`.
pub const BOUNDARY_PID: &str = "boundary.pid";

/// Where the names' addresses are kept.
pub const NAMES: &str = "names";

/// The logs, in the sandbox's state directory.
pub mod log {
    /// The keeper's.
    pub const KEEPER: &str = "keeper.log";
    /// The boundary's.
    pub const BOUNDARY: &str = "boundary.log";
    /// What the main process writes.
    pub const WORKLOAD: &str = "workload.log";
    /// The verdicts.
    pub const AUDIT: &str = "audit.jsonl";
}

/// The status that a keeper's process ends with.
pub mod exit {
    /// The sandbox is over: halted, or its main process has ended.
    pub const OVER: u8 = 0;
    /// The boundary is gone, and with it everything inside.
    pub const LOST: u8 = 3;
    /// The fence was refused: nothing was started.
    pub const REFUSED: u8 = 4;
    /// Another keeper holds the boundary.
    pub const FENCED: u8 = 5;
    /// A failure of its own; the sandbox goes on if it had begun.
    pub const BROKEN: u8 = 125;
}
