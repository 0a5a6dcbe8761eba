//! Pure: how the processes of a local system are started.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::member::{Member, Ports};

/// A setting of one service, or of one of its replicas, as people write it: `SERVICE.KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    service: Member,
    flag: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.split_once('.').filter(|(_, flag)| flag.contains('=') && !flag.starts_with('='));
        let Some((name, flag)) = split else {
            return Err("write it like order.service.deadline=5s".to_owned());
        };
        match name.parse::<Member>() {
            Ok(service) if service.participant().is_some() => Ok(Self { service, flag: flag.to_owned() }),
            Ok(_) | Err(_) => Err(format!(
                "there is no service {name:?}; services are {}",
                Member::names(Member::services())
            )),
        }
    }
}

/// Where the services keep their data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// Each in a file of its own, which one process uses.
    #[default]
    Sqlite,
    /// Each in a database of its own, on one server of the system, which several processes may use.
    Postgres,
}

/// Of what a system consists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Layout {
    /// Where the services keep their data.
    pub store: StoreKind,
    /// Processes of each service.
    pub replicas: u8,
    /// Brokers, which are one cluster.
    pub nats_nodes: u8,
}

impl Default for Layout {
    fn default() -> Self {
        Self { store: StoreKind::Sqlite, replicas: 1, nats_nodes: 1 }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, nats_nodes, .. } = self;
        let store = match store {
            StoreKind::Sqlite => "sqlite",
            StoreKind::Postgres => "postgres",
        };
        write!(f, "--store {store} --nats-nodes {nats_nodes}")
    }
}

impl Layout {
    /// # Errors
    /// When there can be no such system.
    pub fn checked(self) -> Result<Self, String> {
        match self {
            Self { store: StoreKind::Sqlite, replicas: 2.., .. } => {
                Err("a file is for one process: --replicas needs --store postgres".to_owned())
            }
            possible => Ok(possible),
        }
    }

    /// Whether what such a system has kept can be read by one of the other layout.
    pub fn is_kept_by(self, other: Self) -> bool {
        (self.store, self.nats_nodes) == (other.store, other.nats_nodes)
    }

    /// What the services need: the brokers, and the database server.
    pub fn ground(self) -> impl Iterator<Item = Member> {
        let database = (self.store == StoreKind::Postgres).then_some(Member::POSTGRES);
        self.brokers().chain(database)
    }

    /// The brokers.
    pub fn brokers(self) -> impl Iterator<Item = Member> {
        Member::NATS.replicas(self.nats_nodes)
    }

    /// The processes of all services.
    pub fn services(self) -> impl Iterator<Item = Member> {
        Member::services().flat_map(move |service| service.replicas(self.replicas))
    }

    /// What spreads requests over them, where that is needed.
    pub fn front(self) -> Option<Member> {
        (self.replicas > 1).then_some(Member::FRONT)
    }

    /// All processes, in the order in which they start.
    pub fn members(self) -> impl Iterator<Item = Member> {
        self.ground().chain(self.services()).chain(self.front())
    }
}

/// What a folder keeps of how its system was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub ports: Ports,
    /// Where the services' programs are.
    pub bin_dir: PathBuf,
    pub nats_server: PathBuf,
    /// Where the programs of the database server are, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres_dir: Option<PathBuf>,
    #[serde(default)]
    pub layout: Layout,
    /// Settings beside the necessary ones.
    pub settings: BTreeMap<Member, Vec<String>>,
}

impl Plan {
    /// The same, with these settings.
    pub fn with(mut self, settings: Vec<Setting>) -> Self {
        for setting in settings {
            self.settings.entry(setting.service).or_default().push(setting.flag);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_names_a_service() {
        for bad in ["order", "order.x", "nats.x=1", "shop.x=1", "order.=1", "=1"] {
            assert!(bad.parse::<Setting>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_services_need_starts_before_them_and_the_front_after_them() {
        let names = |layout: Layout| Member::names(layout.members());
        assert_eq!(names(Layout::default()), "nats, bank, order, inventory, payment, admin");
        let large = Layout { store: StoreKind::Postgres, replicas: 2, nats_nodes: 3 };
        assert_eq!(
            names(large),
            "nats-1, nats-2, nats-3, postgres, bank-1, bank-2, order-1, order-2, inventory-1, inventory-2, payment-1, \
             payment-2, admin-1, admin-2, front"
        );
        assert_eq!(large.checked(), Ok(large));
        assert!(Layout { store: StoreKind::Sqlite, ..large }.checked().is_err());
    }

    /// A plan of an earlier build.
    #[test]
    fn a_plan_that_says_nothing_of_it_is_of_one_process_each() {
        let kept = r#"{"ports":{"nats":7005},"bin_dir":"/bin","nats_server":"/nats-server","settings":{"order":["a=1"]}}"#;
        let plan: Plan = serde_json::from_str(kept).expect("a plan");
        assert_eq!((plan.layout, plan.settings[&Member::ORDER].len()), (Layout::default(), 1));
    }
}
