//! Pure: the declaration of a service: its rows, its steps and its handlers.

use std::fmt::{Debug, Display};
use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use uuid::Uuid;

use crate::dead_letter::OPERATOR_COMMANDS;
use crate::message::{Message, MessageType, Received};
use crate::retry::FailedAttempt;
use crate::row::{RowKey, RowKind};
use crate::secrets::Secrets;
use crate::unit_of_work::UnitOfWork;

/// Messages of one producer that a step consumes.
#[derive(Debug, Clone, Copy)]
pub struct Subscription {
    /// Name of the producing service. Its stream has the same name in upper case.
    pub producer: &'static str,
    /// Consumed message types. Other messages of the producer are not delivered.
    pub types: &'static [MessageType],
}

impl Subscription {
    /// Subscribes to these types of messages of `producer`.
    #[must_use]
    pub const fn to(producer: &'static str, types: &'static [MessageType]) -> Self {
        Self { producer, types }
    }

    /// Name of the stream that holds these messages.
    #[must_use]
    pub fn stream(&self) -> String {
        stream_of(self.producer)
    }

    /// Subjects of these messages for the consuming service `listener`.
    #[must_use]
    pub fn subjects(&self, listener: &str) -> Vec<String> {
        self.types.iter().map(|message_type| message_type.subject(self.producer, listener)).collect()
    }
}

/// Name of a service's stream.
#[must_use]
pub fn stream_of(service: &str) -> String {
    service.to_uppercase()
}

/// Reaction of one service to one kind of message: the unit of inbox, breaker, retry and replay.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Name, unique in the whole system.
    pub name: &'static str,
    /// Messages that the step consumes.
    pub consumes: &'static [Subscription],
    /// External dependencies of its tasks. While the breaker of one is open, the step pulls no messages.
    pub needs: &'static [&'static str],
    /// True if the engine itself handles the messages: the commands of operators.
    pub(crate) is_for_operators: bool,
}

impl Step {
    /// Creates a step without external dependencies.
    #[must_use]
    pub const fn new(name: &'static str, consumes: &'static [Subscription]) -> Self {
        Self { name, consumes, needs: &[], is_for_operators: false }
    }

    /// Declares the external dependencies of the step's tasks.
    #[must_use]
    pub const fn needing(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    /// True if the step consumes messages of the type with this name.
    #[must_use]
    pub fn consumes_type(&self, name: &str) -> bool {
        self.consumes.iter().flat_map(|subscription| subscription.types).any(|consumed| consumed.name == name)
    }

    /// Subject on which `producer` publishes this type of message to `listener`, the owner of the step.
    ///
    /// `None` if the step does not consume such messages of that producer.
    #[must_use]
    pub fn subject_of(&self, producer: &str, name: &str, listener: &str) -> Option<String> {
        let of_producer = self.consumes.iter().filter(|subscription| subscription.producer == producer);
        let mut types = of_producer.flat_map(|subscription| subscription.types);
        types.find(|consumed| consumed.name == name).map(|consumed| consumed.subject(producer, listener))
    }

    /// True if the engine itself handles the messages: the commands of operators. No service declares such a step.
    #[must_use]
    pub const fn is_for_operators(&self) -> bool {
        self.is_for_operators
    }

    /// Name of the durable consumer of `subscription`.
    #[must_use]
    pub fn durable(&self, subscription: &Subscription) -> String {
        match self.consumes {
            [_] => self.name.to_owned(),
            _ => format!("{}-{}", self.name, subscription.producer),
        }
    }
}

/// Lists the declared steps of a service and the engine's own step for operator commands.
#[must_use]
pub fn steps_of<S: Service>() -> Vec<&'static Step> {
    let operators = S::OPERATOR.map(|_| OperatorStep::<S>::STEP);
    S::steps().iter().chain(operators).collect()
}

/// The engine's step for operator commands: `<service>-operations`.
struct OperatorStep<S>(PhantomData<S>);

impl<S: Service> OperatorStep<S> {
    const SUFFIX: &'static [u8] = b"-operations";
    const LEN: usize = S::NAME.len() + Self::SUFFIX.len();

    /// Padded to a fixed length, since a constant cannot compute the length of an array here.
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

/// Result of a task: the answer of the dependency, or the last failure.
#[derive(Debug, Clone, Copy)]
pub struct TaskResult<'a> {
    /// Kind of the task, as it was created.
    pub kind: &'a str,
    /// Payload of the task, JSON.
    pub payload: &'a str,
    /// Id of the saga that it belongs to.
    pub correlation_id: Uuid,
    /// Answer of the dependency, or the failure after which no attempt follows.
    pub answer: Result<&'a Value, &'a FailedAttempt>,
}

fn rows_of_saga<S: Service>(saga: Uuid) -> Vec<RowKey> {
    S::rows().into_iter().map(|kind| RowKey { kind: kind.name, id: saga.to_string() }).collect()
}

/// Error of a handler. The input has no effect then.
///
/// The engine adds a fourth case that no handler reports: an outage of a dependency, which consumes no attempt
/// ([`FailureKind::Outage`](crate::retry::FailureKind::Outage)).
#[derive(Debug)]
pub enum HandlerError<J> {
    /// Business rejection: final, and no fault. It counts against no breaker.
    Rejected(J),
    /// Failure that may pass, such as a message that arrived too early. The engine retries with backoff.
    Transient(String),
    /// Failure that no retry can repair. The engine dead-letters the input.
    Permanent(String),
}

