//! Shell: addresses of the services and of the broker, and the credentials for them.

use std::path::Path;

use client::access::{Access, token_in};
use saga_engine::nats::BusSettings;

use super::component::{Component, Ports};
use super::users::{KEY, TOKEN};

/// Addresses and credentials of a system: on this machine, or in a network of containers.
#[derive(Debug, Clone)]
pub struct Endpoints {
    ports: Ports,
    is_by_name: bool,
    /// Settings for reading the streams.
    pub bus: BusSettings,
    /// Access of sagactl to the services.
    pub access: Access,
}

impl Endpoints {
    pub fn local(ports: Ports, bus: BusSettings, access: Access) -> Self {
        Self { ports, is_by_name: false, bus, access }
    }

    /// Services at hosts of their own names. `credentials` is the folder with those of sagactl.
    pub fn by_name(credentials: Option<&Path>) -> anyhow::Result<Self> {
        let token = credentials.map(|folder| token_in(&folder.join(TOKEN))).transpose()?;
        let endpoints = Self {
            ports: Ports::STANDARD,
            is_by_name: true,
            bus: BusSettings::default(),
            access: Access { token, ..Access::default() },
        };
        let credentials = credentials.map(|folder| folder.join(KEY));
        let url = format!("nats://{}", endpoints.authority_of(Component::NATS));
        Ok(Self { bus: BusSettings { url, credentials, ..BusSettings::default() }, ..endpoints })
    }

    pub fn authority_of(&self, component: Component) -> String {
        let port = self.ports.of(component);
        match self.is_by_name {
            true => format!("{component}:{port}"),
            false => format!("127.0.0.1:{port}"),
        }
    }

    pub fn url_of(&self, service: Component) -> String {
        format!("http://{}", self.authority_of(service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_on_this_machine_or_at_hosts_of_their_own_names() {
        let local = Endpoints::local(Ports::from_base(7000), BusSettings::default(), Access::default());
        assert_eq!(local.url_of(Component::ORDER), "http://127.0.0.1:7001");
        let by_name = Endpoints::by_name(None).expect("no file is read");
        assert_eq!(by_name.url_of(Component::ORDER), "http://order:8081");
        assert_eq!(by_name.bus.url, "nats://nats:4222");
        assert!(Endpoints::by_name(Some(Path::new("/not/there"))).is_err(), "a named folder must exist");
    }
}
