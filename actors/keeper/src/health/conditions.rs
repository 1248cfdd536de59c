//! The eight conditions and what they come to.

use holdfast_actor::Moment;
use holdfast_wire::v1;

/// A condition of readiness, in the order of the contract: the first that fails gives the phase its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the contract's own words")]
pub enum Kind {
    ConfinementVerified,
    BoundaryLinked,
    BrokerServing,
    ResolverServing,
    ProxyServing,
    ExecAdmitting,
    DescriptorsAvailable,
    PolicyCurrent,
}

/// What is known of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody knows, or what was known is too old.
    Unknown,
}

/// One condition at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which.
    pub kind: Kind,
    /// How it stands.
    pub status: Truth,
    /// One CamelCase word.
    pub reason: &'static str,
    /// One sentence to act on; empty while it holds.
    pub message: String,
    /// Since when it stands so.
    pub since: Moment,
    /// When it was seen last.
    pub observed: Moment,
}

/// What the conditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has never been Ready.
    Pending,
    /// Every condition is True and fresh.
    Ready,
    /// It was Ready and will be: the workload lives, healing is under way.
    Degraded,
    /// It was given up.
    Failed,
    /// It has ended as it was asked to.
    Stopped,
}

/// How a sandbox stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The phase.
    pub phase: Phase,
    /// Why it is not Ready; empty if it is.
    pub reason: &'static str,
    /// The same as a sentence.
    pub message: String,
    /// Since when it is in this phase.
    pub since: Moment,
    /// In the order of [`Kind`].
    pub conditions: [Condition; Kind::ALL.len()],
}

impl Kind {
    /// All of them, in their order.
    pub const ALL: [Self; 8] = [
        Self::ConfinementVerified,
        Self::BoundaryLinked,
        Self::BrokerServing,
        Self::ResolverServing,
        Self::ProxyServing,
        Self::ExecAdmitting,
        Self::DescriptorsAvailable,
        Self::PolicyCurrent,
    ];

    /// Those that a canary meets, in the order in which it does.
    pub const WAY: [Self; 4] = [
        Self::ExecAdmitting,
        Self::ResolverServing,
        Self::BrokerServing,
        Self::ProxyServing,
    ];
}

impl Report {
    /// Nothing is known.
    pub(super) fn unknown(now: Moment) -> Self {
        Self {
            phase: Phase::Pending,
            reason: "",
            message: String::new(),
            since: now,
            conditions: Kind::ALL.map(|kind| Condition {
                kind,
                status: Truth::Unknown,
                reason: "",
                message: String::new(),
                since: now,
                observed: now,
            }),
        }
    }

    /// Whether those who watch should hear of it: a later observation of the same is no news.
    pub(super) fn differs_from(&self, before: &Self) -> bool {
        let told = |condition: &Condition| (condition.status, condition.reason);
        self.phase != before.phase
            || self.reason != before.reason
            || !self
                .conditions
                .iter()
                .map(told)
                .eq(before.conditions.iter().map(told))
    }
}

impl From<Kind> for v1::ConditionType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::ConfinementVerified => Self::ConfinementVerified,
            Kind::BoundaryLinked => Self::BoundaryLinked,
            Kind::BrokerServing => Self::BrokerServing,
            Kind::ResolverServing => Self::ResolverServing,
            Kind::ProxyServing => Self::ProxyServing,
            Kind::ExecAdmitting => Self::ExecAdmitting,
            Kind::DescriptorsAvailable => Self::DescriptorsAvailable,
            Kind::PolicyCurrent => Self::PolicyCurrent,
        }
    }
}

impl From<Truth> for v1::Truth {
    fn from(truth: Truth) -> Self {
        match truth {
            Truth::True => Self::True,
            Truth::False => Self::False,
            Truth::Unknown => Self::Unknown,
        }
    }
}

impl From<Phase> for v1::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Pending => Self::Pending,
            Phase::Ready => Self::Ready,
            Phase::Degraded => Self::Degraded,
            Phase::Failed => Self::Failed,
            Phase::Stopped => Self::Stopped,
        }
    }
}
