//! Pure: permissions of a user at the broker, derived from the declaration of a service.
//!
//! Source: NATS ADR-1 (subjects of the JetStream API) and ADR-15 (of acknowledgements).

use saga_core::dead_letter::{DEAD_LETTER_TYPES, OPERATOR_COMMANDS};
use saga_core::message::MessageType;
use saga_core::service::{Service, steps_of, stream_of};

/// Name of the stream that keeps the broker's advisories.
pub(super) const ADVISORY_STREAM: &str = "ADVISORY";

/// Name of the stream of the traces that are recorded because of a failure.
pub(super) const TRACE_STREAM: &str = "TRACE";

/// Subject on which a service announces such traces.
pub(super) fn kept_subject(service: &str) -> String {
    format!("trace.kept.{service}")
}

/// Subject of the messages that only record a position.
pub(super) fn position_subject(service: &str) -> String {
    format!("{service}.position")
}

/// Subjects that a user may publish and subscribe to. The broker rejects all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects of facts, of requests to JetStream, and of acknowledgements.
    pub publish: Vec<String>,
    /// Subjects of answers to this user.
    pub subscribe: Vec<String>,
}

impl Permissions {
    /// Permissions of a service that publishes `facts`: these and the messages of its engine, its own stream, and the
    /// durable consumers of its steps with their streams.
    #[must_use]
    pub fn of_service<S: Service>(facts: impl IntoIterator<Item = MessageType>) -> Self {
        let dead_letters = S::OPERATOR.into_iter().flat_map(|_| DEAD_LETTER_TYPES);
        let commands = S::OPERATOR.into_iter().filter(|operator| *operator == S::NAME);
        let commands = commands.flat_map(|_| OPERATOR_COMMANDS);
        let published = facts.into_iter().chain(dead_letters).chain(commands);
        let mut publish: Vec<_> = published.map(|message_type| message_type.subject(S::NAME, "*")).collect();

        publish.push(position_subject(S::NAME));
        let stream = stream_of(S::NAME);
        publish.extend(["CREATE", "UPDATE", "INFO", "MSG.GET"].map(|request| of_stream(request, &stream)));
        // Created by the first service; all read the broker's time from it.
        publish.extend(["CREATE", "INFO"].map(|request| of_stream(request, ADVISORY_STREAM)));
        publish.extend(of_durable(ADVISORY_STREAM, &advisories_of(S::NAME)));
        publish.push(kept_subject(S::NAME));
        publish.extend(["CREATE", "INFO", "MSG.GET"].map(|request| of_stream(request, TRACE_STREAM)));
        for step in steps_of::<S>() {
            for subscription in step.consumes {
                let stream = subscription.stream();
                publish.extend(of_durable(&stream, &step.durable(subscription)));
                // Messages that the broker gave up are read by their position.
                publish.push(of_stream("MSG.GET", &stream));
            }
        }
        publish.sort();
        publish.dedup();
        Self { publish, subscribe: vec![format!("{}.>", inbox_of(S::NAME))] }
    }

    /// Permissions of a reader of the streams of these producers. It reads stored messages by their position. It has no
    /// consumer: whoever creates one chooses where the broker delivers. Whoever may pull from any takes messages of the
    /// services.
    #[must_use]
    pub fn of_reader(user: &str, producers: impl IntoIterator<Item = &'static str>) -> Self {
        let (mut publish, mut subscribe) = (Vec::new(), vec![format!("{}.>", inbox_of(user))]);
        for producer in producers {
            publish.extend(["INFO", "MSG.GET"].map(|request| of_stream(request, &stream_of(producer))));
            // Hints that there is something to read.
            subscribe.push(format!("{producer}.>"));
        }
        Self { publish, subscribe }
    }
}

/// Inbox prefix of a user, to which only that user may subscribe.
#[must_use]
pub(super) fn inbox_of(user: &str) -> String {
    format!("_INBOX.{user}")
}

/// Name of a service's durable consumer of advisories.
#[must_use]
pub(super) fn advisories_of(service: &str) -> String {
    format!("{service}-advisories")
}

fn of_stream(request: &str, stream: &str) -> String {
    format!("$JS.API.STREAM.{request}.{stream}")
}

fn of_durable(stream: &str, durable: &str) -> [String; 5] {
    [
        format!("$JS.API.CONSUMER.CREATE.{stream}.{durable}"),
        // One that was changed by hand is created anew.
        format!("$JS.API.CONSUMER.DELETE.{stream}.{durable}"),
        format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
        format!("$JS.ACK.{stream}.{durable}.>"),
    ]
}
