//! Pure: the components of a local system: their names and their ports.

use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParserFactory};
use contract::topology::{self, OPERATOR, PARTICIPANTS, Participant};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A process of the local system, or all replicas of a service. Logs and data folders have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    name: &'static str,
    /// Number of the replica, from 1. 0 means a single process, or all replicas together.
    replica: u8,
}

/// Maximum number of replicas, as their ports are ten apart.
pub const MAX_REPLICAS: u8 = 5;

impl Component {
    pub const NATS: Self = Self::single("nats");
    pub const POSTGRES: Self = Self::single("postgres");
    /// Load balancer in front of the replicas of each service.
    pub const PROXY: Self = Self::single("proxy");
    pub const ADMIN: Self = Self::single(OPERATOR);
    pub const ORDER: Self = Self::single("order");
    pub const INVENTORY: Self = Self::single("inventory");

    const fn single(name: &'static str) -> Self {
        Self { name, replica: 0 }
    }

    /// Every kind of process that a system may have, in start order.
    pub fn kinds() -> impl Iterator<Item = Self> {
        [Self::NATS, Self::POSTGRES].into_iter().chain(Self::services()).chain([Self::PROXY])
    }

    /// Services in start order: first those that use no broker, admin last.
    pub fn services() -> impl Iterator<Item = Self> {
        let mut services = PARTICIPANTS;
        services.sort_by_key(|service| (service.name == OPERATOR, service.has_stream));
        services.into_iter().map(|service| Self::single(service.name))
    }

    /// Processes of `count` replicas. A single one has no number in its name.
    pub fn replicas(self, count: u8) -> impl Iterator<Item = Self> {
        let numbers = if count > 1 { 1..=count } else { 0..=0 };
        numbers.map(move |replica| Self { replica, ..self })
    }

    /// Component without its replica number.
    #[must_use]
    pub const fn kind(self) -> Self {
        Self::single(self.name)
    }

    /// Parses the name of one of these kinds, or of a replica of one.
    pub fn parser_of(kinds: impl Iterator<Item = Self>) -> clap::builder::ValueParser {
        let value = |kind: Self| {
            let about = kind.participant().map_or_else(|| kind.about(), |participant| participant.about);
            let name = PossibleValue::new(kind.name).help(about);
            (1..=MAX_REPLICAS).fold(name, |name, replica| name.alias(Self { replica, ..kind }.to_string()))
        };
        PossibleValuesParser::new(kinds.map(value)).try_map(|name| name.parse::<Self>()).into()
    }

    fn about(self) -> &'static str {
        match self.kind() {
            Self::POSTGRES => "The database server",
            Self::PROXY => "The load balancer in front of replicas",
            _ => "The broker",
        }
    }

    /// Entry in the topology; `None` for the broker, the database server and the load balancer.
    pub fn participant(self) -> Option<&'static Participant> {
        topology::named(self.name)
    }

    /// True if it publishes to a stream of its own.
    pub fn has_stream(self) -> bool {
        self.participant().is_some_and(|participant| participant.has_stream)
    }

    fn standard_port(self) -> u16 {
        match self.kind() {
            Self::NATS => NATS_PORT,
            Self::POSTGRES => POSTGRES_PORT,
            ROUTES => NATS_PORT + 2_000,
            // The load balancer listens where admin is expected, among others.
            Self::PROXY => Self::ADMIN.standard_port(),
            kind => kind.participant().map_or(0, |participant| participant.port),
        }
    }

    /// Names in one line, separated by commas.
    pub fn names(components: impl IntoIterator<Item = Self>) -> String {
        components.into_iter().map(|component| component.to_string()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.replica {
            0 => f.pad(self.name),
            replica => f.pad(&format!("{}-{replica}", self.name)),
        }
    }
}

impl FromStr for Component {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let replicas = |kind: Self| (0..=MAX_REPLICAS).map(move |replica| Self { replica, ..kind });
        let mut all = Self::kinds().flat_map(replicas);
        all.find(|component| component.to_string() == name).ok_or_else(|| format!("unknown process {name:?}"))
    }
}

impl Serialize for Component {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Component {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl ValueParserFactory for Component {
    type Parser = clap::builder::ValueParser;

