//! Shell: program and configuration of the broker.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use nkeys::KeyPair;

use saga_engine::nats::Permissions;

use super::component::Component;
use super::data_dir::unwritable;
use saga_engine::nats::MINIMUM_VERSION;

use super::secret_file::{create_private_dir, ensure_secret, read_secret, write_private};
use super::system::System;
use super::users;

/// Finds a supported nats-server: `NATS_SERVER_BIN`, else below `target/tools`, else on `PATH`.
pub fn find_program(bin_dir: &Path) -> anyhow::Result<PathBuf> {
    let needed = format!("{}.{} or newer", MINIMUM_VERSION.0, MINIMUM_VERSION.1);
    if let Some(named) = env::var_os("NATS_SERVER_BIN") {
        let program = PathBuf::from(named);
        return match version(&program) {
            Some(version) if version >= MINIMUM_VERSION => Ok(program),
            Some((major, minor)) => bail!(
                "NATS_SERVER_BIN={} is nats-server {major}.{minor}, {needed} is needed",
                program.display()
            ),
            None => bail!("NATS_SERVER_BIN={} is no nats-server: correct it or unset it", program.display()),
        };
    }
    let mut candidates =
        vec![PathBuf::from("target/tools/nats-server"), bin_dir.join("../tools/nats-server")];
    candidates.extend(
        env::var_os("PATH").iter().flat_map(env::split_paths).map(|folder| folder.join("nats-server")),
    );
    let found = candidates
        .into_iter()
        .find(|program| version(program).is_some_and(|version| version >= MINIMUM_VERSION));
    let found = found
        .with_context(|| format!("no nats-server {needed} found: run scripts/setup.sh, which installs it"))?;
    Ok(std::path::absolute(found)?)
}

fn version(program: &Path) -> Option<(u64, u64)> {
    if !program.is_file() {
        return None;
    }
    let output = Command::new(program).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_version(text: &str) -> Option<(u64, u64)> {
    let (_, version) = text.trim().strip_prefix("nats-server:")?.split_once('v')?;
    let mut parts = version.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Bound on the streams that the disk reaches first. Without a bound, nats-server takes three quarters of what is free at
/// each start.
const BEYOND_ANY_DISK: &str = "1PB";

/// Creates a key for each user of the broker that has none.
pub fn create_keys(system: &System) -> anyhow::Result<()> {
    create_private_dir(&system.credentials_dir()).with_context(|| unwritable(system.folder()))?;
    users::all().iter().try_for_each(|(name, _)| ensure_key(&system.broker_key_of(name)).map(drop))
}

/// Creates a key unless the file exists. Returns `true` if it was created.
pub fn ensure_key(file: &Path) -> anyhow::Result<bool> {
    if file.exists() {
        return Ok(false);
    }
    let seed = KeyPair::new_user().seed()?;
    write_private(file, format!("{seed}\n").as_bytes())
        .with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(true)
}

/// Writes the configuration of a broker of this system.
pub fn configure(system: &System, broker: Component) -> anyhow::Result<()> {
    let path = system.broker_config(broker);
    let options = BrokerOptions {
        listen: &format!("127.0.0.1:{}", system.port_of(broker)),
        monitoring: None,
        store: &system.data_of(broker).join("jetstream"),
        max_file_store: BEYOND_ANY_DISK,
        log: Some(&system.log_of(broker)),
        cluster: cluster_of(system, broker)?,
    };
    let text = configuration(&options, |name| system.broker_key_of(name))?;
    write_private(&path, text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
}

/// Cluster options; `None` for a single broker. A password keeps other users of this machine out of the cluster.
fn cluster_of(system: &System, broker: Component) -> anyhow::Result<Option<Cluster>> {
    let brokers: Vec<_> = system.layout().brokers().collect();
    if brokers.len() < 2 {
        return Ok(None);
    }
    let file = system.credentials_dir().join("routes.password");
    ensure_secret(&file)?;
    let password = read_secret(&file)?;
    let ports = system.ports();
    let route = |other: &Component| format!("nats://routes:{password}@127.0.0.1:{}", ports.route_of(*other));
    Ok(Some(Cluster {
        name: broker.to_string(),
        listen: format!("127.0.0.1:{}", ports.route_of(broker)),
        routes: brokers.iter().filter(|other| **other != broker).map(route).collect(),
        password,
    }))
}

/// Text of a configuration file with all users, whose keys `key_of` names.
pub fn configuration(
    options: &BrokerOptions<'_>,
    key_of: impl Fn(&str) -> PathBuf,
) -> anyhow::Result<String> {
    let users = users::all().into_iter();
    let users =
        users.map(|(name, permissions)| Ok(User { name, key: public_key(&key_of(name))?, permissions }));
    Ok(config(options, &users.collect::<anyhow::Result<Vec<_>>>()?))
}

/// Addresses and files of a broker.
pub struct BrokerOptions<'a> {
    pub listen: &'a str,
    /// Address of its monitoring endpoint, if it has one.
    pub monitoring: Option<&'a str>,
    pub store: &'a Path,
    /// Bound on all streams together, as nats-server writes it.
    pub max_file_store: &'a str,
    /// `None` for standard error.
    pub log: Option<&'a Path>,
    /// `None` for a single broker.
    pub cluster: Option<Cluster>,
}

/// Cluster options of a broker.
pub struct Cluster {
    /// Unique name in the cluster.
    pub name: String,
    pub listen: String,
    pub routes: Vec<String>,
    pub password: String,
}

impl Cluster {
    fn text(&self) -> String {
        let Self { listen, routes, password, .. } = self;
        let routes: String = routes.iter().map(|route| format!("    {}\n", quoted(route))).collect();
        format!(
            r#"cluster {{
  name: "saga"
  listen: {}
  # The settings of the clients name all brokers.
  no_advertise: true
  authorization {{ user: "routes", password: {} }}
  routes: [
{routes}  ]
}}
"#,
            quoted(listen),
            quoted(password)
        )
    }
}

