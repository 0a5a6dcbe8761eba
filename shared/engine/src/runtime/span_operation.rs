//! Pure: the operation of a span. Names and attributes follow OpenTelemetry's semantic conventions where there are any.
//!
//! Values are formatted only when a span is sent, as most never are.

use std::borrow::Cow;

use uuid::Uuid;

/// Route attribute of a request that matches no route.
pub const NO_ROUTE: &str = "none";

/// Operation that a span measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanOperation {
    /// Commit of a batch as one transaction.
    Commit {
        /// Number of inputs in the batch.
        inputs: usize,
    },
    /// Processing of one input, from its submission to its commit.
    Process(InputSpan),
    /// Publish of one message by the relay.
    Publish {
        /// Subject on which the message is published.
        subject: String,
        /// Id of the published message.
        message_id: Uuid,
    },
    /// Publish of several messages in one round.
    PublishBatch {
        /// Number of messages in the round.
        messages: usize,
    },
    /// Call of another system for a task.
    Call {
        /// Kind of the task, as the service named it.
        kind: String,
        /// Correlation id, that of the saga.
        correlation_id: Uuid,
        /// Id of the task, which is also its idempotency key.
        message_id: Uuid,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Name of the result, such as `answered` or `failed`.
        outcome: &'static str,
    },
    /// Response to an HTTP request.
    Answer {
        /// HTTP method of the request.
        method: &'static str,
        /// Route template of the router; `None` if no route matches.
        route: Option<String>,
        /// HTTP status code of the response.
        status: u16,
    },
}

/// Processed input, for its span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSpan {
    /// Origin of the input: step, kind of task, or sort of input.
    pub source: Cow<'static, str>,
    /// True if the input is a message from the broker.
    pub is_message: bool,
    /// Correlation id, that of the saga.
    pub correlation_id: Uuid,
    /// Id of the input, for messages the message id.
    pub message_id: Uuid,
    /// Name of the outcome, such as `done` or `rejected`.
    pub outcome: &'static str,
    /// Number of the attempt, from 1; `None` for inputs that are not retried.
    pub attempt: Option<u32>,
    /// Subject of a message from the broker.
    pub subject: Option<Box<str>>,
    /// Id of the dead letter that the input replays.
    pub dead_letter: Option<Uuid>,
}

/// Role of a span, as in OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside a service, without another system.
    Internal,
    /// Response to an incoming HTTP request.
    Server,
    /// Outgoing request to another system.
    Client,
    /// Publish of messages to the broker.
    Producer,
    /// Processing of a message from the broker.
    Consumer,
}

impl SpanOperation {
    /// Role of the span, derived from the operation.
    #[must_use]
    pub const fn kind(&self) -> SpanKind {
        match self {
            Self::Process(InputSpan { is_message: true, .. }) => SpanKind::Consumer,
            Self::Commit { .. } | Self::Process(_) => SpanKind::Internal,
            Self::Publish { .. } | Self::PublishBatch { .. } => SpanKind::Producer,
            Self::Call { .. } => SpanKind::Client,
            Self::Answer { .. } => SpanKind::Server,
        }
    }

    /// Name of the span, of low cardinality: without ids.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Commit { .. } => "commit".into(),
            Self::Process(InputSpan { source, .. }) => source.clone(),
            Self::Publish { subject, .. } => format!("publish {subject}").into(),
            Self::PublishBatch { .. } => "publish".into(),
            Self::Call { kind, .. } => format!("call {kind}").into(),
            Self::Answer { method, route, .. } => {
                format!("{method} {}", route.as_deref().unwrap_or(NO_ROUTE)).into()
            }
        }
    }

    /// Attributes of the span, by name.
    #[must_use]
    pub fn attributes(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Commit { inputs } => vec![("saga.batch.inputs", inputs.to_string())],
            Self::Process(input) => input.attributes(),
            Self::Publish { subject, message_id } => vec![
                ("messaging.system", "nats".to_owned()),
                ("messaging.operation.type", "send".to_owned()),
                ("messaging.destination.name", subject.clone()),
                ("messaging.message.id", message_id.to_string()),
            ],
            Self::PublishBatch { messages } => vec![("messaging.batch.message_count", messages.to_string())],
            Self::Call { correlation_id, message_id, attempt, outcome, .. } => vec![
                ("saga.correlation_id", correlation_id.to_string()),
                ("saga.message_id", message_id.to_string()),
                ("saga.attempt", attempt.to_string()),
                ("saga.outcome", (*outcome).to_owned()),
            ],
            Self::Answer { method, route, status } => vec![
                ("http.request.method", (*method).to_owned()),
                ("http.route", route.as_deref().unwrap_or(NO_ROUTE).to_owned()),
                ("http.response.status_code", status.to_string()),
            ],
        }
    }
}

impl InputSpan {
    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut attributes = vec![
            ("saga.correlation_id", self.correlation_id.to_string()),
            ("saga.message_id", self.message_id.to_string()),
            ("saga.outcome", self.outcome.to_owned()),
        ];
        attributes.extend(self.attempt.map(|attempt| ("saga.attempt", attempt.to_string())));
        if self.is_message {
            attributes.push(("messaging.system", "nats".to_owned()));
            attributes.push(("messaging.operation.type", "process".to_owned()));
            let subject = self.subject.as_ref();
            attributes.extend(subject.map(|subject| ("messaging.destination.name", subject.to_string())));
        }
        attributes.extend(self.dead_letter.map(|id| ("saga.dead_letter_id", id.to_string())));
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_of_a_replayed_message_has_the_name_of_its_step_and_all_attributes() {
        let input = InputSpan {
            source: "payment-processing".into(),
            is_message: true,
            correlation_id: Uuid::from_u128(1),
            message_id: Uuid::from_u128(2),
            outcome: "done",
            attempt: Some(3),
            subject: Some("inventory.stock_reserved".into()),
            dead_letter: Some(Uuid::from_u128(4)),
        };
        let operation = SpanOperation::Process(input.clone());
        assert_eq!((operation.name().as_ref(), operation.kind()), ("payment-processing", SpanKind::Consumer));
        let values: Vec<_> = operation.attributes().into_iter().map(|(_, value)| value).collect();
        let id = |number| Uuid::from_u128(number).to_string();
        let (subject, dead_letter) = ("inventory.stock_reserved", id(4));
        assert_eq!(
            values,
            [&id(1), &id(2), "done", "3", "nats", "process", subject, &dead_letter].map(str::to_owned)
        );
        let called = SpanOperation::Process(InputSpan { is_message: false, ..input });
        assert_eq!((called.kind(), called.attributes().len()), (SpanKind::Internal, 5));
    }

    #[test]
    fn span_of_a_request_without_route_is_named_none() {
        let answer = SpanOperation::Answer { method: "GET", route: None, status: 404 };
        assert_eq!(answer.name(), "GET none");
        assert_eq!(
            answer.attributes()[1..],
            [("http.route", "none".to_owned()), ("http.response.status_code", "404".to_owned())]
        );
    }
}
