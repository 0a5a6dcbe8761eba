//! Pure: what a service declares: its rows, its steps, and how it reacts.

use std::fmt::{Debug, Display};

use serde::{Serialize, de::DeserializeOwned};

use crate::contract::FactType;
use crate::envelope::Message;
use crate::retry::FailedTry;
use crate::row::{RowKey, RowKind};
use crate::unit::Unit;

/// Facts of one producer that a step hears.
#[derive(Debug, Clone, Copy)]
pub struct Subscription {
    /// The service that speaks; its stream has the same name in upper case.
    pub producer: &'static str,
    /// What it says.
    pub facts: &'static [FactType],
}

impl Subscription {
    /// The stream that holds these facts.
    #[must_use]
    pub fn stream(&self) -> String {
        stream_of(self.producer)
    }

    /// The subjects of these facts, as the service `listener` hears them.
    #[must_use]
    pub fn subjects(&self, listener: &str) -> Vec<String> {
        self.facts.iter().map(|fact| fact.subject(self.producer, listener)).collect()
    }
}

/// The stream of a service.
#[must_use]
pub fn stream_of(service: &str) -> String {
    service.to_uppercase()
}

/// One reaction of one service: the unit of inbox, breaker, retry and replay.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Name, unique in the whole system.
    pub name: &'static str,
    /// What it hears.
    pub hears: &'static [Subscription],
    /// The outside dependencies that its work ends up with: while the breaker of one is open, nothing is pulled.
    pub needs: &'static [&'static str],
}

/// What every service hears of operators, in a step of its own: the engine itself reacts to it.
pub const OPERATIONS: &[Subscription] = &[Subscription {
    producer: "admin",
    facts: &[FactType::ReplayRequested, FactType::DeadLetterDiscarded, FactType::DeadLetterRestored],
}];

impl Step {
    /// Whether it hears this.
    #[must_use]
    pub fn is_told(&self, fact: FactType) -> bool {
        self.hears.iter().any(|subscription| subscription.facts.contains(&fact))
    }

    /// The durable consumer that serves `subscription`.
    #[must_use]
    pub fn durable(&self, subscription: &Subscription) -> String {
        match self.hears {
            [_] => self.name.to_owned(),
            _ => format!("{}-{}", self.name, subscription.producer),
        }
    }
}

/// What a service reacts to.
#[derive(Debug)]
pub enum Heard<'a, C> {
    /// Somebody's wish, through HTTP.
    Command(&'a C),
    /// A fact, for a step.
    Message(&'static Step, &'a Message),
    /// The outcome of a call to the outside.
    Called {
        /// The task's kind.
        kind: &'a str,
        /// What the task was written with.
        payload: &'a str,
        /// What the outside answered, or why no try got an answer.
        answer: Result<&'a serde_json::Value, &'a FailedTry>,
    },
    /// A row's due time has come.
    Due(&'a RowKey),
}

/// Why an input had no effect.
#[derive(Debug)]
pub enum Refusal<J> {
    /// The business says no. Final, and nobody's fault.
    Rejected(J),
    /// Something that must come first is not here yet: try again later.
    NotYet(String),
    /// This can never work: park it for a human.
    Broken(String),
}

impl<J> Refusal<J> {
    /// A step was handed a fact that it has no reaction to. The engine keeps what a step does not subscribe to
    /// from it, so this is a subscription without a reaction.
    #[must_use]
    pub fn unheard(step: &Step, message: &Message) -> Self {
        Self::Broken(format!("{} has no reaction to {}", step.name, message.fact.fact_type().name()))
    }
}

impl<J> From<J> for Refusal<J> {
    fn from(rejection: J) -> Self {
        Self::Rejected(rejection)
    }
}

/// A service as the engine sees it. Everything here is pure.
pub trait Service: Send + Sync + 'static {
    /// Name; the first part of its subjects.
    const NAME: &'static str;
    /// What may be asked of it through HTTP.
    type Command: Debug + Send + Sync + 'static;
    /// What it answers to commands; stored with the idempotency key.
    type Reply: Default + Debug + Clone + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Its business no.
    type Rejection: Debug + Display + Send + Sync + 'static;

    /// Its kinds of rows.
    fn rows() -> Vec<RowKind>;

    /// Its steps.
    fn steps() -> &'static [Step];

    /// The rows that reacting to `heard` needs.
    fn reads(&self, heard: &Heard<'_, Self::Command>) -> Vec<RowKey>;

    /// The reaction.
    ///
    /// # Errors
    /// The refusal; then no row, event, fact or task of this input remains.
    fn react(
        &self,
        heard: &Heard<'_, Self::Command>,
        unit: &mut Unit<'_>,
    ) -> Result<Self::Reply, Refusal<Self::Rejection>>;
}