/// Public key that belongs to the key in a file.
fn public_key(file: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let pair = KeyPair::from_seed(text.trim());
    let damaged = || format!("{} holds no key: remove it, and `up` creates a new one", file.display());
    Ok(pair.with_context(damaged)?.public_key())
}

struct User {
    name: &'static str,
    key: String,
    permissions: Permissions,
}

fn config(options: &BrokerOptions<'_>, users: &[User]) -> String {
    let BrokerOptions { listen, monitoring, store, max_file_store, log, cluster } = options;
    let path = |path: &Path| quoted(&path.display().to_string());
    let log = log.map(|log| {
        let kept = "# Like the logs of the services: rotated at 8 MiB, three old files kept.";
        format!("log_file: {}\n{kept}\nlogfile_size_limit: 8388608\nlogfile_max_num: 4\n", path(log))
    });
    let monitoring = monitoring.map(|address| format!("http: {}\n", quoted(address)));
    let more = log.into_iter().chain(monitoring).collect::<String>();
    let name = quoted(cluster.as_ref().map_or("saga", |cluster| &cluster.name));
    let (listen, store) = (quoted(listen), path(store));
    let mut text = format!(
        r#"# Written by sagactl, which overwrites changes.
server_name: {name}
listen: {listen}
{more}jetstream {{
  store_dir: {store}
  # Without a bound, nats-server takes three quarters of what is free when it starts, and rejects everything beyond.
  max_file_store: {max_file_store}
  # Every acknowledged message is on disk. With the default of two minutes a power cut would lose some.
  sync_interval: always
}}
"#
    );
    text.extend(cluster.as_ref().map(Cluster::text));
    if !users.is_empty() {
        let users: String = users.iter().map(user).collect();
        text += &format!(
            "# Each user may do what its steps and its facts need, and nothing else.\nauthorization {{ users: [\n{users}] }}\n"
        );
    }
    text
}

fn user(User { name, key, permissions: Permissions { publish, subscribe } }: &User) -> String {
    let list = |subjects: &[String]| {
        subjects.iter().map(|subject| format!("      {}\n", quoted(subject))).collect::<String>()
    };
    let (publish, subscribe) = (list(publish), list(subscribe));
    format!(
        "  # {name}\n  {{ nkey: {key}, permissions: {{\n    publish: {{ allow: [\n{publish}    ] }}\n    \
         subscribe: {{ allow: [\n{subscribe}    ] }}\n  }} }}\n"
    )
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_from_the_output_of_nats_server_only() {
        assert_eq!(parse_version("nats-server: v2.15.1\n"), Some((2, 15)));
        assert_eq!(parse_version("nats-server: v2.9.10-beta"), Some((2, 9)));
        assert_eq!(parse_version("ls (GNU coreutils) v9.1"), None);
    }

    #[test]
    fn configuration_syncs_always_and_quotes_paths() {
        let options = BrokerOptions {
            listen: "127.0.0.1:4333",
            monitoring: None,
            store: Path::new("/a \"b\""),
            max_file_store: "1PB",
            log: Some(Path::new("/log")),
            cluster: None,
        };
        let text = config(&options, &[]);
        assert!(
            text.contains("sync_interval: always") && text.contains(r#"store_dir: "/a \"b\"""#),
            "{text}"
        );
        assert!(text.contains("max_file_store: 1PB\n"), "{text}");
        assert!(text.contains("log_file: \"/log\"") && !text.contains("http:"), "{text}");
        let text = config(&BrokerOptions { monitoring: Some("0.0.0.0:8222"), log: None, ..options }, &[]);
        assert!(text.contains("http: \"0.0.0.0:8222\"") && !text.contains("log"), "{text}");
        assert!(text.contains("server_name: \"saga\"") && !text.contains("cluster"), "{text}");
    }

    #[test]
    fn clustered_broker_has_its_own_name_and_a_password_for_routes() {
        let cluster = Cluster {
            name: "nats-2".to_owned(),
            listen: "127.0.0.1:6232".to_owned(),
            routes: vec!["nats://routes:secret@127.0.0.1:6242".to_owned()],
            password: "secret".to_owned(),
        };
        let (listen, store) = ("127.0.0.1:4333", Path::new("/store"));
        let options = BrokerOptions {
            listen,
            monitoring: None,
            store,
            max_file_store: "1PB",
            log: None,
            cluster: Some(cluster),
        };
        let text = config(&options, &[]);
        for expected in [
            "server_name: \"nats-2\"",
            "  listen: \"127.0.0.1:6232\"",
            "    \"nats://routes:secret@127.0.0.1:6242\"\n",
            "authorization { user: \"routes\", password: \"secret\" }",
            "no_advertise: true",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
