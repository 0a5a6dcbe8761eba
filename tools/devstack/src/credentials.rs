//! Shell: the secrets of a system in containers, in folders that are given to one program each.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use saga_core::access::Role;

use super::broker;
use super::folder::{create_private, write_private};
use super::member::Member;
use super::tokens::{self, INTERNAL_RATE};
use super::users::{self, INTERNAL, KEY, PROMETHEUS, SAGACTL, TOKEN};
use cli::say;

/// In the container that the configuration is for: where the broker listens, and its folder.
const PLACE: (&str, &str, &str) = ("0.0.0.0:4222", "0.0.0.0:8222", "/data");
/// How much its streams may hold is said where its volume is: in docker-compose.yml, and in k8s/base/nats.yaml.
const FROM_THE_ENVIRONMENT: &str = "$NATS_MAX_FILE_STORE";
/// The broker's folder, and what is in it.
const NATS: &str = "nats";
const NATS_CONFIG: &str = "nats.conf";
/// The folder that all services look into, and the file of the tokens in it. It holds none.
const HTTP: &str = "http";
const TOKENS: &str = "tokens.json";
/// Prometheus runs as another user than the services, and as one of their group: its folder, and its token.
const FOR_THE_GROUP: (u32, u32) = (0o750, 0o640);

/// `sagactl credentials DIR`. Nothing is overwritten but the broker's configuration, which follows from the rest.
pub fn run(folder: &Path) -> anyhow::Result<ExitCode> {
    let made = make(folder)?;
    say(&match made.as_slice() {
        [] => format!("{}: everything is there, and nothing was changed", folder.display()),
        made => format!(
            "{}: made {}; a broker that runs already has to be started again, to know of it",
            folder.display(),
            made.join(", ")
        ),
    });
    Ok(ExitCode::SUCCESS)
}

/// Makes what is not there; answers what that was.
fn make(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut made = Vec::new();
    let users = users::all();
    let folders = users.iter().map(|(name, _)| *name).chain([NATS, HTTP, PROMETHEUS]);
    for path in folders.map(|name| folder.join(name)) {
        create_private(&path).with_context(|| unwritable(&path))?;
    }
    for (name, _) in &users {
        if broker::keep_key(&folder.join(name).join(KEY))? {
            made.push(format!("{name}/{KEY}"));
        }
    }
    let (all, operator) = (folder.join(HTTP).join(TOKENS), Member::ADMIN.to_string());
    for (owner, name, role, rate) in [
        (operator.as_str(), INTERNAL, Role::Admin, Some(INTERNAL_RATE)),
        (SAGACTL, SAGACTL, Role::Admin, None),
        (PROMETHEUS, PROMETHEUS, Role::Viewer, None),
    ] {
        if tokens::keep(&all, &folder.join(owner).join(TOKEN), name, role, rate)? {
            made.push(format!("{owner}/{TOKEN}"));
        }
    }
    let own = folder.join(PROMETHEUS);
    for (path, mode) in [(own.join(TOKEN), FOR_THE_GROUP.1), (own, FOR_THE_GROUP.0)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(|| unwritable(&path))?;
    }
    let config = folder.join(NATS).join(NATS_CONFIG);
    let (listen, monitoring, store) = PLACE;
    let place = broker::Place {
        listen,
        monitoring: Some(monitoring),
        store: Path::new(store),
        store_at_most: FROM_THE_ENVIRONMENT,
        log: None,
        cluster: None,
    };
    let text = broker::configuration(&place, |name| folder.join(name).join(KEY))?;
    if fs::read_to_string(&config).ok().is_none_or(|there| there != text) {
        write_private(&config, text.as_bytes()).with_context(|| unwritable(&config))?;
        made.push(format!("{NATS}/{NATS_CONFIG}"));
    }
    Ok(made)
}

fn unwritable(path: &Path) -> String {
    format!("{} cannot be written: name a folder of yours", path.display())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Every file below the folder, by folder and name, with its mode and what is in it; locks are none.
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
    fn everybody_gets_a_secret_of_its_own_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let said = make(folder).expect("made");
        let made = files(folder);
        let names: Vec<_> = made.keys().map(String::as_str).collect();
        let wanted = [
            "admin/broker.nk",
            "admin/http.token",
            "http/tokens.json",
            "inventory/broker.nk",
            "nats/nats.conf",
            "order/broker.nk",
            "payment/broker.nk",
            "prometheus/http.token",
            "sagactl/broker.nk",
            "sagactl/http.token",
        ];
        assert_eq!(names, wanted);
        assert_eq!(said.len(), wanted.len() - 1, "the list of tokens is no secret: {said:?}");
        let open: Vec<_> = made.iter().filter(|(_, (mode, _))| mode & 0o077 != 0).collect();
        assert_eq!(open.len(), 1, "{open:?}");
        assert!(open[0].0 == "prometheus/http.token" && open[0].1.0 == 0o640, "{open:?}");
        assert_eq!(make(folder).expect("made again"), [""; 0]);
        assert_eq!(files(folder), made);
        // What somebody has lost is made anew, and the broker is told.
        fs::remove_file(folder.join("order").join(KEY)).expect("it was there");
        assert_eq!(make(folder).expect("made again"), ["order/broker.nk", "nats/nats.conf"]);
        let anew = files(folder);
        let changed: Vec<_> = made.keys().filter(|name| made[*name] != anew[*name]).collect();
        assert_eq!(changed, ["nats/nats.conf", "order/broker.nk"]);
    }

    #[test]
    fn who_knows_everybody_knows_nobodys_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        make(folder.path()).expect("made");
        let made = files(folder.path());
        let (config, tokens) = (&made["nats/nats.conf"].1, &made["http/tokens.json"].1);
        for wanted in [
            "listen: \"0.0.0.0:4222\"",
            "http: \"0.0.0.0:8222\"",
            "store_dir: \"/data\"",
            "max_file_store: $NATS_MAX_FILE_STORE\n",
            "sync_interval: always",
            "order.created",
        ] {
            assert!(config.contains(wanted), "{wanted}: {config}");
        }
        for (name, (_, secret)) in
            made.iter().filter(|(name, _)| !name.contains("nats") && !name.contains("json"))
        {
            assert!(!config.contains(secret.trim()) && !tokens.contains(secret.trim()), "{name}");
        }
    }
}
