//! Shell: credentials of a system in containers: a folder for each program.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use saga_core::access::Role;

use super::broker::{self, BrokerOptions};
use super::secret_file::{create_private_dir, write_private};
use super::tokens::{self, INTERNAL_RATE};
use super::users::{self, KEY, PROMETHEUS, SAGACTL, TOKEN};
use cli::print;

/// Addresses and folder of the broker inside its container.
const LISTEN: &str = "0.0.0.0:4222";
const MONITORING: &str = "0.0.0.0:8222";
const STORE: &str = "/data";
/// Set beside its volume: in docker-compose.yml, and in k8s/base/nats.yaml.
const FROM_THE_ENVIRONMENT: &str = "$NATS_MAX_FILE_STORE";
const NATS: &str = "nats";
const NATS_CONFIG: &str = "nats.conf";
/// Folder that all services read, and the file of the tokens in it, which holds only digests.
const HTTP: &str = "http";
const TOKENS: &str = "tokens.json";
/// Modes of the folder and the token of Prometheus, which runs as another user of the services' group.
const GROUP_READABLE: (u32, u32) = (0o750, 0o640);

/// `sagactl credentials DIR`. Keeps what exists, except for the configuration of the broker, which is derived from it.
pub fn run(folder: &Path) -> anyhow::Result<()> {
    print(&match create_missing(folder)?.as_slice() {
        [] => format!("{}: complete, nothing was changed", folder.display()),
        created => format!(
            "{}: created {}; restart a broker that runs, so that it knows them",
            folder.display(),
            created.join(", ")
        ),
    });
    Ok(())
}

/// Creates the files that do not exist, and returns their names.
fn create_missing(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut created = Vec::new();
    let users = users::all();
    let folders = users.iter().map(|(name, _)| *name).chain([NATS, HTTP, PROMETHEUS]);
    for path in folders.map(|name| folder.join(name)) {
        create_private_dir(&path).with_context(|| unwritable(&path))?;
    }
    for (name, _) in &users {
        if broker::ensure_key(&folder.join(name).join(KEY))? {
            created.push(format!("{name}/{KEY}"));
        }
    }
    let all = folder.join(HTTP).join(TOKENS);
    let callers = users::callers().map(|(service, name, role)| (service, name, role, Some(INTERNAL_RATE)));
    let others = [(SAGACTL, SAGACTL, Role::Admin, None), (PROMETHEUS, PROMETHEUS, Role::Viewer, None)];
    for (owner, name, role, rate) in callers.chain(others) {
        if tokens::ensure(&all, &folder.join(owner).join(TOKEN), name, role, rate)? {
            created.push(format!("{owner}/{TOKEN}"));
        }
    }
    let own = folder.join(PROMETHEUS);
    for (path, mode) in [(own.join(TOKEN), GROUP_READABLE.1), (own, GROUP_READABLE.0)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(|| unwritable(&path))?;
    }
    let config = folder.join(NATS).join(NATS_CONFIG);
    let options = BrokerOptions {
        listen: LISTEN,
        monitoring: Some(MONITORING),
        store: Path::new(STORE),
        max_file_store: FROM_THE_ENVIRONMENT,
        log: None,
        cluster: None,
    };
    let text = broker::configuration(&options, |name| folder.join(name).join(KEY))?;
    if fs::read_to_string(&config).ok().is_none_or(|there| there != text) {
        write_private(&config, text.as_bytes()).with_context(|| unwritable(&config))?;
        created.push(format!("{NATS}/{NATS_CONFIG}"));
    }
    Ok(created)
}

fn unwritable(path: &Path) -> String {
    format!("{} cannot be written: name a folder that you own", path.display())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Files below the folder, except locks: name, mode and content.
    fn files(folder: &Path) -> BTreeMap<String, (u32, String)> {
        let entries = |path: &Path| -> Vec<_> {
            fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
        };
        let files = entries(folder).into_iter().flat_map(|path| entries(&path));
        let files = files.filter(|file| file.extension().is_some_and(|kind| kind != "lock"));
        let described = files.map(|file| {
            let name = file.strip_prefix(folder).expect("below it").display().to_string();
            let mode = fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
            (name, (mode, fs::read_to_string(&file).expect("text")))
        });
        described.collect()
    }

    #[test]
    fn each_program_gets_its_own_credentials_once_and_lost_ones_are_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let names_created = create_missing(folder).expect("created");
        let created = files(folder);
        let names: Vec<_> = created.keys().map(String::as_str).collect();
        let expected = [
            "admin/broker.nk",
            "admin/http.token",
            "http/tokens.json",
            "inventory/broker.nk",
            "nats/nats.conf",
            "order/broker.nk",
            "payment/broker.nk",
            "payment/http.token",
            "prometheus/http.token",
            "sagactl/broker.nk",
            "sagactl/http.token",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            names_created.len(),
            expected.len() - 1,
            "the list of tokens is no secret: {names_created:?}"
        );
        let open: Vec<_> = created.iter().filter(|(_, (mode, _))| mode & 0o077 != 0).collect();
        assert_eq!(open.len(), 1, "{open:?}");
        assert!(open[0].0 == "prometheus/http.token" && open[0].1.0 == 0o640, "{open:?}");
        assert_eq!(create_missing(folder).expect("created again"), [""; 0]);
        assert_eq!(files(folder), created);
        // A lost key is replaced, also in the configuration of the broker.
        fs::remove_file(folder.join("order").join(KEY)).expect("it was there");
        assert_eq!(create_missing(folder).expect("created again"), ["order/broker.nk", "nats/nats.conf"]);
        let replaced = files(folder);
        let changed: Vec<_> = created.keys().filter(|name| created[*name] != replaced[*name]).collect();
        assert_eq!(changed, ["nats/nats.conf", "order/broker.nk"]);
    }

    #[test]
    fn shared_files_contain_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        create_missing(folder.path()).expect("created");
        let created = files(folder.path());
        let (config, tokens) = (&created["nats/nats.conf"].1, &created["http/tokens.json"].1);
        for expected in [
            "listen: \"0.0.0.0:4222\"",
            "http: \"0.0.0.0:8222\"",
            "store_dir: \"/data\"",
            "max_file_store: $NATS_MAX_FILE_STORE\n",
            "sync_interval: always",
            "order.created",
        ] {
            assert!(config.contains(expected), "{expected}: {config}");
        }
        for (name, (_, secret)) in
            created.iter().filter(|(name, _)| !name.contains("nats") && !name.contains("json"))
        {
            assert!(!config.contains(secret.trim()) && !tokens.contains(secret.trim()), "{name}");
        }
    }
}
