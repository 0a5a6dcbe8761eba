//! Pure: the operation of a span. Names and attributes follow OpenTelemetry's semantic conventions (1.44) where there are
//! any.
//!
//! Values are formatted only when a span is sent, as most never are.

use std::borrow::Cow;

use uuid::Uuid;

use super::http_exchange::HttpExchange;
use super::span_attribute::{Attribute, named};

/// Operation that a span measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanOperation {
    /// Processing of one input, from its submission to its commit.
    Process(InputSpan),
    /// Publish of one message by the relay.
    Publish {
        /// Subject on which the message is published.
        subject: String,
        /// Id of the published message.
        message_id: Uuid,
        /// Correlation id, that of the saga.
        correlation_id: Uuid,
        /// Number of messages in the same round.
        round: usize,
    },
    /// Call of another system for a task.
    Call {
        /// Kind of the task, as the service named it.
        kind: String,
        /// Correlation id, that of the saga.
        correlation_id: Uuid,
        /// Id of the task, which is also its idempotency key.
        message_id: Uuid,
        /// Number of the attempt, from 1: of the task's claim, which is higher at each attempt.
        attempt: u32,
        /// Name of the result, such as `answered` or `failed`.
        outcome: &'static str,
        /// Request over HTTP, if one was made.
        http: Option<HttpExchange>,
    },
    /// Request to another service, while a request is being answered.
    Request {
        /// Request and response.
        http: HttpExchange,
        /// Correlation id of the answered request, if it has one.
        correlation_id: Option<Uuid>,
    },
    /// Response to an HTTP request.
    Answer {
        /// HTTP method of the request.
        method: &'static str,
        /// Scheme of the request: `http` or `https`.
        scheme: &'static str,
        /// Route template of the router; `None` if no route matches.
        route: Option<String>,
        /// Path of the request.
        path: String,
        /// HTTP status code of the response; `None` if the client closed the connection before.
        status: Option<u16>,
        /// Correlation id of the commands that the request caused.
        correlation_id: Option<Uuid>,
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
    /// Reason of the business failure that the input reports or causes, such as `declined`.
    pub failure_reason: Option<&'static str>,
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
            Self::Process(_) => SpanKind::Internal,
            Self::Publish { .. } => SpanKind::Producer,
            Self::Call { .. } | Self::Request { .. } => SpanKind::Client,
            Self::Answer { .. } => SpanKind::Server,
        }
    }

    /// Name of the span, of low cardinality: without ids.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Process(InputSpan { is_message: true, subject, .. }) => match subject {
                Some(subject) if !subject.is_empty() => format!("process {subject}").into(),
                Some(_) | None => "process".into(),
            },
            Self::Process(InputSpan { source, .. }) => source.clone(),
            Self::Publish { subject, .. } => format!("publish {subject}").into(),
            Self::Call { http: Some(http), .. } | Self::Request { http, .. } => http.name(),
            Self::Call { kind, http: None, .. } => format!("call {kind}").into(),
            Self::Answer { method, route: Some(route), .. } => format!("{} {route}", named(method)).into(),
            Self::Answer { method, route: None, .. } => named(method).into(),
        }
    }

    /// Attributes of the span, by name.
    #[must_use]
    pub fn attributes(&self) -> Vec<Attribute> {
        match self {
            Self::Process(input) => input.attributes(),
            Self::Publish { subject, message_id, correlation_id, round } => {
                let mut attributes = messaging("publish", "send", *message_id, *correlation_id);
                attributes.push(("messaging.destination.name", subject.clone().into()));
                attributes.push(("saga.correlation_id", (*correlation_id).into()));
                attributes.push(("saga.batch.messages", (*round).into()));
                attributes
            }
            Self::Call { kind, correlation_id, message_id, attempt, outcome, http } => {
                let mut attributes = vec![
                    ("saga.correlation_id", (*correlation_id).into()),
                    ("saga.message_id", (*message_id).into()),
                    ("saga.step", kind.clone().into()),
                    ("saga.attempt", (*attempt).into()),
                    ("saga.outcome", (*outcome).into()),
                ];
                attributes.extend(http.iter().flat_map(HttpExchange::attributes));
                attributes
            }
            Self::Request { http, correlation_id } => {
                let mut attributes = http.attributes();
                attributes.extend(correlation_id.map(|id| ("saga.correlation_id", id.into())));
                attributes
            }
            Self::Answer { method, scheme, route, path, status, correlation_id } => {
                let mut attributes = vec![
                    ("http.request.method", (*method).into()),
                    ("url.scheme", (*scheme).into()),
                    ("url.path", path.clone().into()),
                ];
                attributes.extend(route.iter().map(|route| ("http.route", route.clone().into())));
                attributes.extend(status.map(|status| ("http.response.status_code", status.into())));
                attributes.extend(correlation_id.map(|id| ("saga.correlation_id", id.into())));
                attributes
            }
        }
    }
}

