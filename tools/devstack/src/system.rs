//! Shell: a local system: paths of its data, logs and programs, and addresses of its processes.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use cli::exit;
use client::access::{Access, token_in};
use saga_engine::nats::BusSettings;

use super::component::{Component, Ports};
use super::data_dir::{PLAN_FILE, unwritable, write_atomically};
use super::endpoints::Endpoints;
use super::plan::{Layout, Plan};
use super::secret_file::write_private;
use super::users::SAGACTL;

/// A local system: its folder, an absolute path, and its plan.
#[derive(Debug, Clone)]
pub struct System {
    folder: PathBuf,
    plan: Plan,
}

impl System {
    /// System that was started in `folder`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        match Self::find(folder)? {
            Some(system) => Ok(system),
            None => bail!(
                "no system in {}: start one with scripts/up.sh, or name its folder with --data",
                folder.display()
            ),
        }
    }

    /// System that was started in `folder`, for commands that also work with a remote admin.
    ///
    /// # Errors
    /// If there is none.
    pub fn open_or_suggest_admin(folder: &Path) -> anyhow::Result<Self> {
        Self::find(folder)?.with_context(|| {
            format!(
                "no system in {}: start one with scripts/up.sh, name its folder with --data, or an admin with --admin",
                folder.display()
            )
        })
    }

    /// System that was started in `folder`, if any.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Self>> {
        let file = folder.join(PLAN_FILE);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
        };
        let plan = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged: remove it, and `up` writes a new one; the databases stay", file.display())
        })?;
        Ok(Some(Self { folder: folder.to_owned(), plan }))
    }

    /// System that does not exist on disk yet.
    pub fn planned(folder: &Path, plan: Plan) -> Self {
        Self { folder: folder.to_owned(), plan }
    }

    /// Creates the folders and writes the plan. Call it with the folder's lock.
    pub fn create(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(&self.plan)?;
        let create = || -> io::Result<()> {
            for component in self.components() {
                fs::create_dir_all(self.data_of(component))?;
            }
            fs::create_dir_all(self.log_dir())?;
            fs::create_dir_all(self.folder.join("run"))?;
            write_atomically(&self.folder.join(PLAN_FILE), &text)
        };
        create().with_context(|| unwritable(&self.folder))
    }

    /// Adds a setting for this run only; the stored plan stays.
    pub fn with(mut self, component: Component, setting: String) -> Self {
        self.plan.settings.entry(component).or_default().push(setting);
        self
    }

    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    pub const fn layout(&self) -> Layout {
        self.plan.layout
    }

    /// All processes in start order.
    pub fn components(&self) -> impl Iterator<Item = Component> + use<> {
        self.plan.layout.components()
    }

    /// Checks that this system has such a process.
    ///
    /// # Errors
    /// If it has not; the error lists the processes of the same kind, or else all.
    pub fn checked(&self, component: Component) -> anyhow::Result<Component> {
        if self.components().any(|own| own == component) {
            return Ok(component);
        }
        let alike: Vec<_> = self.components().filter(|own| own.kind() == component.kind()).collect();
        let names = if alike.is_empty() { self.components().collect() } else { alike };
        Err(exit::rejected(format!("no process {component} here: name one of {}", Component::names(names))))
    }

    /// Processes of that name: all replicas of a service, or the one that is named.
    ///
    /// # Errors
    /// As [`System::checked`].
    pub fn named(&self, component: Component) -> anyhow::Result<Vec<Component>> {
        let replicas: Vec<_> = self.components().filter(|own| own.kind() == component).collect();
        if replicas.is_empty() { self.checked(component).map(|one| vec![one]) } else { Ok(replicas) }
    }

    pub const fn ports(&self) -> Ports {
        self.plan.ports
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn log_dir(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Log that the process writes and rotates itself.
    pub fn log_of(&self, component: Component) -> PathBuf {
        self.log_dir().join(format!("{component}.log"))
    }

    /// Standard output and error: what a process prints before it can write its log, or when it no longer can.
    pub fn stderr_of(&self, component: Component) -> PathBuf {
        self.log_dir().join(format!("{component}.err"))
    }

    pub fn pid_file_of(&self, component: Component) -> PathBuf {
        self.folder.join("run").join(format!("{component}.pid"))
    }

    pub fn data_of(&self, component: Component) -> PathBuf {
        self.folder.join(component.to_string())
    }

    pub fn port_of(&self, component: Component) -> u16 {
        self.plan.ports.of(component)
    }

    /// All ports at which a process listens.
    pub fn ports_of(&self, component: Component) -> Vec<u16> {
        let own = self.port_of(component);
        match component.kind() {
            Component::PROXY => Component::services().map(|service| self.port_of(service)).collect(),
            Component::NATS if self.layout().nats_nodes > 1 => vec![own, self.ports().route_of(component)],
            _ => vec![own],
        }
    }

    /// URL of a process, or of all replicas of a service together.
    pub fn url_of(&self, component: Component) -> String {
        let scheme = match component.kind() {
            Component::NATS => "nats",
            Component::POSTGRES => "postgres",
            _ => "http",
        };
        format!("{scheme}://127.0.0.1:{}", self.port_of(component))
    }

    /// URLs of all brokers, separated by commas.
    pub fn brokers_url(&self) -> String {
        self.layout().brokers().map(|broker| self.url_of(broker)).collect::<Vec<_>>().join(",")
    }

    pub fn program_of(&self, component: Component) -> PathBuf {
        match component.kind() {
            Component::NATS => self.plan.nats_server.clone(),
            Component::POSTGRES => self.plan.postgres_dir.clone().unwrap_or_default().join("postgres"),
            Component::PROXY => self.plan.bin_dir.join("sagactl"),
            service => self.plan.bin_dir.join(service.to_string()),
        }
    }

    pub fn broker_config(&self, broker: Component) -> PathBuf {
        self.data_of(broker).join("nats.conf")
    }

    /// Settings of the service, then those of this replica.
    pub fn settings_of(&self, component: Component) -> impl Iterator<Item = &String> {
        let set = |component| self.plan.settings.get(&component).into_iter().flatten();
        let own = (component.kind() != component).then_some(component);
        set(component.kind()).chain(own.into_iter().flat_map(set))
    }

    pub fn credentials_dir(&self) -> PathBuf {
        self.folder.join("credentials")
    }

    /// File with the database password of a service.
    pub fn password_of(&self, service: Component) -> PathBuf {
        self.credentials_dir().join(format!("{}.password", service.kind()))
    }

    /// File with the broker key of a service or of sagactl.
    pub fn broker_key_of(&self, user: &str) -> PathBuf {
        self.credentials_dir().join(format!("{user}.nk"))
    }

    /// File with the tokens. Does not exist while tokens are off.
    pub fn tokens_file(&self) -> PathBuf {
        self.credentials_dir().join("tokens.json")
    }

    /// File with the token of a service or of sagactl.
    pub fn token_of(&self, name: &str) -> PathBuf {
        self.credentials_dir().join(format!("{name}.token"))
    }

    /// File with the environment variables of `up` that set something of a service. They may be secrets.
    fn environment_file(&self) -> PathBuf {
        self.credentials_dir().join("environment.json")
    }

    /// Stores environment variables that set something of a service, for later starts of single processes.
    pub fn store_environment(&self) -> anyhow::Result<()> {
        let file = self.environment_file();
        write_private(&file, &serde_json::to_vec(&setting_variables())?)
            .with_context(|| format!("{} cannot be written", file.display()))
    }

    fn stored_environment(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let file = self.environment_file();
        let text = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display()))
    }

    /// Names of environment variables that set something of a service, and are set to something else than at the start.
    pub fn changed_environment(&self) -> Vec<String> {
        let stored = self.stored_environment().unwrap_or_default();
        let now = setting_variables().into_iter();
        now.filter(|(name, value)| stored.get(name) != Some(value)).map(|(name, _)| name).collect()
    }

    /// Stored variables of a process, without those that are set now and take precedence.
    pub fn environment_of(&self, component: Component) -> anyhow::Result<BTreeMap<String, String>> {
        let mut variables = self.stored_environment()?;
        variables
            .retain(|name, _| name.starts_with(&variable_prefix(component)) && env::var_os(name).is_none());
        Ok(variables)
    }

    /// Access of sagactl to the services.
    pub fn access(&self) -> anyhow::Result<Access> {
        let file = Some(self.token_of(SAGACTL)).filter(|_| self.tokens_file().exists());
        let token = |file: PathBuf| token_in(&file).with_context(|| file.display().to_string());
        Ok(Access { token: file.map(token).transpose()?, authorities: None })
    }

    /// Broker settings of a service or of sagactl.
    pub fn bus_settings_of(&self, user: &str) -> BusSettings {
        let credentials = Some(self.broker_key_of(user));
        BusSettings { url: self.brokers_url(), credentials, ..BusSettings::default() }
    }

    pub fn endpoints(&self) -> anyhow::Result<Endpoints> {
        Ok(Endpoints::local(self.plan.ports, self.bus_settings_of(SAGACTL), self.access()?))
    }
}

/// Environment variables that set something of a service.
fn setting_variables() -> BTreeMap<String, String> {
    let is_setting = |(name, _): &(String, String)| {
        Component::services().any(|service| name.starts_with(&variable_prefix(service)))
    };
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    env::vars_os().filter_map(text).filter(is_setting).collect()
}

/// Prefix of environment variables that set something of a service.
fn variable_prefix(component: Component) -> String {
    format!("{}__", component.kind().to_string().to_uppercase())
}
