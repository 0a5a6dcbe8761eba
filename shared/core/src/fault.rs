//! Pure: faults that may be injected on purpose, for demonstrations and tests.

use serde::{Deserialize, Serialize};

/// A kind of fault. A service on the engine knows those that are here; what stands outside may have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultKind {
    /// As operators write it, e.g. `fail_transiently`.
    pub name: &'static str,
    /// What happens, for those who choose.
    pub effect: &'static str,
    /// Whether it must be said how long it takes; of any other kind that must not be said.
    pub needs_delay: bool,
    /// Whether it may strike one step alone.
    pub takes_step: bool,
    /// Whether the process dies of it.
    pub is_deadly: bool,
}

impl FaultKind {
    /// A step's try fails, and may work later.
    pub const FAIL_TRANSIENTLY: Self =
        Self::new("fail_transiently", "a try of the step fails, and may work later; --step").of_a_step();
    /// A step's try fails, and can never work.
    pub const FAIL_PERMANENTLY: Self = Self::new(
        "fail_permanently",
        "a try of the step fails for good: its message becomes a dead letter; --step",
    )
    .of_a_step();
    /// A step's try takes longer.
    pub const DELAY: Self =
        Self::new("delay", "a try of the step takes --delay longer; --step").of_a_step().with_delay();
    /// A message reaches the broker twice, in a way that it does not notice.
    pub const PUBLISH_TWICE: Self =
        Self::new("publish_twice", "a message reaches the broker twice, and the broker does not notice");
    /// A message that is none is published beside a real one.
    pub const PUBLISH_GARBAGE: Self =
        Self::new("publish_garbage", "something that is no message is published beside a real one");
    /// The process dies after a commit, before it acknowledges.
    pub const CRASH_BEFORE_ACK: Self =
        Self::new("crash_before_ack", "the process dies after a commit, before it acknowledges").deadly();
    /// The process dies after a publish, before it notes that.
    pub const CRASH_AFTER_PUBLISH: Self =
        Self::new("crash_after_publish", "the process dies after publishing, before it notes that").deadly();
    /// A step pulls no messages.
    pub const PAUSE: Self = Self::new("pause", "the step takes no messages; --step").of_a_step();

    /// Kinds that a service on the broker can be told.
    pub const OF_A_SERVICE: [Self; 8] = [
        Self::FAIL_TRANSIENTLY,
        Self::FAIL_PERMANENTLY,
        Self::DELAY,
        Self::PUBLISH_TWICE,
        Self::PUBLISH_GARBAGE,
        Self::CRASH_BEFORE_ACK,
        Self::CRASH_AFTER_PUBLISH,
        Self::PAUSE,
    ];

    /// A kind of this name that takes neither a delay nor a step.
    #[must_use]
    pub const fn new(name: &'static str, effect: &'static str) -> Self {
        Self { name, effect, needs_delay: false, takes_step: false, is_deadly: false }
    }

    /// The same, which must be told how long it takes.
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

/// A fault to be injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewFault {
    /// What goes wrong: the name of a kind.
    #[cfg_attr(feature = "openapi", schema(example = "fail_transiently"))]
    pub kind: String,
    /// In which step; in all of the service's without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// On how many occasions of a hundred: 1 to 100; on all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<u8>,
    /// How often, in each process, until it ends by itself; for ever without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// How long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Starts the random numbers of all faults anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl NewFault {
    /// One of this kind, on all occasions, in all steps and for ever.
    #[must_use]
    pub fn of(kind: FaultKind) -> Self {
        Self {
            kind: kind.name.to_owned(),
            step: None,
            probability: None,
            next: None,
            delay_ms: None,
            seed: None,
        }
    }
}

/// A fault that is active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActiveFault {
    /// Its number in this service.
    pub id: u64,
    /// What goes wrong: the name of its kind.
    pub kind: String,
    /// In which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// On how many occasions of a hundred.
    pub probability: u8,
    /// How often still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// How long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// How often it struck in this process.
    pub hits: u64,
}

impl ActiveFault {
    /// One that has not struck yet.
    #[must_use]
    pub fn of(id: u64, new: NewFault) -> Self {
        Self {
            id,
            kind: new.kind,
            step: new.step,
            probability: new.probability.unwrap_or(100),
            next: new.next,
            delay_ms: new.delay_ms,
            hits: 0,
        }
    }
}

/// All that is to be known of a service's faults, as one of its processes has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FaultsView {
    /// Whether any may be injected.
    pub enabled: bool,
    /// What the random numbers started with.
    pub seed: u64,
    /// What is active.
    pub faults: Vec<ActiveFault>,
}
