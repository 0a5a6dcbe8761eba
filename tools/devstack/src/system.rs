//! Shell: a local system: where its data, logs and programs are, and what its processes are started with.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use saga_engine::nats::BusSettings;

use super::folder::{PLAN_FILE, unwritable, write_private, write_whole};
use super::member::{Member, Ports};
use super::plan::{Layout, Plan};
use super::reach::Reach;
use super::users::SAGACTL;
use cli::exit;
use client::access::{Entry, token_in};

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
            for member in self.members() {
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

    /// Of what it consists.
    pub const fn layout(&self) -> Layout {
        self.plan.layout
    }

    /// All its processes, in the order in which they start.
    pub fn members(&self) -> impl Iterator<Item = Member> + use<> {
        self.plan.layout.members()
    }

    /// One of its processes.
    ///
    /// # Errors
    /// When it has none of this name, though another system has.
    pub fn checked(&self, member: Member) -> anyhow::Result<Member> {
        if self.members().any(|own| own == member) {
            return Ok(member);
        }
        let alike: Vec<_> = self.members().filter(|own| own.kind() == member.kind()).collect();
        let alike = if alike.is_empty() { self.members().collect() } else { alike };
        Err(exit::refuse(format!("there is no process {member} here: name one of {}", Member::names(alike))))
    }

    /// The processes that a name means: of several replicas all, when it is their service's.
    ///
    /// # Errors
    /// As [`System::checked`].
    pub fn named(&self, member: Member) -> anyhow::Result<Vec<Member>> {
        let alike: Vec<_> = self.members().filter(|own| own.kind() == member).collect();
        if alike.is_empty() { self.checked(member).map(|member| vec![member]) } else { Ok(alike) }
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

    /// All ports at which one process listens.
    pub fn ports_of(&self, member: Member) -> Vec<u16> {
        let own = self.port_of(member);
        match member.kind() {
            Member::FRONT => Member::services().map(|service| self.port_of(service)).chain([own]).collect(),
            Member::NATS if self.layout().nats_nodes > 1 => vec![own, self.ports().routes_of(member)],
            _ => vec![own],
        }
    }

    /// Where one process is, or all replicas of a service together.
    pub fn url_of(&self, member: Member) -> String {
        let scheme = match member.kind() {
            Member::NATS => "nats",
            Member::POSTGRES => "postgres",
            _ => "http",
        };
        format!("{scheme}://127.0.0.1:{}", self.port_of(member))
    }

    /// All brokers, in one word.
    pub fn brokers_url(&self) -> String {
        self.layout().brokers().map(|broker| self.url_of(broker)).collect::<Vec<_>>().join(",")
    }

    pub fn program_of(&self, member: Member) -> PathBuf {
        match member.kind() {
            Member::NATS => self.plan.nats_server.clone(),
            Member::POSTGRES => self.plan.postgres_dir.clone().unwrap_or_default().join("postgres"),
            Member::FRONT => self.plan.bin_dir.join("sagactl"),
            service => self.plan.bin_dir.join(service.to_string()),
        }
    }

    pub fn broker_config(&self, broker: Member) -> PathBuf {
        self.data_of(broker).join("nats.conf")
    }

    /// The file with the password by which a service gets in at the database server.
    pub fn password_of(&self, service: Member) -> PathBuf {
        self.credentials_dir().join(format!("{}.password", service.kind()))
    }

    /// What was asked for of a service, and then of this one of it.
    pub fn settings_of(&self, member: Member) -> impl Iterator<Item = &String> {
        let asked = |member| self.plan.settings.get(&member).into_iter().flatten();
        let own = (member.kind() != member).then_some(member);
        asked(member.kind()).chain(own.into_iter().flat_map(asked))
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
        BusSettings { url: self.brokers_url(), credentials, ..BusSettings::default() }
    }

    /// Where its services are, and how this program gets in.
    pub fn reach(&self) -> anyhow::Result<Reach> {
        Ok(Reach::here(self.plan.ports.clone(), self.bus_settings_of(SAGACTL), self.entry()?))
    }
}

/// How the variables begin that set something of a service.
fn variables_of(member: Member) -> String {
    format!("{}__", member.kind().to_string().to_uppercase())
}
