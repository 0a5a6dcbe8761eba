//! Pure: what a span says was done: held as it was, and put in words only when it is sent, as most never are. Names and
//! attributes follow OpenTelemetry's semantic conventions where there are any.

use std::borrow::Cow;

use uuid::Uuid;

/// What stands for a route where there is none.
pub const NO_ROUTE: &str = "none";

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// So many inputs were committed at once.
    Commit {
        /// How many.
        inputs: usize,
    },
    /// An input was settled.
    Settle(Settled),
    /// A message was published.
    Publish {
        /// To which subject.
        subject: String,
        /// Its id.
        message_id: Uuid,
    },
    /// So many messages were published at once.
    PublishBatch {
        /// How many.
        messages: usize,
    },
    /// The outside was called.
    Call {
        /// The kind of the task that wanted it.
        kind: String,
        /// The saga.
        correlation_id: Uuid,
        /// The task.
        message_id: Uuid,
        /// Which try it was, from 1 on.
        attempt: u32,
        /// How it ended.
        outcome: &'static str,
    },
    /// A request was answered.
    Answer {
        /// How it was asked.
        method: &'static str,
        /// The route, as the router has it.
        route: Option<String>,
        /// The status of the answer.
        status: u16,
    },
}

/// An input that was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Where it came from: its step, its kind of task, or what else it was.
    pub source: Cow<'static, str>,
    /// Whether it was a message.
    pub is_message: bool,
    /// The saga.
    pub correlation_id: Uuid,
    /// Its own id.
    pub message_id: Uuid,
    /// What became of it.
    pub outcome: &'static str,
    /// Which try it was, from 1 on; `None` of what is tried once.
    pub attempt: Option<u32>,
    /// The subject that it was said on, of a message that the broker had.
    pub subject: Option<Box<str>>,
    /// The dead letter that it replayed.
    pub dead_letter: Option<Uuid>,
}

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside a service.
    Internal,
    /// The answer to a request.
    Server,
    /// A request.
    Client,
    /// A message was published.
    Producer,
    /// A message was handled.
    Consumer,
}

impl Operation {
    /// The role of its span.
    #[must_use]
    pub const fn kind(&self) -> SpanKind {
        match self {
            Self::Settle(Settled { is_message: true, .. }) => SpanKind::Consumer,
            Self::Commit { .. } | Self::Settle(_) => SpanKind::Internal,
            Self::Publish { .. } | Self::PublishBatch { .. } => SpanKind::Producer,
            Self::Call { .. } => SpanKind::Client,
            Self::Answer { .. } => SpanKind::Server,
        }
    }

    /// Its name, of few different ones: no ids.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Commit { .. } => "commit".into(),
            Self::Settle(Settled { source, .. }) => source.clone(),
            Self::Publish { subject, .. } => format!("publish {subject}").into(),
            Self::PublishBatch { .. } => "publish".into(),
            Self::Call { kind, .. } => format!("call {kind}").into(),
            Self::Answer { method, route, .. } => {
                format!("{method} {}", route.as_deref().unwrap_or(NO_ROUTE)).into()
            }
        }
    }

    /// What else is to be known of it.
    #[must_use]
    pub fn attributes(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Commit { inputs } => vec![("saga.batch.inputs", inputs.to_string())],
            Self::Settle(settled) => settled.attributes(),
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

impl Settled {
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
    fn a_replayed_message_is_named_by_its_step_and_tells_all_that_is_known_of_it() {
        let settled = Settled {
            source: "payment-processing".into(),
            is_message: true,
            correlation_id: Uuid::from_u128(1),
            message_id: Uuid::from_u128(2),
            outcome: "done",
            attempt: Some(3),
            subject: Some("inventory.stock_reserved".into()),
            dead_letter: Some(Uuid::from_u128(4)),
        };
        let operation = Operation::Settle(settled.clone());
        assert_eq!((operation.name().as_ref(), operation.kind()), ("payment-processing", SpanKind::Consumer));
        let values: Vec<_> = operation.attributes().into_iter().map(|(_, value)| value).collect();
        let id = |number| Uuid::from_u128(number).to_string();
        let (subject, dead_letter) = ("inventory.stock_reserved", id(4));
        assert_eq!(
            values,
            [&id(1), &id(2), "done", "3", "nats", "process", subject, &dead_letter].map(str::to_owned)
        );
        let called = Operation::Settle(Settled { is_message: false, ..settled });
        assert_eq!((called.kind(), called.attributes().len()), (SpanKind::Internal, 5));
    }

    #[test]
    fn a_request_for_what_is_no_route_is_named_as_such() {
        let answer = Operation::Answer { method: "GET", route: None, status: 404 };
        assert_eq!(answer.name(), "GET none");
        assert_eq!(
            answer.attributes()[1..],
            [("http.route", "none".to_owned()), ("http.response.status_code", "404".to_owned())]
        );
    }
}
