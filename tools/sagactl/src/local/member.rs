//! Pure: the processes of a local system, the broker and the participants: their names and their ports.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParserFactory};
use contract::topology::{self, OPERATOR, PARTICIPANTS, Participant};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// One process of the local system. Its name is that of its program, its log and its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Member(&'static str);

impl Member {
    /// The broker: the one member that is no participant.
    pub const NATS: Self = Self("nats");
    /// The service that operators speak through.
    pub const ADMIN: Self = Self(OPERATOR);
    /// Where orders are placed.
    pub const ORDER: Self = Self("order");
    /// Where products are listed.
    pub const INVENTORY: Self = Self("inventory");

    /// All, in the order in which they start.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::NATS].into_iter().chain(Self::services())
    }

    /// All but the broker, in the order in which they start: those who wait for nobody first, the operators' last.
    pub fn services() -> impl Iterator<Item = Self> {
        let mut services = PARTICIPANTS;
        services.sort_by_key(|service| (service.name == OPERATOR, service.has_stream));
        services.into_iter().map(|service| Self(service.name))
    }

    /// Reads the name of one of these.
    pub fn parser_of(members: impl Iterator<Item = Self>) -> clap::builder::ValueParser {
        let value = |member: Self| {
            let about = member.participant().map_or("The broker", |participant| participant.about);
            PossibleValue::new(member.0).help(about)
        };
        PossibleValuesParser::new(members.map(value)).try_map(|name| name.parse::<Self>()).into()
    }

    /// Who it is among the participants; `None` for the broker.
    pub fn participant(self) -> Option<&'static Participant> {
        topology::named(self.0)
    }

    /// The port that the documentation names.
    fn standard_port(self) -> u16 {
        self.participant().map_or(NATS_PORT, |participant| participant.port)
    }

    /// Their names in one line.
    pub fn names(members: impl IntoIterator<Item = Self>) -> String {
        members.into_iter().map(|member| member.to_string()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl FromStr for Member {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::all().find(|member| member.0 == name).ok_or_else(|| format!("there is no {name:?} here"))
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
        Self::parser_of(Self::all())
    }
}

/// The port of the broker that the documentation names.
const NATS_PORT: u16 = 4222;

/// Where each listens, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ports(BTreeMap<String, u16>);

impl Ports {
    /// The ports that the documentation names.
    pub fn standard() -> Self {
        Self(Member::all().map(|member| (member.0.to_owned(), member.standard_port())).collect())
    }

    /// Ports in a row, the broker's last. `base` is at most 65530.
    pub fn from_base(base: u16) -> Self {
        let names = PARTICIPANTS.iter().map(|participant| participant.name).chain([Member::NATS.0]);
        Self(names.map(str::to_owned).zip(base..=u16::MAX).collect())
    }

    /// Where this one listens. One that there was not yet when the system was made is where the documentation says.
    pub fn of(&self, member: Member) -> u16 {
        self.0.get(member.0).copied().unwrap_or_else(|| member.standard_port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_starts_after_those_it_waits_for() {
        let names = Member::names(Member::all());
        assert_eq!(names, "nats, bank, order, inventory, payment, admin");
        for named in [Member::ADMIN, Member::ORDER, Member::INVENTORY] {
            assert!(named.participant().is_some(), "{named} is one of them");
        }
    }

    #[test]
    fn ports_stand_in_a_row_from_their_base_on_the_broker_last() {
        let ports = |ports: Ports| Member::all().map(|member| ports.of(member)).collect::<Vec<_>>();
        assert_eq!(ports(Ports::standard()), [4222, 8084, 8081, 8082, 8083, 8080]);
        assert_eq!(ports(Ports::from_base(7000)), [7005, 7004, 7001, 7002, 7003, 7000]);
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
