//! Shell: the broker's program and its configuration.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use nkeys::KeyPair;

use saga_engine::nats::Permissions;

use super::folder::{self, unwritable, write_private};
use super::member::Member;
use super::system::System;
use super::users;

/// The oldest broker this system trusts.
const MINIMUM: (u64, u64) = (2, 15);

/// Finds a nats-server that is new enough: `NATS_SERVER_BIN`, or under `target/tools`, or on `PATH`.
pub fn find_program(bin_dir: &Path) -> anyhow::Result<PathBuf> {
    if let Some(named) = env::var_os("NATS_SERVER_BIN") {
        let program = PathBuf::from(named);
        return match version(&program) {
            Some(version) if version >= MINIMUM => Ok(program),
            Some((major, minor)) => bail!(
                "NATS_SERVER_BIN={} is nats-server {major}.{minor}, 2.15 or newer is needed",
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
    let found =
        candidates.into_iter().find(|program| version(program).is_some_and(|version| version >= MINIMUM));
    let found = found.context("no nats-server 2.15 or newer found: run scripts/setup.sh, which gets it")?;
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

/// As much as its streams may hold where the disk is the bound: more than any has. When the disk is full nats-server
/// acknowledges nothing more. Told no bound, it takes three quarters of what is free whenever it starts.
const BEYOND_ANY_DISK: &str = "1PB";

/// Gives every user of the broker credentials, unless it has some.
pub fn make_users(system: &System) -> anyhow::Result<()> {
    folder::create_private(&system.credentials_dir()).with_context(|| unwritable(system.folder()))?;
    for (name, _) in users::all() {
        keep_key(&system.credentials_of(name))?;
    }
    Ok(())
}

/// Makes the key that is kept in `file`, unless it is there; answers whether it has.
pub fn keep_key(file: &Path) -> anyhow::Result<bool> {
    if file.exists() {
        return Ok(false);
    }
    let seed = KeyPair::new_user().seed()?;
    write_private(file, format!("{seed}\n").as_bytes())
        .with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(true)
}

/// Writes the broker's configuration: it knows the users that have credentials, and lets in nobody else. That of a
/// system that has none, as it was made by an earlier build and runs, lets in anyone.
pub fn configure(system: &System, broker: Member) -> anyhow::Result<()> {
    let path = system.broker_config(broker);
    let store = system.data_of(broker).join("jetstream");
    if system.credentials_dir().exists() {
        make_users(system)?;
    }
    let log = system.log_of(broker);
    let listen = format!("127.0.0.1:{}", system.port_of(broker));
    let cluster = cluster_of(system, broker)?;
    let place = Place {
        listen: &listen,
        monitoring: None,
        store: &store,
        store_at_most: BEYOND_ANY_DISK,
        log: Some(&log),
        cluster,
    };
    let text = configuration(&place, |name| system.credentials_of(name))?;
    write_private(&path, text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
}

/// How a broker finds the others, if there are any: whoever else is on this machine does not get in among them.
fn cluster_of(system: &System, broker: Member) -> anyhow::Result<Option<Cluster>> {
    let brokers: Vec<_> = system.layout().brokers().collect();
    if brokers.len() < 2 {
        return Ok(None);
    }
    let file = system.credentials_dir().join("routes.password");
    folder::keep_random(&file)?;
    let password = folder::read_random(&file)?;
    let routes = system.ports();
    let route = |other: &Member| format!("nats://routes:{password}@127.0.0.1:{}", routes.routes_of(*other));
    Ok(Some(Cluster {
        name: broker.to_string(),
        listen: format!("127.0.0.1:{}", routes.routes_of(broker)),
        routes: brokers.iter().filter(|other| **other != broker).map(route).collect(),
        password,
    }))
}

/// What a broker is told: where it is, and of the users who have a key.
pub fn configuration(place: &Place<'_>, key_of: impl Fn(&str) -> PathBuf) -> anyhow::Result<String> {
    let known = users::all().into_iter().filter(|(name, _)| key_of(name).exists());
    let known =
        known.map(|(name, permissions)| Ok(User { name, key: public_key(&key_of(name))?, permissions }));
    Ok(config(place, &known.collect::<anyhow::Result<Vec<_>>>()?))
}

/// Where a broker listens, and where it keeps what.
pub struct Place<'a> {
    pub listen: &'a str,
    /// Where it tells whoever watches over it how it is.
    pub monitoring: Option<&'a str>,
    pub store: &'a Path,
    /// How much its streams may hold together, as nats-server writes it.
    pub store_at_most: &'a str,
    /// `None` for standard error.
    pub log: Option<&'a Path>,
    /// `None` for one alone.
    pub cluster: Option<Cluster>,
}

/// What one broker of several knows of them.
pub struct Cluster {
    /// By which the others know it, whatever its address.
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
  # Clients are told of all of them by their settings.
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

/// Of a secret the broker gets to know the public half.
fn public_key(file: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let pair = KeyPair::from_seed(text.trim());
    let damaged = || format!("{} holds no key: remove it, and `up` makes a new one", file.display());
    Ok(pair.with_context(damaged)?.public_key())
}

/// Somebody whom the broker knows.
struct User {
    name: &'static str,
    /// Its public key.
    key: String,
    permissions: Permissions,
}

fn config(place: &Place<'_>, users: &[User]) -> String {
    let Place { listen, monitoring, store, store_at_most, log, cluster } = place;
    let path = |path: &Path| quoted(&path.display().to_string());
    let log = log.map(|log| {
        let kept = "# As the services do with theirs: begun anew at 8 MiB, and three of the full ones kept.";
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
  # Without a bound, it would take three quarters of what is free when it starts, and refuse everything beyond.
  max_file_store: {store_at_most}
  # Every acknowledged message is on the disk. With the default of two minutes a power cut would lose some.
  sync_interval: always
}}
"#
    );
    text.extend(cluster.as_ref().map(Cluster::text));
    if !users.is_empty() {
        let users: String = users.iter().map(user).collect();
        text += &format!(
            "# Each may do what its steps and its facts need, and nothing else.\nauthorization {{ users: [\n{users}] }}\n"
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
    fn a_version_is_read_only_from_what_a_nats_server_says() {
        assert_eq!(parse_version("nats-server: v2.15.1\n"), Some((2, 15)));
        assert_eq!(parse_version("nats-server: v2.9.10-beta"), Some((2, 9)));
        assert_eq!(parse_version("ls (GNU coreutils) v9.1"), None);
    }

    #[test]
    fn the_configuration_syncs_always() {
        let place = Place {
            listen: "127.0.0.1:4333",
            monitoring: None,
            store: Path::new("/a \"b\""),
            store_at_most: "1PB",
            log: Some(Path::new("/log")),
            cluster: None,
        };
        let text = config(&place, &[]);
        assert!(
            text.contains("sync_interval: always") && text.contains(r#"store_dir: "/a \"b\"""#),
            "{text}"
        );
        assert!(text.contains("max_file_store: 1PB\n"), "{text}");
        assert!(text.contains("log_file: \"/log\"") && !text.contains("http:"), "{text}");
        let text = config(&Place { monitoring: Some("0.0.0.0:8222"), log: None, ..place }, &[]);
        assert!(text.contains("http: \"0.0.0.0:8222\"") && !text.contains("log"), "{text}");
        assert!(text.contains("server_name: \"saga\"") && !text.contains("cluster"), "{text}");
    }

    #[test]
    fn one_of_several_has_a_name_of_its_own_and_lets_no_stranger_in_among_them() {
        let cluster = Cluster {
            name: "nats-2".to_owned(),
            listen: "127.0.0.1:6232".to_owned(),
            routes: vec!["nats://routes:secret@127.0.0.1:6242".to_owned()],
            password: "secret".to_owned(),
        };
        let (listen, store) = ("127.0.0.1:4333", Path::new("/store"));
        let place = Place {
            listen,
            monitoring: None,
            store,
            store_at_most: "1PB",
            log: None,
            cluster: Some(cluster),
        };
        let text = config(&place, &[]);
        for wanted in [
            "server_name: \"nats-2\"",
            "  listen: \"127.0.0.1:6232\"",
            "    \"nats://routes:secret@127.0.0.1:6242\"\n",
            "authorization { user: \"routes\", password: \"secret\" }",
            "no_advertise: true",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}