impl<J> HandlerError<J> {
    /// Permanent error for a message that `step` consumes and no handler takes: a mistake in the service's
    /// declaration.
    #[must_use]
    pub fn unhandled(step: &Step, message: &Received<impl Message>) -> Self {
        Self::Permanent(format!("{} has no handler for {}", step.name, message.fact.message_type().name))
    }
}

impl<J> From<J> for HandlerError<J> {
    fn from(rejection: J) -> Self {
        Self::Rejected(rejection)
    }
}

/// Result of a handler that returns no answer.
pub type HandlerResult<S> = Result<(), HandlerError<<S as Service>::Rejection>>;

/// A service, as the engine sees it: pure functions and constants.
///
/// Each kind of input has two methods: one names the rows to read, the other handles the input. A handler that
/// returns an error leaves no row, event, message or task behind.
pub trait Service: Sized + Send + Sync + 'static {
    /// Name and first part of the subjects. At most 100 bytes.
    const NAME: &'static str;
    /// Service that publishes operator commands (replay, discard, restore) for this one. Without it, dead letters
    /// cannot be replayed.
    const OPERATOR: Option<&'static str> = None;
    /// Secrets in messages and rows, redacted wherever they are shown.
    const SECRETS: Secrets = Secrets::NONE;
    /// Messages that the service consumes and publishes.
    type Fact: Message;
    /// Commands that arrive over HTTP.
    type Command: Debug + Send + Sync + 'static;
    /// Answer to a command, stored with its idempotency key.
    type Reply: Debug + Clone + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Business rejection: an answer, and no fault.
    type Rejection: Debug + Display + Send + Sync + 'static;

    /// Kinds of rows that the service stores.
    fn rows() -> Vec<RowKind> {
        vec![]
    }

    /// Steps. None if the service consumes no messages.
    fn steps() -> &'static [Step] {
        &[]
    }

    /// Rows that a command reads.
    fn rows_of_command(&self, command: &Self::Command) -> Vec<RowKey> {
        let _ = command;
        vec![]
    }

    /// Handles a command and returns its answer.
    ///
    /// # Errors
    /// Any [`HandlerError`]. The engine does not retry commands: the caller gets the error.
    fn on_command(
        &self,
        command: &Self::Command,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> Result<Self::Reply, HandlerError<Self::Rejection>> {
        let _ = (command, work);
        Err(HandlerError::Permanent(format!("{} has no command handler", Self::NAME)))
    }

    /// Rows that a message reads. By default the row of each kind whose id is the saga's.
    fn rows_of_message(&self, message: &Received<Self::Fact>) -> Vec<RowKey> {
        rows_of_saga::<Self>(message.correlation_id)
    }

    /// Rows that a message needs beyond [`Service::rows_of_message`], if only stored rows name them. None by
    /// default.
    ///
    /// `work` has the rows named there. The engine reads a second time only if this names rows that the batch has
    /// not read.
    fn additional_rows(
        &self,
        message: &Received<Self::Fact>,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> Vec<RowKey> {
        let _ = (message, work);
        vec![]
    }

    /// Handles a message that `step` consumes.
    ///
    /// # Errors
    /// Any [`HandlerError`].
    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<Self::Fact>,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> HandlerResult<Self> {
        let _ = work;
        Err(HandlerError::unhandled(step, message))
    }

    /// Rows that a task result reads. By default the row of each kind whose id is the saga's.
    fn rows_of_result(&self, result: &TaskResult<'_>) -> Vec<RowKey> {
        rows_of_saga::<Self>(result.correlation_id)
    }

    /// True while the call of a task is still necessary.
    ///
    /// The engine asks before each attempt, except an attempt that directly follows the commit of the task, and
    /// from time to time while the task waits. `result` holds no answer yet. An unnecessary call is not made; the
    /// task ends with [`FailureKind::NeverAttempted`](crate::retry::FailureKind) or
    /// [`NoLongerNeeded`](crate::retry::FailureKind). Once `false`, the answer must stay `false`.
    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut UnitOfWork<'_, Self::Fact>) -> bool {
        let _ = (result, work);
        true
    }

    /// Handles the result of a task.
    ///
    /// # Errors
    /// Any [`HandlerError`].
    fn on_task_result(
        &self,
        result: &TaskResult<'_>,
        work: &mut UnitOfWork<'_, Self::Fact>,
    ) -> HandlerResult<Self> {
        let _ = work;
        Err(HandlerError::Permanent(format!(
            "{} has no handler for results of task {}",
            Self::NAME,
            result.kind
        )))
    }

    /// Handles a row whose due time has come. Only that row is read.
    ///
    /// # Errors
    /// Any [`HandlerError`]. The row stays due unless the error is a rejection.
    fn on_deadline(&self, row: &RowKey, work: &mut UnitOfWork<'_, Self::Fact>) -> HandlerResult<Self> {
        let _ = work;
        Err(HandlerError::Permanent(format!(
            "{} has no handler for due rows ({}/{})",
            Self::NAME,
            row.kind,
            row.id
        )))
    }
}