impl InputSpan {
    fn attributes(&self) -> Vec<Attribute> {
        let mut attributes = match self.is_message {
            true => messaging("process", "process", self.message_id, self.correlation_id),
            false => vec![],
        };
        let subject = self.subject.iter().filter(|subject| !subject.is_empty());
        attributes.extend(subject.map(|subject| ("messaging.destination.name", subject.to_string().into())));
        if self.is_message {
            attributes.push(("messaging.consumer.group.name", self.source.to_string().into()));
        }
        attributes.extend([
            ("saga.correlation_id", self.correlation_id.into()),
            ("saga.message_id", self.message_id.into()),
            ("saga.step", self.source.to_string().into()),
            ("saga.outcome", self.outcome.into()),
        ]);
        attributes.extend(self.attempt.map(|attempt| ("saga.attempt", attempt.into())));
        attributes.extend(self.dead_letter.map(|id| ("saga.dead_letter_id", id.into())));
        attributes.extend(self.failure_reason.map(|reason| ("saga.failure_reason", reason.into())));
        attributes
    }
}

/// Attributes of an operation on one message.
fn messaging(name: &'static str, kind: &'static str, id: Uuid, conversation: Uuid) -> Vec<Attribute> {
    vec![
        ("messaging.system", "nats".into()),
        ("messaging.operation.name", name.into()),
        ("messaging.operation.type", kind.into()),
        ("messaging.message.id", id.into()),
        ("messaging.message.conversation_id", conversation.into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::span_attribute::{AttributeValue, OTHER_METHOD};
    use super::*;

    fn text(value: &str) -> AttributeValue {
        value.to_owned().into()
    }

    #[test]
    fn span_of_a_replayed_message_has_the_name_of_its_subject_and_all_attributes() {
        let input = InputSpan {
            source: "payment-processing".into(),
            is_message: true,
            correlation_id: Uuid::from_u128(1),
            message_id: Uuid::from_u128(2),
            outcome: "done",
            attempt: Some(3),
            subject: Some("inventory.stock_reserved".into()),
            dead_letter: Some(Uuid::from_u128(4)),
            failure_reason: Some("declined"),
        };
        let operation = SpanOperation::Process(input.clone());
        assert_eq!(
            (operation.name().as_ref(), operation.kind()),
            ("process inventory.stock_reserved", SpanKind::Consumer)
        );
        let id = |number| AttributeValue::from(Uuid::from_u128(number));
        assert_eq!(
            operation.attributes(),
            [
                ("messaging.system", text("nats")),
                ("messaging.operation.name", text("process")),
                ("messaging.operation.type", text("process")),
                ("messaging.message.id", id(2)),
                ("messaging.message.conversation_id", id(1)),
                ("messaging.destination.name", text("inventory.stock_reserved")),
                ("messaging.consumer.group.name", text("payment-processing")),
                ("saga.correlation_id", id(1)),
                ("saga.message_id", id(2)),
                ("saga.step", text("payment-processing")),
                ("saga.outcome", text("done")),
                ("saga.attempt", AttributeValue::Number(3)),
                ("saga.dead_letter_id", id(4)),
                ("saga.failure_reason", text("declined")),
            ]
        );
        let called = SpanOperation::Process(InputSpan { is_message: false, subject: None, ..input });
        assert_eq!((called.name().as_ref(), called.kind()), ("payment-processing", SpanKind::Internal));
        assert_eq!(called.attributes().len(), 7);
    }

    #[test]
    fn span_of_a_request_without_route_has_the_name_of_its_method() {
        let answer = |method, route: Option<&str>| SpanOperation::Answer {
            method,
            scheme: "http",
            route: route.map(str::to_owned),
            path: "/x".to_owned(),
            status: Some(404),
            correlation_id: None,
        };
        assert_eq!(answer("GET", None).name(), "GET");
        assert_eq!(answer(OTHER_METHOD, None).name(), "HTTP");
        assert_eq!(answer("GET", Some("/x/{id}")).name(), "GET /x/{id}");
        assert_eq!(
            answer("GET", None).attributes()[1..],
            [
                ("url.scheme", text("http")),
                ("url.path", text("/x")),
                ("http.response.status_code", AttributeValue::Number(404)),
            ]
        );
    }
}
