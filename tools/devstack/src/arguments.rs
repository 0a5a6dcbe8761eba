//! Shell: with what the processes of a local system are started.

use contract::topology::{OPERATOR, Participant};
use saga_engine::nats::BusSettings;

use super::member::Member;
use super::plan::StoreKind;
use super::postgres;
use super::system::System;
use super::users::INTERNAL;

impl System {
    /// What one process is started with.
    pub fn arguments_of(&self, member: Member) -> Vec<String> {
        match member.kind() {
            Member::NATS => vec!["--config".to_owned(), self.broker_config(member).display().to_string()],
            Member::POSTGRES => postgres::arguments(self),
            Member::FRONT => {
                vec!["--data".to_owned(), self.folder().display().to_string(), "front".to_owned()]
            }
            _ => {
                let settings =
                    member.participant().into_iter().flat_map(|it| self.service_settings(member, it));
                settings.flat_map(|setting| ["--set".to_owned(), setting]).collect()
            }
        }
    }

    fn service_settings(&self, member: Member, participant: &Participant) -> Vec<String> {
        let mut settings = vec![
            format!("http.bind=127.0.0.1:{}", self.port_of(member)),
            format!("store.url={}", self.store_url_of(member)),
            "log.format=json".to_owned(),
            format!("log.file={}", self.log_of(member).display()),
            // A local system is for trying things out. What is asked for stands behind it, and wins.
            "faults.enabled=true".to_owned(),
        ];
        if self.layout().store == StoreKind::Postgres {
            settings.push(format!("store.password_file={}", self.password_of(member).display()));
        }
        if member.kind() != member {
            settings.push(format!("instance={member}"));
        }
        if self.tokens_file().exists() {
            settings.push(format!("http.tokens={}", self.tokens_file().display()));
            if participant.name == OPERATOR {
                settings.push(format!("http.token={}", self.token_of(INTERNAL).display()));
            }
        }
        let called =
            Member::services().filter(|other| participant.calls.contains(&other.to_string().as_str()));
        settings.extend(called.map(|called| format!("service.{called}={}", self.url_of(called))));
        if participant.has_stream {
            let BusSettings { url, credentials, .. } = self.bus_settings_of(participant.name);
            settings.push(format!("bus.url={url}"));
            settings.extend(credentials.map(|file| format!("bus.credentials={}", file.display())));
            let nodes = self.layout().nats_nodes;
            settings.extend((nodes > 1).then(|| format!("bus.replicas={nodes}")));
        }
        settings.extend(self.settings_of(member).cloned());
        settings
    }

    fn store_url_of(&self, member: Member) -> String {
        match self.layout().store {
            StoreKind::Sqlite => {
                let file = self.data_of(member).join(format!("{member}.db"));
                format!("sqlite:{}", file.display())
            }
            StoreKind::Postgres => postgres::url_of(member, self.port_of(Member::POSTGRES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::member::Ports;
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

    /// The system of an earlier build has none, and goes on as it is.
    #[test]
    fn a_service_is_told_of_its_credentials_once_there_are_any() {
        let folder = tempfile::tempdir().expect("a folder");
        let system = system(folder.path());
        let settings = |member| system.arguments_of(member).join(" ");
        assert!(!settings(Member::ORDER).contains("bus.credentials"));
        fs::create_dir(system.credentials_dir()).expect("a folder");
        let file = system.credentials_of("order");
        fs::write(&file, "SU").expect("a file");
        assert!(settings(Member::ORDER).contains(&format!("--set bus.credentials={}", file.display())));
        assert!(!settings(Member::ADMIN).contains("bus.credentials"), "each has its own");
    }

    #[test]
    fn a_service_gets_what_it_needs_and_what_was_asked_for() {
        let order = system(Path::new("/data")).arguments_of(Member::ORDER).join(" ");
        let wanted = "--set http.bind=127.0.0.1:7001 --set store.url=sqlite:/data/order/order.db \
            --set log.format=json --set log.file=/data/log/order.log --set faults.enabled=true --set bus.url=nats://127.0.0.1:7005 --set service.deadline=5s";
        assert_eq!(order, wanted);
        let bank = system(Path::new("/data")).arguments_of("bank".parse().expect("a member")).join(" ");
        assert!(!bank.contains("bus.url") && bank.ends_with("log.filter=debug"), "{bank}");
        let admin = system(Path::new("/data")).arguments_of(Member::ADMIN).join(" ");
        assert!(admin.contains("service.payment=http://127.0.0.1:7003"), "{admin}");
    }

    #[test]
    fn a_replica_has_its_name_and_its_port_and_finds_the_others_by_those_that_they_share() {
        let layout = Layout { store: StoreKind::Postgres, replicas: 2, nats_nodes: 3 };
        let settings = ["order.a=1", "order-2.b=2"].map(|setting| setting.parse().expect("a setting"));
        let system = System::planned(Path::new("/data"), plan(layout).with(settings.into()));
        let of = |name: &str| system.arguments_of(name.parse().expect("a member")).join(" ");
        let (one, two, admin) = (of("order-1"), of("order-2"), of("admin-1"));
        for wanted in [
            "http.bind=127.0.0.1:7021",
            "store.url=postgres://saga_order@127.0.0.1:7006/saga_order?sslmode=disable",
            "store.password_file=/data/credentials/order.password",
            "instance=order-2",
            "bus.url=nats://127.0.0.1:7015,nats://127.0.0.1:7025,nats://127.0.0.1:7035",
            "bus.replicas=3",
        ] {
            assert!(two.contains(wanted), "{wanted}: {two}");
        }
        assert!(two.ends_with("--set a=1 --set b=2") && one.ends_with("--set a=1"), "{two}");
        assert!(admin.contains("service.payment=http://127.0.0.1:7003"), "{admin}");
    }
}
