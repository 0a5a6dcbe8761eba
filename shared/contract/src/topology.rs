//! Pure: the one list of the programs of this system: who they are, where they listen, who hears whom.
//!
//! A new service is a line here; streams, addresses, the command line and the reconciliation follow from it.

/// A program of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participant {
    /// Its name: of its program, its settings, its part of the subjects and, in upper case, its stream.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// The port it listens on unless told otherwise.
    pub port: u16,
    /// Whether it has a stream of its own, and so takes part in the messaging.
    pub has_stream: bool,
    /// The participants whose facts it hears; those who speak to every engine, as operators
    /// do of dead letters, are not counted.
    pub consumes: &'static [&'static str],
    /// The participants that it calls over HTTP: its settings say where they are (`service.NAME`).
    pub calls: &'static [&'static str],
}

/// The service through which operators speak.
pub const OPERATOR: &str = "admin";

/// Every program of the system, the operators' first: in the order of their ports.
pub const PARTICIPANTS: [Participant; 5] = [
    Participant {
        name: OPERATOR,
        about: "The operator's view",
        port: 8080,
        has_stream: true,
        consumes: &["order", "inventory", "payment", OPERATOR],
        calls: &["order", "inventory", "payment", "bank"],
    },
    Participant {
        name: "order",
        about: "Orders and their deadlines",
        port: 8081,
        has_stream: true,
        consumes: &["inventory", "payment", OPERATOR],
        calls: &[],
    },
    Participant {
        name: "inventory",
        about: "Products, stock, reservations",
        port: 8082,
        has_stream: true,
        consumes: &["order"],
        calls: &[],
    },
    Participant {
        name: "payment",
        about: "Payments",
        port: 8083,
        has_stream: true,
        consumes: &["order", "inventory", OPERATOR],
        calls: &["bank"],
    },
    // The outside world: plain HTTP is all it speaks.
    Participant {
        name: "bank",
        about: "The simulated card processor",
        port: 8084,
        has_stream: false,
        consumes: &[],
        calls: &[],
    },
];

/// The services that have a stream.
pub fn producers() -> impl Iterator<Item = &'static str> {
    PARTICIPANTS.iter().filter(|participant| participant.has_stream).map(|participant| participant.name)
}

/// The participant with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Participant> {
    PARTICIPANTS.iter().find(|participant| participant.name == name)
}
