//! Pure: the plan of a local system: layout, ports, programs and settings of its processes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::component::{Component, Ports};

/// Setting of a service or of one replica, written `SERVICE.KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub service: Component,
    flag: String,
}

impl Setting {
    /// True if both set the same.
    fn overrides(&self, flag: &str) -> bool {
        let key = |flag: &str| flag.split('=').next().map(str::to_owned);
        key(&self.flag) == key(flag)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.service, self.flag)
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.split_once('.').filter(|(_, flag)| flag.contains('=') && !flag.starts_with('='));
        let Some((name, flag)) = split else {
            return Err("write it like order.service.deadline=5s".to_owned());
        };
        match name.parse::<Component>() {
            Ok(service) if service.participant().is_some() => Ok(Self { service, flag: flag.to_owned() }),
            Ok(_) | Err(_) => Err(format!(
                "unknown service {name:?}; services are {}",
                Component::names(Component::services())
            )),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// A file for each service, used by one process.
    #[default]
    Sqlite,
    /// A database for each service on one server, shared by replicas.
    Postgres,
}

/// Number of processes of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub store: StoreKind,
    pub replicas: u8,
    /// Brokers; more than one form a cluster.
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
    /// If SQLite is combined with replicas.
    pub fn validated(self) -> Result<Self, String> {
        match self {
            Self { store: StoreKind::Sqlite, replicas: 2.., .. } => {
                Err("replicas cannot share a SQLite file: --replicas needs --store postgres".to_owned())
            }
            valid => Ok(valid),
        }
    }

    /// True if a system of the other layout can use the same data.
    pub fn has_same_data_as(self, other: Self) -> bool {
        (self.store, self.nats_nodes) == (other.store, other.nats_nodes)
    }

    /// Brokers and database server, which start before the services.
    pub fn infrastructure(self) -> impl Iterator<Item = Component> {
        let database = (self.store == StoreKind::Postgres).then_some(Component::POSTGRES);
        self.brokers().chain(database)
    }

    pub fn brokers(self) -> impl Iterator<Item = Component> {
        Component::NATS.replicas(self.nats_nodes)
    }

    pub fn services(self) -> impl Iterator<Item = Component> {
        Component::services().flat_map(move |service| service.replicas(self.replicas))
    }

    /// Load balancer; `None` without replicas.
    pub fn proxy(self) -> Option<Component> {
        (self.replicas > 1).then_some(Component::PROXY)
    }

    /// All processes in start order.
    pub fn components(self) -> impl Iterator<Item = Component> {
        self.infrastructure().chain(self.services()).chain(self.proxy())
    }
}

/// Parameters of the last start, kept in the data folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub ports: Ports,
    /// Folder of the services' programs.
    pub bin_dir: PathBuf,
    pub nats_server: PathBuf,
    /// Folder of the database server's programs, if the layout has one.
    pub postgres_dir: Option<PathBuf>,
    pub layout: Layout,
    /// Settings in addition to the necessary ones.
    pub settings: BTreeMap<Component, Vec<String>>,
}

impl Plan {
    pub fn with(mut self, settings: Vec<Setting>) -> Self {
        for setting in settings {
            self.settings.entry(setting.service).or_default().push(setting.flag);
        }
        self
    }

    /// True if the plan has this setting, with this value.
    pub fn has(&self, setting: &Setting) -> bool {
        let planned = self.settings.get(&setting.service).into_iter().flatten();
        planned.rev().find(|flag| setting.overrides(flag)) == Some(&setting.flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_a_service_a_key_or_a_value_are_rejected() {
        for bad in ["order", "order.x", "nats.x=1", "shop.x=1", "order.=1", "=1"] {
            assert!(bad.parse::<Setting>().is_err(), "{bad}");
        }
    }

    #[test]
    fn last_value_of_a_setting_counts() {
        let setting = |text: &str| text.parse::<Setting>().expect("a setting");
        let settings = ["order.x=1", "order.xy=3", "order.x=2", "bank.x=1"].map(setting).to_vec();
        let plan = Plan {
            ports: Ports::STANDARD,
            bin_dir: PathBuf::new(),
            nats_server: PathBuf::new(),
            postgres_dir: None,
            layout: Layout::default(),
            settings: BTreeMap::new(),
        };
        let plan = plan.with(settings);
        let has = |text: &str| plan.has(&setting(text));
        assert!(has("order.x=2") && has("order.xy=3") && has("bank.x=1"));
        assert!(!has("order.x=1") && !has("bank.x=2") && !has("admin.x=1"));
    }

    #[test]
    fn infrastructure_starts_before_the_services_and_the_proxy_after_them() {
        let names = |layout: Layout| Component::names(layout.components());
        assert_eq!(names(Layout::default()), "nats, bank, order, inventory, payment, admin");
        let large = Layout { store: StoreKind::Postgres, replicas: 2, nats_nodes: 3 };
        assert_eq!(
            names(large),
            "nats-1, nats-2, nats-3, postgres, bank-1, bank-2, order-1, order-2, inventory-1, inventory-2, payment-1, \
             payment-2, admin-1, admin-2, proxy"
        );
        assert_eq!(large.validated(), Ok(large));
        assert!(Layout { store: StoreKind::Sqlite, ..large }.validated().is_err());
    }
}
