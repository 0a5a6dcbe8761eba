//! Pure: the processes of a local system, the broker and the participants: their names and their ports.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParserFactory};
use contract::topology::{self, OPERATOR, PARTICIPANTS, Participant};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One process of the local system, or all replicas of a service. Its name is that of its log and its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// What it is: the name of its program.
    part: &'static str,
    /// Which of several, from 1; 0 is the only one, or all of them.
    number: u8,
}

/// Most processes of one kind: their ports lie ten apart.
pub const MOST_REPLICAS: u8 = 5;

impl Member {
    /// The broker.
    pub const NATS: Self = Self::only("nats");
    /// The database server, where the services keep their data in one.
    pub const POSTGRES: Self = Self::only("postgres");
    /// What spreads requests over the replicas of each service.
    pub const FRONT: Self = Self::only("front");
    /// The service that operators speak through.
    pub const ADMIN: Self = Self::only(OPERATOR);
    /// Where orders are placed.
    pub const ORDER: Self = Self::only("order");
    /// Where products are listed.
    pub const INVENTORY: Self = Self::only("inventory");

    const fn only(part: &'static str) -> Self {
        Self { part, number: 0 }
    }

    /// Every kind of process that a system may have.
    pub fn kinds() -> impl Iterator<Item = Self> {
        [Self::NATS, Self::POSTGRES].into_iter().chain(Self::services()).chain([Self::FRONT])
    }

    /// The services, each with all its replicas, in the order in which they start: those who wait for nobody first, the
    /// operators' last.
    pub fn services() -> impl Iterator<Item = Self> {
        let mut services = PARTICIPANTS;
        services.sort_by_key(|service| (service.name == OPERATOR, service.has_stream));
        services.into_iter().map(|service| Self::only(service.name))
    }

    /// Its processes, when there are so many: alone it has no number.
    pub fn replicas(self, count: u8) -> impl Iterator<Item = Self> {
        let numbers = if count > 1 { 1..=count } else { 0..=0 };
        numbers.map(move |number| Self { number, ..self })
    }

    /// What it is, whichever of several.
    #[must_use]
    pub const fn kind(self) -> Self {
        Self::only(self.part)
    }

    /// Reads the name of one of these kinds, or of one of several of them.
    pub fn parser_of(kinds: impl Iterator<Item = Self>) -> clap::builder::ValueParser {
        let value = |kind: Self| {
            let about = kind.participant().map_or_else(|| kind.about(), |participant| participant.about);
            let name = PossibleValue::new(kind.part).help(about);
            (1..=MOST_REPLICAS).fold(name, |name, number| name.alias(Self { number, ..kind }.to_string()))
        };
        PossibleValuesParser::new(kinds.map(value)).try_map(|name| name.parse::<Self>()).into()
    }

    fn about(self) -> &'static str {
        match self.kind() {
            Self::POSTGRES => "The database server",
            Self::FRONT => "What spreads requests over replicas",
            _ => "The broker",
        }
    }

    /// Who it is among the participants; `None` for the others.
    pub fn participant(self) -> Option<&'static Participant> {
        topology::named(self.part)
    }

    /// Whether it takes part in the messaging.
    pub fn takes_part(self) -> bool {
        self.participant().is_some_and(|participant| participant.has_stream)
    }

    /// The port that the documentation names, of the only one.
    fn standard_port(self) -> u16 {
        match self.kind() {
            Self::NATS => NATS_PORT,
            Self::POSTGRES => POSTGRES_PORT,
            Self::FRONT => FRONT_PORT,
            kind => kind.participant().map_or(0, |participant| participant.port),
        }
    }

    /// Their names in one line.
    pub fn names(members: impl IntoIterator<Item = Self>) -> String {
        members.into_iter().map(|member| member.to_string()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => f.pad(self.part),
            number => f.pad(&format!("{}-{number}", self.part)),
        }
    }
}

impl FromStr for Member {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let called =
            |kind: &Self| (0..=MOST_REPLICAS).map(|number| Self { number, ..*kind }).collect::<Vec<_>>();
        let mut all = Self::kinds().flat_map(|kind| called(&kind));
        all.find(|member| member.to_string() == name).ok_or_else(|| format!("there is no {name:?} here"))
    }
}

impl Serialize for Member {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl ValueParserFactory for Member {
    type Parser = clap::builder::ValueParser;

