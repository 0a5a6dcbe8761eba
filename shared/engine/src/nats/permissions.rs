//! Pure: what a user of the broker may say there and hear, as it follows from what a service declares.
//!
//! Source: NATS ADR-1 (subjects of the JetStream API) and ADR-15 (of acknowledgements).

use saga_core::dead_letter::{DEAD_LETTER_TYPES, OPERATOR_COMMANDS};
use saga_core::message::MessageType;
use saga_core::service::{Service, steps_of, stream_of};

/// The stream of the broker's advisories.
pub(super) const ADVISORY_STREAM: &str = "ADVISORY";

/// The subjects that a user of the broker may publish to, and those it may subscribe to: all others are refused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// Of facts, of questions to JetStream, and of acknowledgements.
    pub publish: Vec<String>,
    /// Of answers, to this user alone.
    pub subscribe: Vec<String>,
}

impl Permissions {
    /// What a service needs that tells these types of facts: those, beside what its engine says; its own stream, which
    /// it makes; the durables of its steps, and the streams that these hear.
    #[must_use]
    pub fn of_service<S: Service>(tells: impl IntoIterator<Item = MessageType>) -> Self {
        let engines = S::OPERATOR.into_iter().flat_map(|_| DEAD_LETTER_TYPES);
        let commands = S::OPERATOR.into_iter().filter(|operator| *operator == S::NAME);
        let commands = commands.flat_map(|_| OPERATOR_COMMANDS);
        let told = tells.into_iter().chain(engines).chain(commands);
        let mut publish: Vec<_> = told.map(|message_type| message_type.subject(S::NAME, "*")).collect();

        let stream = stream_of(S::NAME);
        publish.extend(["CREATE", "UPDATE", "INFO", "MSG.GET"].map(|what| of_stream(what, &stream)));
        // Made by whoever comes first; all ask it what time it is.
        publish.extend(["CREATE", "INFO"].map(|what| of_stream(what, ADVISORY_STREAM)));
        publish.extend(of_durable(ADVISORY_STREAM, &advisories_of(S::NAME)));
        for step in steps_of::<S>() {
            for subscription in step.consumes {
                let stream = subscription.stream();
                publish.extend(of_durable(&stream, &step.durable(subscription)));
                // What the broker gives up on is fetched by its place.
                publish.push(of_stream("MSG.GET", &stream));
            }
        }
        publish.sort();
        publish.dedup();
        Self { publish, subscribe: vec![format!("{}.>", inbox_of(S::NAME))] }
    }

    /// What somebody needs who reads the streams of these producers from now on, and says nothing. Its consumers have
    /// names that nobody knows before.
    #[must_use]
    pub fn of_reader(user: &str, producers: impl IntoIterator<Item = &'static str>) -> Self {
        let of_producer = |producer: &str| {
            let stream = stream_of(producer);
            [
                of_stream("INFO", &stream),
                // Without a name: the broker gives one, and no durable is made or changed.
                format!("$JS.API.CONSUMER.CREATE.{stream}"),
                format!("$JS.API.CONSUMER.INFO.{stream}.*"),
                format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.*"),
                format!("$JS.API.CONSUMER.DELETE.{stream}.*"),
            ]
        };
        let publish = producers.into_iter().flat_map(of_producer).collect();
        Self { publish, subscribe: vec![format!("{}.>", inbox_of(user))] }
    }
}

/// Where the answers to a user's questions come: nobody else hears them.
#[must_use]
pub(super) fn inbox_of(user: &str) -> String {
    format!("_INBOX.{user}")
}

/// The durable by which a service hears what the broker gave up on.
#[must_use]
pub(super) fn advisories_of(service: &str) -> String {
    format!("{service}-advisories")
}

fn of_stream(what: &str, stream: &str) -> String {
    format!("$JS.API.STREAM.{what}.{stream}")
}

fn of_durable(stream: &str, durable: &str) -> [String; 4] {
    [
        format!("$JS.API.CONSUMER.CREATE.{stream}.{durable}"),
        format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"),
        format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"),
        format!("$JS.ACK.{stream}.{durable}.>"),
    ]
}
