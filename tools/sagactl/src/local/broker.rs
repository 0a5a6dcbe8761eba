//! Shell: the broker's program and its configuration.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::folder::write_whole;
use super::member::Member;
use super::system::System;

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

/// Writes the broker's configuration.
pub fn configure(system: &System) -> anyhow::Result<()> {
    let path = system.broker_config();
    let store = system.data_of(Member::NATS).join("jetstream");
    let text = config(system.port_of(Member::NATS), &store, &system.log_of(Member::NATS));
    write_whole(&path, text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
}

fn config(port: u16, store: &Path, log: &Path) -> String {
    let quoted = |path: &Path| path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let (store, log) = (quoted(store), quoted(log));
    format!(
        r#"# Written by sagactl; changes are overwritten by the next `up`.
server_name: "saga"
listen: "127.0.0.1:{port}"
log_file: "{log}"
# As the services do with theirs: begun anew at 8 MiB, and three of the full ones kept.
logfile_size_limit: 8388608
logfile_max_num: 4
jetstream {{
  store_dir: "{store}"
  # Every acknowledged message is on the disk. With the default of two minutes a power cut would lose some.
  sync_interval: always
}}
"#
    )
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
        let text = config(4333, Path::new("/a \"b\""), Path::new("/log"));
        assert!(
            text.contains("sync_interval: always") && text.contains(r#"store_dir: "/a \"b\"""#),
            "{text}"
        );
    }
}