    fn value_parser() -> Self::Parser {
        Self::parser_of(Self::kinds())
    }
}

/// The port of the broker that the documentation names; brokers of a cluster talk to each other 2000 above theirs.
const NATS_PORT: u16 = 4222;
const POSTGRES_PORT: u16 = 5432;
/// Where the front tells how it is.
const FRONT_PORT: u16 = 8085;
/// The ports of one of several are so far from those of the one before it.
const APART: u16 = 10;

/// Where each listens, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ports(BTreeMap<String, u16>);

impl Ports {
    /// Ports that [`Self::from_base`] takes at most, from its base on.
    pub const SPAN: u16 = (MOST_REPLICAS as u16 + 1) * APART;

    /// The ports that the documentation names.
    pub fn standard() -> Self {
        Self(Member::kinds().map(|kind| (kind.part.to_owned(), kind.standard_port())).collect())
    }

    /// Ports in a row, the broker's after those of the services. `base` is at most 65475.
    pub fn from_base(base: u16) -> Self {
        let others = [Member::NATS, Member::POSTGRES, Member::FRONT, ROUTES].map(|kind| kind.part);
        let names = PARTICIPANTS.iter().map(|participant| participant.name).chain(others);
        Self(names.map(str::to_owned).zip(base..=u16::MAX).collect())
    }

    /// Where this one listens. One that there was not yet when the system was made is where the documentation says.
    pub fn of(&self, member: Member) -> u16 {
        let first = self.0.get(member.part).copied().unwrap_or_else(|| member.standard_port());
        first + u16::from(member.number) * APART
    }

    /// Where a broker of a cluster listens for the others.
    pub fn routes_of(&self, broker: Member) -> u16 {
        match self.0.contains_key(ROUTES.part) {
            true => self.of(Member { number: broker.number, ..ROUTES }),
            false => self.of(broker) + 2_000,
        }
    }
}

/// By what name the ports between brokers are kept.
const ROUTES: Member = Member::only("routes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_starts_after_those_it_waits_for() {
        let names = Member::names(Member::kinds());
        assert_eq!(names, "nats, postgres, bank, order, inventory, payment, admin, front");
        for named in [Member::ADMIN, Member::ORDER, Member::INVENTORY] {
            assert!(named.participant().is_some(), "{named} is one of them");
        }
    }

    #[test]
    fn ports_stand_in_a_row_from_their_base_on_the_broker_last() {
        let ports = |ports: Ports| Member::kinds().map(|member| ports.of(member)).collect::<Vec<_>>();
        assert_eq!(ports(Ports::standard()), [4222, 5432, 8084, 8081, 8082, 8083, 8080, 8085]);
        assert_eq!(ports(Ports::from_base(7000)), [7005, 7006, 7004, 7001, 7002, 7003, 7000, 7007]);
    }

    #[test]
    fn everybody_has_a_port_of_its_own_however_many_there_are() {
        for ports in [Ports::standard(), Ports::from_base(7000)] {
            let all = Member::kinds().flat_map(|kind| kind.replicas(MOST_REPLICAS).chain([kind]));
            let mut taken: Vec<_> = all.map(|member| ports.of(member)).collect();
            taken.extend(Member::NATS.replicas(MOST_REPLICAS).map(|broker| ports.routes_of(broker)));
            let count = taken.len();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), count, "{taken:?}");
        }
        let of = |name: &str| Ports::from_base(7000).of(name.parse().expect("a member"));
        assert_eq!((of("order-2"), of("nats-3"), of("admin-1")), (7021, 7035, 7010));
        assert!(Ports::from_base(65_475).of("bank-5".parse().expect("a member")) > 65_475);
    }

    #[test]
    fn one_of_several_is_called_by_its_number() {
        assert_eq!(Member::names(Member::ORDER.replicas(3)), "order-1, order-2, order-3");
        assert_eq!(Member::names(Member::ORDER.replicas(1)), "order");
        for bad in ["order-0", "order-6", "order-", "shop", "order-02"] {
            assert!(bad.parse::<Member>().is_err(), "{bad}");
        }
    }

    /// Builds of every age write them by name; who came later is where the documentation says.
    #[test]
    fn ports_are_kept_by_name() {
        let kept = r#"{"nats":7005,"order":7001,"inventory":7002,"payment":7003,"admin":7000}"#;
        let ports: Ports = serde_json::from_str(kept).expect("ports");
        assert_eq!(
            ["nats", "admin", "bank"].map(|name| ports.of(name.parse().expect("a member"))),
            [7005, 7000, 8084]
        );
        assert!(serde_json::from_str::<Ports>(r#"{"base":null}"#).is_err());
    }
}
