//! Pure: what a service declares: its rows, its steps, and how it reacts.

use std::fmt::{Debug, Display};
use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

use crate::dead_letter::OPERATOR_COMMANDS;
use crate::message::{Message, MessageType, Received};
use crate::retry::FailedTry;
use crate::row::{RowKey, RowKind};
use crate::unit_of_work::UnitOfWork;

/// Messages of one producer that a step hears.
#[derive(Debug, Clone, Copy)]
pub struct Subscription {
    /// The service that says them; its stream has the same name in upper case.
    pub producer: &'static str,
    /// The types that it hears; what else the producer says passes it by.
    pub types: &'static [MessageType],
}

impl Subscription {
    /// The messages of these types that `producer` says.
    #[must_use]
    pub const fn to(producer: &'static str, types: &'static [MessageType]) -> Self {
        Self { producer, types }
    }

    /// The stream that holds these messages.
    #[must_use]
    pub fn stream(&self) -> String {
        stream_of(self.producer)
    }

    /// Their subjects, as the service `listener` hears them.
    #[must_use]
    pub fn subjects(&self, listener: &str) -> Vec<String> {
        self.types.iter().map(|message_type| message_type.subject(self.producer, listener)).collect()
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
    pub consumes: &'static [Subscription],
    /// The outside dependencies that its work ends up with: while the breaker of one is open, nothing is pulled.
    pub needs: &'static [&'static str],
    /// Whether the engine itself reacts, to what operators ask.
    pub(crate) is_for_operators: bool,
}

impl Step {
    /// A step that needs nothing from outside.
    #[must_use]
    pub const fn new(name: &'static str, consumes: &'static [Subscription]) -> Self {
        Self { name, consumes, needs: &[], is_for_operators: false }
    }

    /// The same, ending in calls to these.
    #[must_use]
    pub const fn needing(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    /// Whether it hears messages of the type with this name.
    #[must_use]
    pub fn consumes_type(&self, name: &str) -> bool {
        self.consumes.iter().flat_map(|subscription| subscription.types).any(|heard| heard.name == name)
    }

    /// The subject on which `producer` says messages of the type with this name to `listener`, whose step this is;
    /// `None` when the step does not hear such a message from that producer.
    #[must_use]
    pub fn subject_of(&self, producer: &str, name: &str, listener: &str) -> Option<String> {
        let of_producer = self.consumes.iter().filter(|subscription| subscription.producer == producer);
        let mut types = of_producer.flat_map(|subscription| subscription.types);
        types.find(|heard| heard.name == name).map(|heard| heard.subject(producer, listener))
    }

    /// Whether the engine itself reacts, to what operators ask: such a step is in no service's declaration.
    #[must_use]
    pub const fn is_for_operators(&self) -> bool {
        self.is_for_operators
    }

    /// The durable consumer that serves `subscription`.
    #[must_use]
    pub fn durable(&self, subscription: &Subscription) -> String {
        match self.consumes {
            [_] => self.name.to_owned(),
            _ => format!("{}-{}", self.name, subscription.producer),
        }
    }
}

/// Every step of a service: those it declares, and the one in which the engine hears operators.
#[must_use]
pub fn steps_of<S: Service>() -> Vec<&'static Step> {
    let operators = S::OPERATOR.map(|_| OperatorStep::<S>::STEP);
    S::steps().iter().chain(operators).collect()
}

/// The step in which the engine of a service hears operators: `<service>-operations`.
struct OperatorStep<S>(PhantomData<S>);

impl<S: Service> OperatorStep<S> {
    const SUFFIX: &'static [u8] = b"-operations";
    const LEN: usize = S::NAME.len() + Self::SUFFIX.len();

    /// The name, at the beginning of more bytes than any name needs: a constant cannot choose its length here.
    const BYTES: [u8; 128] = {
        let (name, mut bytes, mut at) = (S::NAME.as_bytes(), [0; 128], 0);
        while at < Self::LEN {
            bytes[at] = if at < name.len() { name[at] } else { Self::SUFFIX[at - name.len()] };
            at += 1;
        }
        bytes
    };

    const NAME: &'static str = match std::str::from_utf8(Self::BYTES.split_at(Self::LEN).0) {
        Ok(name) => name,
        Err(_) => panic!("two texts are a text"),
    };

    const PRODUCER: &'static str = match S::OPERATOR {
        Some(operator) => operator,
        None => "",
    };

    const STEP: &'static Step = &Step {
        name: Self::NAME,
        consumes: &[Subscription { producer: Self::PRODUCER, types: &OPERATOR_COMMANDS }],
        needs: &[],
        is_for_operators: true,
    };
}

/// How a task ended: what the outside answered, or that no try got an answer.
#[derive(Debug, Clone, Copy)]
pub struct TaskResult<'a> {
    /// The task's kind.
    pub kind: &'a str,
    /// What the task was written with, as JSON.
    pub payload: &'a str,
    /// The saga.
    pub correlation_id: Uuid,
    /// The answer, or how the last try failed.
    pub answer: Result<&'a Value, &'a FailedTry>,
}

fn rows_of_saga<S: Service>(saga: Uuid) -> Vec<RowKey> {
    S::rows().into_iter().map(|kind| RowKey { kind: kind.name, id: saga.to_string() }).collect()
}

