//! Shell: the folder of a local system: what was started how, where its data and logs are.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::member::{Member, Ports};

/// Describes the system; its presence tells that the folder is ours.
const PLAN_FILE: &str = "system.json";
/// Held by whoever starts or stops processes.
const LOCK_FILE: &str = "lock";
/// A stop takes up to 10 seconds: waiting that long for another's to end makes scripts simple.
const LOCK_WAIT: Duration = Duration::from_secs(15);

/// `SERVICE.KEY=VALUE`.
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
        match Member::SERVICES.into_iter().find(|member| member.name() == name) {
            Some(service) => Ok(Self { service, flag: flag.to_owned() }),
            None => Err(format!(
                "there is no service {name:?}; services are {}",
                Member::SERVICES.map(Member::name).join(", ")
            )),
        }
    }
}

/// How the processes are started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    ports: Ports,
    /// Where the services' programs are.
    bin_dir: PathBuf,
    nats_server: PathBuf,
    /// Settings beside the necessary ones.
    settings: BTreeMap<Member, Vec<String>>,
}

impl Plan {
    /// A plan.
    pub fn new(ports: Ports, bin_dir: PathBuf, nats_server: PathBuf, settings: Vec<Setting>) -> Self {
        let mut of_members: BTreeMap<Member, Vec<String>> = BTreeMap::new();
        for setting in settings {
            of_members.entry(setting.service).or_default().push(setting.flag);
        }
        Self { ports, bin_dir, nats_server, settings: of_members }
    }
}

/// A local system: its folder and its plan.
#[derive(Debug, Clone)]
pub struct System {
    folder: PathBuf,
    plan: Plan,
}

impl System {
    /// The system that was started in `folder` (an absolute path).
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        match Self::find(folder)? {
            Some(system) => Ok(system),
            None => {
                bail!(
                    "no system in {}: start one with scripts/up.sh, or name its folder with --data",
                    folder.display()
                )
            }
        }
    }

    /// The same, or `None` when nothing was ever started there.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Self>> {
        let file = folder.join(PLAN_FILE);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("{} cannot be read", file.display()));
            }
        };
        let plan = serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged; delete the folder to start anew", file.display()))?;
        Ok(Some(Self { folder: folder.to_owned(), plan }))
    }

    /// A system that is not there yet.
    pub fn planned(folder: &Path, plan: Plan) -> Self {
        Self { folder: folder.to_owned(), plan }
    }

    /// Makes the folders and writes the plan, to be called under [`lock`].
    pub fn create(&self) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(&self.plan)?;
        let make = || -> std::io::Result<()> {
            for member in Member::ALL {
                fs::create_dir_all(self.data_of(member))?;
            }
            fs::create_dir_all(self.log_dir())?;
            fs::create_dir_all(self.folder.join("run"))?;
            write_whole(&self.folder.join(PLAN_FILE), &text)
        };
        make().with_context(|| unwritable(&self.folder))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the logs are.
    pub fn log_dir(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The log of one process.
    pub fn log_of(&self, member: Member) -> PathBuf {
        self.log_dir().join(format!("{member}.log"))
    }

    /// Who it is that runs.
    pub fn pid_file_of(&self, member: Member) -> PathBuf {
        self.folder.join("run").join(format!("{member}.pid"))
    }

    /// The data of one process.
    pub fn data_of(&self, member: Member) -> PathBuf {
        self.folder.join(member.name())
    }

    /// The port of one process.
    pub const fn port_of(&self, member: Member) -> u16 {
        self.plan.ports.of(member)
    }

    /// The address of one process.
    pub fn url_of(&self, member: Member) -> String {
        let scheme = if member == Member::Nats { "nats" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port_of(member))
    }

    /// The program of one process.
    pub fn program_of(&self, member: Member) -> PathBuf {
        match member {
            Member::Nats => self.plan.nats_server.clone(),
            Member::Bank | Member::Order | Member::Inventory | Member::Payment | Member::Admin => {
                self.plan.bin_dir.join(member.name())
            }
        }
    }

    /// The broker's configuration.
    pub fn nats_config(&self) -> PathBuf {
        self.data_of(Member::Nats).join("nats.conf")
    }

    /// What one process is started with.
    pub fn arguments_of(&self, member: Member) -> Vec<String> {
        if member == Member::Nats {
            return vec!["--config".to_owned(), self.nats_config().display().to_string()];
        }
        let database = self.data_of(member).join(format!("{member}.db"));
        let mut settings = vec![
            format!("http.bind=127.0.0.1:{}", self.port_of(member)),
            format!("store.url=sqlite:{}", database.display()),
            "log.format=json".to_owned(),
            // A local system is for trying things out. What is asked for stands behind it, and wins.
            "faults.enabled=true".to_owned(),
        ];
        let peer = |peer: Member| format!("service.{peer}={}", self.url_of(peer));
        match member {
            Member::Nats | Member::Bank | Member::Order | Member::Inventory => {}
            Member::Payment => settings.push(peer(Member::Bank)),
            Member::Admin => {
                settings.extend([Member::Order, Member::Inventory, Member::Payment, Member::Bank].map(peer))
            }
        }
        if member != Member::Bank {
            settings.push(format!("bus.url={}", self.url_of(Member::Nats)));
        }
        settings.extend(self.plan.settings.get(&member).into_iter().flatten().cloned());
        settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
    }
}

