//! Pure: faults that can be injected on purpose, for demonstrations and tests.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Kind of fault. Services on the engine know the kinds declared here; other programs may add their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultKind {
    /// Name in commands and in the API, e.g. `fail_transiently`.
    pub name: &'static str,
    /// Effect of the fault, as shown in help texts.
    pub effect: &'static str,
    /// True if the fault must have a delay. Other kinds must have none.
    pub needs_delay: bool,
    /// True if the fault may be limited to one step.
    pub takes_step: bool,
    /// True if the fault ends the process, and ends with it.
    pub is_deadly: bool,
}

impl FaultKind {
    /// Attempts of a step fail with a transient error.
    pub const FAIL_TRANSIENTLY: Self =
        Self::new("fail_transiently", "attempts of the step fail with a transient error; --step").of_a_step();
    /// Attempts of a step fail with a permanent error.
    pub const FAIL_PERMANENTLY: Self = Self::new(
        "fail_permanently",
        "attempts of the step fail for good: the message is dead-lettered; --step",
    )
    .of_a_step();
    /// Attempts of a step take longer.
    pub const DELAY: Self =
        Self::new("delay", "attempts of the step take --delay longer; --step").of_a_step().with_delay();
    /// Messages reach the broker twice, and broker deduplication does not notice.
    pub const PUBLISH_TWICE: Self =
        Self::new("publish_twice", "messages reach the broker twice, without deduplication");
    /// Garbage is published beside real messages.
    pub const PUBLISH_GARBAGE: Self =
        Self::new("publish_garbage", "garbage is published beside real messages");
    /// The process ends after a commit, before it acknowledges.
    pub const CRASH_BEFORE_ACK: Self =
        Self::new("crash_before_ack", "the process ends after a commit, before the acknowledgement").deadly();
    /// The process ends after a publish, before it settles the outbox entry.
    pub const CRASH_AFTER_PUBLISH: Self = Self::new(
        "crash_after_publish",
        "the process ends after a publish, before it settles the outbox entry",
    )
    .deadly();
    /// The process ends before it commits a message. The fault strikes the same message again after the restart.
    pub const CRASH: Self =
        Self::new("crash", "the process ends before it commits a message, each time the same; --step")
            .of_a_step();
    /// The step pulls no messages.
    pub const PAUSE: Self = Self::new("pause", "the step pulls no messages; --step").of_a_step();

    /// Kinds that a service on the broker supports.
    pub const OF_A_SERVICE: [Self; 9] = [
        Self::FAIL_TRANSIENTLY,
        Self::FAIL_PERMANENTLY,
        Self::DELAY,
        Self::PUBLISH_TWICE,
        Self::PUBLISH_GARBAGE,
        Self::CRASH_BEFORE_ACK,
        Self::CRASH_AFTER_PUBLISH,
        Self::CRASH,
        Self::PAUSE,
    ];

    /// Creates a kind that takes neither a delay nor a step.
    #[must_use]
    pub const fn new(name: &'static str, effect: &'static str) -> Self {
        Self { name, effect, needs_delay: false, takes_step: false, is_deadly: false }
    }

    /// Requires a delay for faults of this kind.
    #[must_use]
    pub const fn with_delay(self) -> Self {
        Self { needs_delay: true, ..self }
    }

    const fn of_a_step(self) -> Self {
        Self { takes_step: true, ..self }
    }

    const fn deadly(self) -> Self {
        Self { is_deadly: true, ..self }
    }
}

/// Fault that an operator asks to inject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewFault {
    /// Name of its [`FaultKind`], e.g. `delay`.
    #[cfg_attr(feature = "openapi", schema(example = "fail_transiently"))]
    pub kind: String,
    /// Step to strike; all steps of the service without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Percentage of occasions on which the fault strikes, 1 to 100; 100 without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<u8>,
    /// Maximum number of strikes in each process, after which the fault ends; unlimited without it. Of `crash`, in all
    /// processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// Time after which the fault ends, in seconds, 1 to 86400; unlimited without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u32>,
    /// Delay in milliseconds, for kinds that need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Seed of the random numbers of all faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl NewFault {
    /// Creates a fault of this kind that strikes always, in all steps and for ever.
    #[must_use]
    pub fn of(kind: FaultKind) -> Self {
        Self {
            kind: kind.name.to_owned(),
            step: None,
            probability: None,
            next: None,
            for_seconds: None,
            delay_ms: None,
            seed: None,
        }
    }
}

/// Fault that is active in a service, with its strikes so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActiveFault {
    /// Number of the fault in this service.
    pub id: u64,
    /// Name of its [`FaultKind`], e.g. `delay`.
    pub kind: String,
    /// Step to strike; all steps if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Percentage of occasions on which the fault strikes.
    pub probability: u8,
    /// Strikes left; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// Time at which the fault ends; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Delay in milliseconds, for kinds that need one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Number of strikes in this process.
    pub hits: u64,
    /// Message that `crash` strikes; the next one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Uuid>,
}

impl ActiveFault {
    /// Activates a fault, without strikes so far.
    #[must_use]
    pub fn of(id: u64, new: NewFault) -> Self {
        Self {
            id,
            kind: new.kind,
            step: new.step,
            probability: new.probability.unwrap_or(100),
            next: new.next,
            until: None,
            delay_ms: new.delay_ms,
            hits: 0,
            message: None,
        }
    }
}

/// Faults of a service, as one of its processes reports them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FaultsView {
    /// True if faults may be injected.
    pub enabled: bool,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Faults that are active, in the order of their numbers.
    pub faults: Vec<ActiveFault>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_by_messages_are_deadly_and_pauses_are_not() {
        let kinds = [FaultKind::CRASH_BEFORE_ACK, FaultKind::CRASH_AFTER_PUBLISH, FaultKind::PAUSE];
        assert_eq!(kinds.map(|kind| kind.is_deadly), [true, true, false]);
    }
}
