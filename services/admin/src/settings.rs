//! Pure: settings of the admin service (section `service`).

use std::collections::BTreeMap;
use std::time::Duration;

use contract::topology;
use humantime_serde::re::humantime;
use serde::{Deserialize, Serialize};

use crate::notifications::settings::NotificationSettings;
use crate::topology::NAME;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdminSettings {
    /// Rejects changes without an operator's name.
    #[serde(default)]
    pub require_operator: bool,
    /// Time between two automatic reconciliations, or `off`.
    #[serde(default)]
    pub reconcile_every: ReconcileEvery,
    /// Time between two full verifications. The reconciliations in between are incremental.
    #[serde(default = "a_day", with = "humantime_serde")]
    pub full_verification_every: Duration,
    /// Number of orders below which every reconciliation is a full verification, as that takes a second.
    #[serde(default = "few_orders")]
    pub full_verification_below: u64,
    #[serde(default)]
    pub notifications: NotificationSettings,
    #[serde(default)]
    pub links: Links,
    /// Addresses of the other services: `order = "http://…"` and so on.
    #[serde(flatten)]
    pub addresses: Addresses,
}

/// Base addresses of the links on dashboards.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Links {
    /// This service, as a browser reaches it.
    pub admin: String,
    /// The runbooks, where the team reads them.
    pub runbooks: String,
}

impl Default for Links {
    fn default() -> Self {
        Self { admin: "http://localhost:8080".to_owned(), runbooks: "docs/runbooks".to_owned() }
    }
}

const fn a_day() -> Duration {
    Duration::from_hours(24)
}

const fn few_orders() -> u64 {
    20_000
}

/// Time between two automatic reconciliations; `None` when they are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ReconcileEvery(pub Option<Duration>);

const OFF: &str = "off";

const MIN_RECONCILE_EVERY: Duration = Duration::from_millis(100);

impl Default for ReconcileEvery {
    fn default() -> Self {
        Self(Some(Duration::from_mins(15)))
    }
}

impl TryFrom<String> for ReconcileEvery {
    type Error = String;

    fn try_from(given: String) -> Result<Self, String> {
        if given == OFF {
            return Ok(Self(None));
        }
        match humantime::parse_duration(&given) {
            Ok(every) if every >= MIN_RECONCILE_EVERY => Ok(Self(Some(every))),
            Ok(_) => Err(format!("service.reconcile_every is {given:?}, and must be at least 100ms")),
            Err(_) => {
                Err(format!("service.reconcile_every is {given:?}, which is neither a duration nor off"))
            }
        }
    }
}

impl From<ReconcileEvery> for String {
    fn from(ReconcileEvery(every): ReconcileEvery) -> Self {
        every.map_or_else(|| OFF.to_owned(), |every| humantime::format_duration(every).to_string())
    }
}

/// Address of every other participant, by name. The default is its own port on this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Addresses(BTreeMap<String, String>);

impl Addresses {
    pub fn of(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl TryFrom<BTreeMap<String, String>> for Addresses {
    type Error = String;

    fn try_from(given: BTreeMap<String, String>) -> Result<Self, String> {
        let others = topology::PARTICIPANTS.iter().filter(|participant| participant.name != NAME);
        let mut addresses: BTreeMap<_, _> =
            others.map(|other| (other.name.to_owned(), format!("http://127.0.0.1:{}", other.port))).collect();
        for (name, address) in given {
            match addresses.get_mut(&name) {
                Some(known) => *known = address,
                None => return Err(format!("service.{name} is neither a setting of admin nor a service")),
            }
        }
        Ok(Self(addresses))
    }
}

impl From<Addresses> for BTreeMap<String, String> {
    fn from(Addresses(addresses): Addresses) -> Self {
        addresses
    }
}
