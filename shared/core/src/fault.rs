//! Pure: the kinds of faults that may be injected on purpose, for demonstrations and tests.

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