    fn value_parser() -> Self::Parser {
        Self::parser_of(Self::kinds())
    }
}

const NATS_PORT: u16 = 4222;
const POSTGRES_PORT: u16 = 5432;
/// Distance between the ports of two replicas.
const REPLICA_STEP: u16 = 10;
/// Ports at which the brokers of a cluster reach each other.
const ROUTES: Component = Component::single("routes");

/// Ports of a system: the documented ones, or a row that starts at a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ports {
    base: Option<u16>,
}

impl Ports {
    /// The documented ports: 8080 to 8084 and 4222.
    pub const STANDARD: Self = Self { base: None };
    /// Upper bound on the ports in use, counted from the base.
    pub const SPAN: u16 = (MAX_REPLICAS as u16 + 1) * REPLICA_STEP;
    /// Highest base whose ports are all valid.
    pub const MAX_BASE: u16 = u16::MAX - Self::SPAN;

    /// Ports in a row: the services, then the broker. `base` is at most [`Self::MAX_BASE`].
    pub const fn from_base(base: u16) -> Self {
        Self { base: Some(base) }
    }

    /// Port of a process, or the one that all replicas of a service share.
    pub fn of(self, component: Component) -> u16 {
        let first = match self.base {
            None => component.standard_port(),
            Some(base) => base + position(component.kind()),
        };
        first + u16::from(component.replica) * REPLICA_STEP
    }

    /// Port at which a broker of a cluster listens for the others.
    pub fn route_of(self, broker: Component) -> u16 {
        self.of(Component { replica: broker.replica, ..ROUTES })
    }
}

/// Position in the row of ports.
fn position(kind: Component) -> u16 {
    let kind = if kind == Component::PROXY { Component::ADMIN } else { kind };
    let services = PARTICIPANTS.iter().map(|participant| participant.name);
    let mut row = services.chain([Component::NATS, Component::POSTGRES, ROUTES].map(|kind| kind.name));
    row.position(|name| name == kind.name)
        .and_then(|position| u16::try_from(position).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_start_after_those_they_depend_on() {
        let names = Component::names(Component::kinds());
        assert_eq!(names, "nats, postgres, bank, order, inventory, payment, admin, proxy");
        for named in [Component::ADMIN, Component::ORDER, Component::INVENTORY] {
            assert!(named.participant().is_some(), "{named}");
        }
    }

    #[test]
    fn ports_are_a_row_from_their_base_with_the_broker_after_the_services() {
        let ports = |ports: Ports| Component::kinds().map(|kind| ports.of(kind)).collect::<Vec<_>>();
        assert_eq!(ports(Ports::STANDARD), [4222, 5432, 8084, 8081, 8082, 8083, 8080, 8080]);
        assert_eq!(ports(Ports::from_base(7000)), [7005, 7006, 7004, 7001, 7002, 7003, 7000, 7000]);
    }

    #[test]
    fn no_two_processes_share_a_port_whatever_the_number_of_replicas() {
        for ports in [Ports::STANDARD, Ports::from_base(7000)] {
            let kinds = Component::kinds().filter(|kind| *kind != Component::PROXY);
            let all = kinds.flat_map(|kind| kind.replicas(MAX_REPLICAS).chain([kind]));
            let mut taken: Vec<_> = all.map(|component| ports.of(component)).collect();
            taken.extend(Component::NATS.replicas(MAX_REPLICAS).map(|broker| ports.route_of(broker)));
            let count = taken.len();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), count, "{taken:?}");
        }
        let of = |name: &str| Ports::from_base(7000).of(name.parse().expect("a component"));
        assert_eq!((of("order-2"), of("nats-3"), of("admin-1")), (7021, 7035, 7010));
        assert_eq!(Ports::MAX_BASE, 65_475);
    }

    /// An outgoing connection of any program may hold such a port when the process is started again.
    #[test]
    fn standard_ports_lie_below_those_of_outgoing_connections() {
        /// Default of `ip_local_port_range` on Linux; macOS begins later.
        const FIRST_EPHEMERAL: u16 = 32_768;
        let processes = Component::kinds().flat_map(|kind| kind.replicas(MAX_REPLICAS).chain([kind]));
        let ports = processes.map(|component| Ports::STANDARD.of(component));
        let routes = Component::NATS.replicas(MAX_REPLICAS).map(|broker| Ports::STANDARD.route_of(broker));
        let highest = ports.chain(routes).max();
        assert!(highest.is_some_and(|port| port < FIRST_EPHEMERAL), "{highest:?}");
    }

    #[test]
    fn replicas_are_numbered_and_a_single_process_is_not() {
        assert_eq!(Component::names(Component::ORDER.replicas(3)), "order-1, order-2, order-3");
        assert_eq!(Component::names(Component::ORDER.replicas(1)), "order");
        for bad in ["order-0", "order-6", "order-", "shop", "order-02"] {
            assert!(bad.parse::<Component>().is_err(), "{bad}");
        }
    }
}
