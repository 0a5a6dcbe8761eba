//! Shell: where the services of a system are, and how this program gets in at them and at their broker.

use std::path::Path;

use saga_engine::nats::BusSettings;

use super::member::{Member, Ports};
use super::users::{KEY, TOKEN};
use client::access::{Entry, token_in};

/// Where everything is: on this machine, or at hosts of their own.
#[derive(Debug, Clone)]
pub struct Reach {
    ports: Ports,
    is_by_name: bool,
    /// How this program reads the streams.
    pub bus: BusSettings,
    /// How it gets in at admin.
    pub entry: Entry,
}

impl Reach {
    /// Services of this machine.
    pub fn here(ports: Ports, bus: BusSettings, entry: Entry) -> Self {
        Self { ports, is_by_name: false, bus, entry }
    }

    /// Services at hosts of their own names; `credentials` is the folder with this program's own.
    pub fn by_name(credentials: Option<&Path>) -> anyhow::Result<Self> {
        let token = credentials.map(|folder| token_in(&folder.join(TOKEN))).transpose()?;
        let reach = Self {
            ports: Ports::standard(),
            is_by_name: true,
            bus: BusSettings::default(),
            entry: Entry { token, ..Entry::default() },
        };
        let credentials = credentials.map(|folder| folder.join(KEY));
        let url = format!("nats://{}", reach.authority_of(Member::NATS));
        Ok(Self { bus: BusSettings { url, credentials, ..BusSettings::default() }, ..reach })
    }

    /// Host and port.
    pub fn authority_of(&self, member: Member) -> String {
        let port = self.ports.of(member);
        match self.is_by_name {
            true => format!("{member}:{port}"),
            false => format!("127.0.0.1:{port}"),
        }
    }

    pub fn url_of(&self, service: Member) -> String {
        format!("http://{}", self.authority_of(service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_on_this_machine_or_at_hosts_of_their_own_names() {
        let here = Reach::here(Ports::from_base(7000), BusSettings::default(), Entry::default());
        assert_eq!(here.url_of(Member::ORDER), "http://127.0.0.1:7001");
        let elsewhere = Reach::by_name(None).expect("no file is read");
        assert_eq!(elsewhere.url_of(Member::ORDER), "http://order:8081");
        assert_eq!(elsewhere.bus.url, "nats://nats:4222");
        assert!(
            Reach::by_name(Some(Path::new("/not/there"))).is_err(),
            "who names a folder means what is there"
        );
    }
}
