//! Shell: a local system: where its data, logs and programs are, and what its processes are started with.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use contract::topology::OPERATOR;
use saga_engine::nats::BusSettings;

use super::folder::{PLAN_FILE, unwritable, write_private, write_whole};
use super::member::{Member, Ports};
use super::plan::Plan;
use super::reach::Reach;
use super::users::{INTERNAL, SAGACTL};
use crate::entry::{Entry, token_in};

/// A local system: its folder, an absolute path, and its plan.
#[derive(Debug, Clone)]
pub struct System {
    folder: PathBuf,
    plan: Plan,
}

impl System {
    /// The system that was started in `folder`.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        match Self::find(folder)? {
            Some(system) => Ok(system),
            None => bail!(
                "no system in {}: start one with scripts/up.sh, or name its folder with --data",
                folder.display()
            ),
        }
    }

    /// The same, for what an admin elsewhere can be asked as well.
    pub fn to_ask(folder: &Path) -> anyhow::Result<Self> {
        Self::find(folder)?.with_context(|| {
            format!(
                "no system in {}: start one with scripts/up.sh, name its folder with --data, or an admin with --admin",
                folder.display()
            )
        })
    }

    /// The same, or `None` when nothing was ever started there.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Self>> {
        let file = folder.join(PLAN_FILE);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
        };
        let plan = serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} is damaged; remove that file, and `up` writes it anew: the databases stay",
                file.display()
            )
        })?;
        Ok(Some(Self { folder: folder.to_owned(), plan }))
    }

    /// A system that is not there yet.
    pub fn planned(folder: &Path, plan: Plan) -> Self {
        Self { folder: folder.to_owned(), plan }
    }

    /// Makes the folders and writes the plan, to be called under the folder's lock.
    pub fn create(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(&self.plan)?;
        let make = || -> io::Result<()> {
            for member in Member::all() {
                fs::create_dir_all(self.data_of(member))?;
            }
            fs::create_dir_all(self.log_dir())?;
            fs::create_dir_all(self.folder.join("run"))?;
            write_whole(&self.folder.join(PLAN_FILE), &text)
        };
        make().with_context(|| unwritable(&self.folder))
    }

    /// The same, with one more setting of a member; nothing of it is kept.
    pub fn with(mut self, member: Member, setting: String) -> Self {
        self.plan.settings.entry(member).or_default().push(setting);
        self
    }

    /// Where each listens.
    pub fn ports(&self) -> &Ports {
        &self.plan.ports
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn log_dir(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The log that the process itself keeps, and keeps small; older parts lie beside it.
    pub fn log_of(&self, member: Member) -> PathBuf {
        self.log_dir().join(format!("{member}.log"))
    }

    /// What the process says before its log is there, and when it can say nothing there any more.
    pub fn stderr_of(&self, member: Member) -> PathBuf {
        self.log_dir().join(format!("{member}.err"))
    }

    pub fn pid_file_of(&self, member: Member) -> PathBuf {
        self.folder.join("run").join(format!("{member}.pid"))
    }

    pub fn data_of(&self, member: Member) -> PathBuf {
        self.folder.join(member.to_string())
    }

    pub fn port_of(&self, member: Member) -> u16 {
        self.plan.ports.of(member)
    }

    pub fn url_of(&self, member: Member) -> String {
        let scheme = if member == Member::NATS { "nats" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port_of(member))
    }

    pub fn program_of(&self, member: Member) -> PathBuf {
        match member.participant() {
            None => self.plan.nats_server.clone(),
            Some(participant) => self.plan.bin_dir.join(participant.name),
        }
    }

    pub fn broker_config(&self) -> PathBuf {
        self.data_of(Member::NATS).join("nats.conf")
    }

    /// The file by which a user gets in at the broker: a service, or this program.
    pub fn credentials_of(&self, user: &str) -> PathBuf {
        self.credentials_dir().join(format!("{user}.nk"))
    }

    /// Not there in the folder of a system that an earlier build made, until the next `up`.
    pub fn credentials_dir(&self) -> PathBuf {
        self.folder.join("credentials")
    }

    /// The file of the tokens. Not there while tokens are off.
    pub fn tokens_file(&self) -> PathBuf {
        self.credentials_dir().join("tokens.json")
    }

    /// Settings of services in the environment of `up`: there may be secrets among them.
    fn environment_file(&self) -> PathBuf {
        self.credentials_dir().join("environment.json")
    }

    /// Keeps what the environment sets of services, so that one that is started again has it too.
    pub fn keep_environment(&self) -> anyhow::Result<()> {
        let is_setting = |(name, _): &(String, String)| {
            Member::services().any(|member| name.starts_with(&variables_of(member)))
        };
        let said =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let kept: BTreeMap<_, _> = env::vars_os().filter_map(said).filter(is_setting).collect();
        let file = self.environment_file();
        write_private(&file, &serde_json::to_vec(&kept)?)
            .with_context(|| format!("{} cannot be written", file.display()))
    }

    /// What was kept of it for one of them. What the environment sets now comes first.
    pub fn environment_of(&self, member: Member) -> anyhow::Result<BTreeMap<String, String>> {
        let file = self.environment_file();
        let mut kept: BTreeMap<String, String> = match fs::read(&file) {
            // Of a system that an earlier build made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
            Ok(text) => {
                serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display()))?
            }
        };
        kept.retain(|name, _| name.starts_with(&variables_of(member)) && env::var_os(name).is_none());
        Ok(kept)
    }

    /// The file with a token that the system has for itself: admin's, or this program's.
    pub fn token_of(&self, name: &str) -> PathBuf {
        self.credentials_dir().join(format!("{name}.token"))
    }

    /// How this program gets in at its admin.
    pub fn entry(&self) -> anyhow::Result<Entry> {
        let file = Some(self.token_of(SAGACTL)).filter(|_| self.tokens_file().exists());
        let token = |file: PathBuf| token_in(&file).with_context(|| file.display().to_string());
        Ok(Entry { token: file.map(token).transpose()?, authorities: None })
    }

    /// How this program itself, or a service, is to go to the broker.
    pub fn bus_settings_of(&self, user: &str) -> BusSettings {
        let credentials = Some(self.credentials_of(user)).filter(|file| file.exists());
        BusSettings { url: self.url_of(Member::NATS), credentials, ..BusSettings::default() }
    }

    /// Where its services are, and how this program gets in.
    pub fn reach(&self) -> anyhow::Result<Reach> {
        Ok(Reach::here(self.plan.ports.clone(), self.bus_settings_of(SAGACTL), self.entry()?))
    }

    /// What one process is started with.
    pub fn arguments_of(&self, member: Member) -> Vec<String> {
        let Some(participant) = member.participant() else {
            return vec!["--config".to_owned(), self.broker_config().display().to_string()];
        };
        let database = self.data_of(member).join(format!("{member}.db"));
        let mut settings = vec![
            format!("http.bind=127.0.0.1:{}", self.port_of(member)),
            format!("store.url=sqlite:{}", database.display()),
            "log.format=json".to_owned(),
            format!("log.file={}", self.log_of(member).display()),
            // A local system is for trying things out. What is asked for stands behind it, and wins.
            "faults.enabled=true".to_owned(),
        ];
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
        }
        settings.extend(self.plan.settings.get(&member).into_iter().flatten().cloned());
        settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
    }
}