/// Why an input had no effect.
#[derive(Debug)]
pub enum HandlerError<J> {
    /// The business says no. Final, and nobody's fault.
    Rejected(J),
    /// Something that must come first is not here yet: try again later.
    Transient(String),
    /// This can never work: park it for a human.
    Permanent(String),
}

impl<J> HandlerError<J> {
    /// A step was handed a message that it has no reaction to. The engine keeps what a step does not subscribe to
    /// from it, so this is a subscription without a reaction.
    #[must_use]
    pub fn unhandled(step: &Step, message: &Received<impl Message>) -> Self {
        Self::Permanent(format!("{} has no reaction to {}", step.name, message.fact.message_type().name))
    }
}

impl<J> From<J> for HandlerError<J> {
    fn from(rejection: J) -> Self {
        Self::Rejected(rejection)
    }
}

/// What came of a reaction that answers nobody.
pub type HandlerResult<S> = Result<(), HandlerError<<S as Service>::Rejection>>;

/// A service as the engine sees it. Everything here is pure.
///
/// Each kind of input has a pair of methods: the rows that it needs to have read, and the reaction. What a reaction
/// refuses leaves no row, event, message or task behind.
pub trait Service: Sized + Send + Sync + 'static {
    /// Name; the first part of its subjects. At most 100 bytes.
    const NAME: &'static str;
    /// The service through which operators speak to this one's engine: replay, discard, restore. Without one, dead
    /// letters stay where they are.
    const OPERATOR: Option<&'static str> = None;
    /// Members of messages, wherever they stand in them, that nobody is shown ([`secrets`](crate::secrets)).
    const SECRETS: &'static [&'static str] = &[];
    /// What it hears and tells.
    type Fact: Message;
    /// What may be asked of it through HTTP.
    type Command: Debug + Send + Sync + 'static;
    /// What it answers to commands; stored with the idempotency key.
    type Reply: Debug + Clone + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Its business no.
    type Rejection: Debug + Display + Send + Sync + 'static;

    /// Its kinds of rows.
    fn rows() -> Vec<RowKind> {
        vec![]
    }

    /// What it hears, step by step; none for a service that hears nobody.
    fn steps() -> &'static [Step] {
        &[]
    }

    /// The rows that a command needs.
    fn rows_of_command(&self, command: &Self::Command) -> Vec<RowKey> {
        let _ = command;
        vec![]
    }

    /// Does what a command asks.
    ///
    /// # Errors
    /// The refusal.
    fn on_command(
        &self,
        command: &Self::Command,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> Result<Self::Reply, HandlerError<Self::Rejection>> {
        let _ = (command, work);
        Err(HandlerError::Permanent(format!("{} takes no commands", Self::NAME)))
    }

    /// The rows that a message needs: unless said otherwise, of each kind the one with the saga's id.
    fn rows_of_message(&self, message: &Received<Self::Fact>) -> Vec<RowKey> {
        rows_of_saga::<Self>(message.correlation_id)
    }

    /// The rows that a message needs beside those, as far as only the service's own record names them: `work` has
    /// the rows above. Nothing, unless said otherwise; another read is made only when it names others than were
    /// read anyway.
    fn additional_rows(
        &self,
        message: &Received<Self::Fact>,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> Vec<RowKey> {
        let _ = (message, work);
        vec![]
    }

    /// Reacts to a message that `step` hears.
    ///
    /// # Errors
    /// The refusal.
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Self::Fact>,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> HandlerResult<Self> {
        let _ = work;
        Err(HandlerError::unhandled(step, message))
    }

    /// The rows that the result of a task needs: unless said otherwise, of each kind the one with the saga's id.
    fn rows_of_result(&self, result: &TaskResult<'_>) -> Vec<RowKey> {
        rows_of_saga::<Self>(result.correlation_id)
    }

    /// Whether the call of a task is still to be made: asked before each try, but for one that follows at once on
    /// the commit of its task, and now and then while it waits. Of `result` nothing is known yet. What is not wanted
    /// is not made, and ends as [`FailureKind::Untried`](crate::retry::FailureKind) or
    /// [`Unwanted`](crate::retry::FailureKind). It must not change its mind: what is unwanted once stays so.
    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut UnitOfWork<'_, Self::Fact>) -> bool {
        let _ = (result, work);
        true
    }

    /// Takes the result of a task.
    ///
    /// # Errors
    /// The refusal.
    fn on_task_result(
        &self,
        result: &TaskResult<'_>,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> HandlerResult<Self> {
        let _ = work;
        Err(HandlerError::Permanent(format!("{} makes no calls ({})", Self::NAME, result.kind)))
    }

    /// Looks at a row whose due time has come; only that row is read.
    ///
    /// # Errors
    /// The refusal.
    fn on_deadline(&self, row: &RowKey, work: &mut UnitOfWork<'_, Self::Fact>) -> HandlerResult<Self> {
        let _ = work;
        Err(HandlerError::Permanent(format!(
            "no row of {} is ever due ({}/{})",
            Self::NAME,
            row.kind,
            row.id
        )))
    }
}
