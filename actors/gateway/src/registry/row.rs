//! What is on disk of one sandbox.

use holdfast_wire::v1;

/// One sandbox. New fields get new tags; a field that is gone leaves its tag unused.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Row {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    /// As it was asked for, but for its policy: that is its first revision.
    #[prost(message, optional, tag = "2")]
    pub(crate) request: Option<v1::CreateRequest>,
    /// 0 until the first one begins.
    #[prost(uint64, tag = "3")]
    pub(crate) generation: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) epoch: u64,
    #[prost(enumeration = "Kind", tag = "5")]
    pub(crate) stage: i32,
    /// What follows an ending.
    #[prost(enumeration = "After", tag = "6")]
    pub(crate) after: i32,
    #[prost(string, tag = "7")]
    pub(crate) reason: String,
    #[prost(string, tag = "8")]
    pub(crate) message: String,
    #[prost(int64, tag = "9")]
    pub(crate) since_ms: i64,
    /// Generations that the restart policy began.
    #[prost(uint64, tag = "10")]
    pub(crate) restarts: u64,
    /// Keepers that replaced another one.
    #[prost(uint64, tag = "11")]
    pub(crate) keepers: u64,
    #[prost(message, optional, tag = "12")]
    pub(crate) keeper: Option<Process>,
    #[prost(message, optional, tag = "13")]
    pub(crate) boundary: Option<Process>,
    /// How the last main process ended.
    #[prost(message, optional, tag = "14")]
    pub(crate) main: Option<v1::Ending>,
    /// The revision that is wanted.
    #[prost(uint64, tag = "15")]
    pub(crate) policy: u64,
    #[prost(int64, tag = "16")]
    pub(crate) created_ms: i64,
    /// The launch token of this generation.
    #[prost(bytes = "vec", tag = "17")]
    pub(crate) token: Vec<u8>,
    /// Since which start of the host its processes live.
    #[prost(string, tag = "18")]
    pub(crate) boot: String,
}

/// A process, named so that no other one of the same start of the host can be taken for it.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Process {
    #[prost(uint32, tag = "1")]
    pub(crate) pid: u32,
    /// Field 22 of `/proc/PID/stat`.
    #[prost(uint64, tag = "2")]
    pub(crate) start: u64,
}

/// The stage of a life, as far as the next gateway needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Kind {
    /// No generation runs; the next one begins.
    Pending = 0,
    /// A generation runs, however its keeper is doing.
    Running = 1,
    /// A generation is being ended.
    Ending = 2,
    Stopped = 3,
    Failed = 4,
}

/// What follows the end of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum After {
    Stop = 0,
    Fail = 1,
    Begin = 2,
    Delete = 3,
}

/// One revision of a sandbox's policy.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Revision {
    #[prost(string, tag = "1")]
    pub(crate) yaml: String,
    /// What messages call the document.
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

impl Row {
    /// What was asked for.
    pub(crate) fn request(&self) -> v1::CreateRequest {
        self.request.clone().unwrap_or_default()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.request.as_ref().map_or("", |request| &request.name)
    }
}