/// How the variables begin that set something of a service.
fn variables_of(member: Member) -> String {
    format!("{}__", member.to_string().to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::plan::Setting;

    fn system() -> System {
        let settings = ["order.service.deadline=5s".parse(), "bank.log.filter=debug".parse()];
        let settings = settings
            .into_iter()
            .map(|setting: Result<Setting, String>| setting.expect("a setting"))
            .collect();
        let plan = Plan::new(Ports::from_base(7000), "/bin-dir".into(), "/nats-server".into(), settings);
        System { folder: "/data".into(), plan }
    }

    /// The system of an earlier build has none, and goes on as it is.
    #[test]
    fn a_service_is_told_of_its_credentials_once_there_are_any() {
        let folder = tempfile::tempdir().expect("a folder");
        let system = System { folder: folder.path().to_owned(), ..system() };
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
        let order = system().arguments_of(Member::ORDER).join(" ");
        let wanted = "--set http.bind=127.0.0.1:7001 --set store.url=sqlite:/data/order/order.db \
            --set log.format=json --set log.file=/data/log/order.log --set faults.enabled=true --set bus.url=nats://127.0.0.1:7005 --set service.deadline=5s";
        assert_eq!(order, wanted);
        let bank = system().arguments_of("bank".parse().expect("a member")).join(" ");
        assert!(!bank.contains("bus.url") && bank.ends_with("log.filter=debug"), "{bank}");
        let admin = system().arguments_of(Member::ADMIN).join(" ");
        assert!(admin.contains("service.payment=http://127.0.0.1:7003"), "{admin}");
    }
}
