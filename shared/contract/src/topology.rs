//! Pure: the list of the programs of this system: names, ports, streams, calls.
//!
//! A new service is one entry here. Streams, addresses, the command line and the scripts follow from it.
//! `tests/it/repository.rs` names the files that must mention it and do not.

/// Program of the system, with its place in the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participant {
    /// Name of the program, its settings section, the first part of its subjects and, in upper case, its stream.
    pub name: &'static str,
    /// Purpose, in a few words.
    pub about: &'static str,
    /// TCP port that it listens on by default.
    pub port: u16,
    /// True if the program publishes facts on a stream of its own.
    pub has_stream: bool,
    /// Participants that it calls over HTTP. Their addresses are the settings `service.NAME`.
    pub calls: &'static [&'static str],
}

/// Service that publishes operator commands.
pub const OPERATOR: &str = PARTICIPANTS[0].name;

/// Every program of the system, first the operator's, in the order of the default ports.
pub const PARTICIPANTS: [Participant; 5] = [
    Participant {
        name: "admin",
        about: "The operator's view",
        port: 8080,
        has_stream: true,
        calls: &["order", "inventory", "payment", "bank"],
    },
    Participant {
        name: "order",
        about: "Orders and their deadlines",
        port: 8081,
        has_stream: true,
        calls: &[],
    },
    Participant {
        name: "inventory",
        about: "Products, stock, reservations",
        port: 8082,
        has_stream: true,
        calls: &[],
    },
    Participant { name: "payment", about: "Payments", port: 8083, has_stream: true, calls: &["bank"] },
    // A third party: HTTP only.
    Participant {
        name: "bank",
        about: "The simulated card processor",
        port: 8084,
        has_stream: false,
        calls: &[],
    },
];

/// Names of the services that have a stream.
pub fn producers() -> impl Iterator<Item = &'static str> {
    PARTICIPANTS.iter().filter(|participant| participant.has_stream).map(|participant| participant.name)
}

/// Finds the participant with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Participant> {
    PARTICIPANTS.iter().find(|participant| participant.name == name)
}
