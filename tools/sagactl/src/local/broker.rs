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

/// Gives every user of the broker credentials, unless it has some.
pub fn make_users(system: &System) -> anyhow::Result<()> {
    folder::create_private(&system.credentials_dir()).with_context(|| unwritable(system.folder()))?;
    for (name, _) in users::all() {
        let file = system.credentials_of(name);
        if !file.exists() {
            let seed = KeyPair::new_user().seed()?;
            write_private(&file, format!("{seed}\n").as_bytes())
                .with_context(|| format!("{} cannot be written", file.display()))?;
        }
    }
    Ok(())
}

/// Writes the broker's configuration: it knows the users that have credentials, and lets in nobody else. That of a
/// system that has none, as it was made by an earlier build and runs, lets in anyone.
pub fn configure(system: &System) -> anyhow::Result<()> {
    let path = system.broker_config();
    let store = system.data_of(Member::NATS).join("jetstream");
    if system.credentials_dir().exists() {
        make_users(system)?;
    }
    let known = users::all().into_iter().filter(|(name, _)| system.credentials_of(name).exists());
    let known = known.map(|(name, permissions)| {
        Ok(User { name, key: public_key(&system.credentials_of(name))?, permissions })
    });
    let (port, log) = (system.port_of(Member::NATS), system.log_of(Member::NATS));
    let text = config(port, &store, &log, &known.collect::<anyhow::Result<Vec<_>>>()?);
    write_private(&path, text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
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

fn config(port: u16, store: &Path, log: &Path, users: &[User]) -> String {
    let (store, log) = (quoted(&store.display().to_string()), quoted(&log.display().to_string()));
    let mut text = format!(
        r#"# Written by sagactl; changes are overwritten by the next `up`.
server_name: "saga"
listen: "127.0.0.1:{port}"
log_file: {log}
# As the services do with theirs: begun anew at 8 MiB, and three of the full ones kept.
logfile_size_limit: 8388608
logfile_max_num: 4
jetstream {{
  store_dir: {store}
  # Every acknowledged message is on the disk. With the default of two minutes a power cut would lose some.
  sync_interval: always
}}
"#
    );
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
        let text = config(4333, Path::new("/a \"b\""), Path::new("/log"), &[]);
        assert!(
            text.contains("sync_interval: always") && text.contains(r#"store_dir: "/a \"b\"""#),
            "{text}"
        );
    }
}
