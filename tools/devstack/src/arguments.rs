//! Shell: command-line arguments of the processes of a local system.

use contract::topology::Participant;

use super::component::Component;
use super::plan::StoreKind;
use super::postgres;
use super::system::System;
use super::users;

impl System {
    pub fn arguments_of(&self, component: Component) -> Vec<String> {
        match component.kind() {
            Component::NATS => {
                vec!["--config".to_owned(), self.broker_config(component).display().to_string()]
            }
            Component::POSTGRES => postgres::arguments(self),
            Component::PROXY => {
                vec!["--data".to_owned(), self.folder().display().to_string(), "proxy".to_owned()]
            }
            _ => {
                let settings =
                    component.participant().into_iter().flat_map(|it| self.service_settings(component, it));
                settings.flat_map(|setting| ["--set".to_owned(), setting]).collect()
            }
        }
    }

    fn service_settings(&self, component: Component, participant: &Participant) -> Vec<String> {
        let mut settings = vec![
            format!("http.bind=127.0.0.1:{}", self.port_of(component)),
            format!("store.url={}", self.store_url_of(component)),
            "log.format=json".to_owned(),
            format!("log.file={}", self.log_of(component).display()),
            // For trying things out. Later settings override it.
            "faults.enabled=true".to_owned(),
        ];
        if self.layout().store == StoreKind::Postgres {
            settings.push(format!("store.password_file={}", self.password_of(component).display()));
        }
        if component.kind() != component {
            settings.push(format!("instance={component}"));
        }
        if self.tokens_file().exists() {
            settings.push(format!("http.tokens={}", self.tokens_file().display()));
            let own = users::callers().find(|(service, ..)| *service == participant.name);
            settings
                .extend(own.map(|(_, token, _)| format!("http.token={}", self.token_of(token).display())));
        }
        let called =
            Component::services().filter(|other| participant.calls.contains(&other.to_string().as_str()));
        settings.extend(called.map(|called| format!("service.{called}={}", self.url_of(called))));
        if participant.has_stream {
            settings.push(format!("bus.url={}", self.brokers_url()));
            settings.push(format!("bus.credentials={}", self.broker_key_of(participant.name).display()));
            let nodes = self.layout().nats_nodes;
            settings.extend((nodes > 1).then(|| format!("bus.replicas={nodes}")));
        }
        settings.extend(self.settings_of(component).cloned());
        settings
    }

    fn store_url_of(&self, component: Component) -> String {
        match self.layout().store {
            StoreKind::Sqlite => {
                let file = self.data_of(component).join(format!("{component}.db"));
                format!("sqlite:{}", file.display())
            }
            StoreKind::Postgres => postgres::url_of(component, self.port_of(Component::POSTGRES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::component::Ports;
    use crate::plan::{Layout, Plan, Setting};

    fn plan(layout: Layout) -> Plan {
        Plan {
            ports: Ports::from_base(7000),
            bin_dir: "/bin-dir".into(),
            nats_server: "/nats-server".into(),
            postgres_dir: None,
            layout,
            settings: [].into(),
        }
    }

    fn system(folder: &Path) -> System {
        let settings = ["order.service.deadline=5s".parse(), "bank.log.filter=debug".parse()];
        let settings = settings
            .into_iter()
            .map(|setting: Result<Setting, String>| setting.expect("a setting"))
            .collect();
        System::planned(folder, plan(Layout::default()).with(settings))
    }

    #[test]
    fn services_get_necessary_settings_and_then_those_of_the_user() {
        let order = system(Path::new("/data")).arguments_of(Component::ORDER).join(" ");
        let expected = "--set http.bind=127.0.0.1:7001 --set store.url=sqlite:/data/order/order.db \
            --set log.format=json --set log.file=/data/log/order.log --set faults.enabled=true --set bus.url=nats://127.0.0.1:7005 \
            --set bus.credentials=/data/credentials/order.nk --set service.deadline=5s";
        assert_eq!(order, expected);
        let bank = system(Path::new("/data")).arguments_of("bank".parse().expect("a component")).join(" ");
        assert!(!bank.contains("bus.url") && bank.ends_with("log.filter=debug"), "{bank}");
        let admin = system(Path::new("/data")).arguments_of(Component::ADMIN).join(" ");
        assert!(admin.contains("service.payment=http://127.0.0.1:7003"), "{admin}");
    }

    #[test]
    fn replica_has_its_own_name_and_port_and_calls_others_at_shared_ports() {
        let layout = Layout { store: StoreKind::Postgres, replicas: 2, nats_nodes: 3 };
        let settings = ["order.a=1", "order-2.b=2"].map(|setting| setting.parse().expect("a setting"));
        let system = System::planned(Path::new("/data"), plan(layout).with(settings.into()));
        let of = |name: &str| system.arguments_of(name.parse().expect("a component")).join(" ");
        let (one, two, admin) = (of("order-1"), of("order-2"), of("admin-1"));
        for expected in [
            "http.bind=127.0.0.1:7021",
            "store.url=postgres://saga_order@127.0.0.1:7006/saga_order?sslmode=disable",
            "store.password_file=/data/credentials/order.password",
            "instance=order-2",
            "bus.url=nats://127.0.0.1:7015,nats://127.0.0.1:7025,nats://127.0.0.1:7035",
            "bus.replicas=3",
        ] {
            assert!(two.contains(expected), "{expected}: {two}");
        }
        assert!(two.ends_with("--set a=1 --set b=2") && one.ends_with("--set a=1"), "{two}");
        assert!(admin.contains("service.payment=http://127.0.0.1:7003"), "{admin}");
    }
}