/// Refuses a folder that holds something else than a local system.
pub fn check_is_ours(folder: &Path) -> anyhow::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| unwritable(folder)),
    };
    let names: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    // Only the lock: a start that went no further.
    if names.iter().all(|name| name == LOCK_FILE) || names.iter().any(|name| name == PLAN_FILE) {
        return Ok(());
    }
    bail!(
        "{} holds other things than a local system, and is left alone: choose another folder with --data",
        folder.display()
    )
}

/// Deletes all that is in the folder, to be called under [`lock`] and after [`check_is_ours`].
pub fn wipe(folder: &Path) -> anyhow::Result<()> {
    let wipe = || -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != LOCK_FILE {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    wipe().with_context(|| format!("{} cannot be emptied", folder.display()))
}

/// Makes the folder and takes it: until the answer is dropped nobody else starts or stops its processes.
pub async fn lock(folder: &Path) -> anyhow::Result<File> {
    let open = || -> std::io::Result<File> {
        fs::create_dir_all(folder)?;
        File::create(folder.join(LOCK_FILE))
    };
    let file = open().with_context(|| unwritable(folder))?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "another sagactl is starting or stopping processes in {}: wait for it",
                    folder.display()
                )
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| unwritable(folder));
            }
        }
    }
}

/// Writes a file so that a reader finds the old or the new, never a part.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let half_done = path.with_extension("new");
    fs::write(&half_done, bytes)?;
    fs::rename(half_done, path)
}

fn unwritable(folder: &Path) -> String {
    format!("{} cannot be written: choose another folder with --data", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> System {
        let settings = ["order.service.deadline=5s".parse(), "bank.log.filter=debug".parse()];
        let settings = settings
            .into_iter()
            .map(|setting: Result<Setting, String>| setting.expect("a setting"))
            .collect();
        let plan = Plan::new(Ports::from_base(7000), "/bin-dir".into(), "/nats-server".into(), settings);
        System { folder: "/data".into(), plan }
    }

    #[test]
    fn a_service_gets_what_it_needs_and_what_was_asked_for() {
        let order = system().arguments_of(Member::Order).join(" ");
        let wanted = "--set http.bind=127.0.0.1:7001 --set store.url=sqlite:/data/order/order.db \
            --set log.format=json --set faults.enabled=true --set bus.url=nats://127.0.0.1:7005 --set service.deadline=5s";
        assert_eq!(order, wanted);
        let bank = system().arguments_of(Member::Bank).join(" ");
        assert!(!bank.contains("bus.url") && bank.ends_with("log.filter=debug"), "{bank}");
        let admin = system().arguments_of(Member::Admin).join(" ");
        assert!(admin.contains("service.payment=http://127.0.0.1:7003"), "{admin}");
    }

    #[test]
    fn a_setting_names_a_service() {
        for bad in ["order", "order.x", "nats.x=1", "shop.x=1", "order.=1", "=1"] {
            assert!(bad.parse::<Setting>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        assert!(check_is_ours(&path.join("not-there")).is_ok());
        assert!(check_is_ours(path).is_ok());
        fs::write(path.join("thesis.txt"), "precious").expect("a file");
        assert!(check_is_ours(path).is_err());
        fs::write(path.join(PLAN_FILE), "{}").expect("a file");
        assert!(check_is_ours(path).is_ok());
    }
}
