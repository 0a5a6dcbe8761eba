//! Pure: how the processes of a local system are started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::member::{Member, Ports};

/// A setting of one service, as people write it: `SERVICE.KEY=VALUE`.
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
        match Member::services().find(|member| member.to_string() == name) {
            Some(service) => Ok(Self { service, flag: flag.to_owned() }),
            None => Err(format!(
                "there is no service {name:?}; services are {}",
                Member::names(Member::services())
            )),
        }
    }
}

/// What a folder keeps of how its system was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub ports: Ports,
    /// Where the services' programs are.
    pub bin_dir: PathBuf,
    pub nats_server: PathBuf,
    /// Settings beside the necessary ones.
    pub settings: BTreeMap<Member, Vec<String>>,
}

impl Plan {
    pub fn new(ports: Ports, bin_dir: PathBuf, nats_server: PathBuf, settings: Vec<Setting>) -> Self {
        let mut of_members: BTreeMap<Member, Vec<String>> = BTreeMap::new();
        for setting in settings {
            of_members.entry(setting.service).or_default().push(setting.flag);
        }
        Self { ports, bin_dir, nats_server, settings: of_members }
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
}
