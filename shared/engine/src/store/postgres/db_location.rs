//! Shell: location of a database on a server, from its URL: address, TLS, password and time-outs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Connect;
use futures::future::BoxFuture;
use saga_core::retry::error_chain;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{self, ClientConfig};
use tracing::warn;

use crate::reloaded::{BadFile, Kept, read_protected};
use crate::trust::roots;
use crate::unverified_tls;

pub(super) type Tls = MakeRustlsConnect;

/// Connection to a server, which drives its client.
pub(super) type SocketConnection =
    tokio_postgres::Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>;

/// Time-out for connecting to a server: one of several hosts gets its share, so that all are tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// Time after which a peer that acknowledges nothing, or does not answer keep-alive probes, counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// Settings of each session. Keep-alive lets the server detect a dead client and release its locks, among them its name,
/// equally soon. Notices, such as about existing tables at a start, are suppressed.
///
/// Set by statements: a connection pooler does not pass the startup parameter `options` on.
const SESSION_SETTINGS: &str = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 2; \
     SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000; SET client_min_messages = warning;";

/// Location of a database on a server, and how to connect to it. Password and trusted certificates are read again when
/// their files change, for the next connection.
#[derive(Clone)]
pub struct DbLocation {
    /// Without a password from a file.
    pub(super) config: Config,
    password: Option<Kept<Option<String>>>,
    pub(super) tls: Kept<Tls>,
    shown: String,
    /// Additional settings of each session.
    more_settings: &'static str,
}

impl std::fmt::Debug for DbLocation {
    fn fmt(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        form.write_str(&self.shown)
    }
}

impl std::fmt::Display for DbLocation {
    /// Shows the location without the password.
    fn fmt(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        form.write_str(&self.shown)
    }
}

/// Check of the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// No check, like libpq's `prefer` and `require`.
    Anyone,
    /// Checks the certificate and the host name.
    Verified,
}

impl DbLocation {
    /// Parses a URL `postgres://USER[:PASSWORD]@HOST[:PORT][,HOST[:PORT]…]/DATABASE[?OPTIONS]`. Of several hosts the first that
    /// takes writes is used. Known options of libpq are those of
    /// [`Config`], and `sslmode` (also `verify-full`), `sslrootcert` and `passfile`. The content of `password_file`, if given,
    /// is the password.
    ///
    /// # Errors
    /// If the URL is invalid, or a file cannot be read. The text says which.
    pub fn of(url: &str, password_file: Option<&Path>) -> Result<Self, String> {
        let (base, options) = url.split_once('?').unwrap_or((url, ""));
        let (mut rest, mut trust, mut root, mut passfile) = (vec![], Trust::Anyone, None, None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", "verify-full")) => {
                    trust = Trust::Verified;
                    rest.push("sslmode=require");
                }
                Some(("sslmode", mode @ ("verify-ca" | "allow"))) => {
                    return Err(format!(
                        "sslmode={mode} is not known; there are disable, prefer, require and verify-full"
                    ));
                }
                Some(("sslrootcert", path)) => root = Some(PathBuf::from(path)),
                Some(("passfile", path)) => passfile = Some(PathBuf::from(path)),
                _ => rest.push(option),
            }
        }
        let mark = if rest.is_empty() { "" } else { "?" };
        let mut config: Config =
            format!("{base}{mark}{}", rest.join("&")).parse().map_err(|error: tokio_postgres::Error| {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                format!("{error}{}", source.unwrap_or_default())
            })?;
        if config.get_hosts().is_empty() {
            return Err("it names no host".to_owned());
        }
        if config.get_user().is_none() {
            return Err("it names no user".to_owned());
        }
        if config.get_dbname().is_none() {
            return Err("it names no database".to_owned());
        }
        // Like libpq, verifies whenever a root certificate is given.
        if root.is_some() && config.get_ssl_mode() == SslMode::Require {
            trust = Trust::Verified;
        }
        config
            .connect_timeout(CONNECT_TIMEOUT / u32::try_from(config.get_hosts().len()).unwrap_or(1))
            // Of several hosts only the primary is used, and a standby never, whatever name leads there.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .tcp_user_timeout(DEAD_AFTER)
            .keepalives_idle(DEAD_AFTER)
            .keepalives_interval(DEAD_AFTER / 5)
            .keepalives_retries(3);
        if config.get_application_name().is_none() {
            config.application_name(env!("CARGO_PKG_NAME"));
        }
        let shown = shown(&config);
        let password = password(&config, password_file, passfile)?;
        let files = root.iter().cloned().collect();
        let tls = Kept::open(files, move || tls(trust, root.as_deref())).map_err(|bad| bad.to_string())?;
        Ok(Self { config, password, tls, shown, more_settings: "" })
    }

    /// Returns `config` with the current password.
    pub(super) fn with_password(&self, mut config: Config) -> Config {
        if let Some(password) =
            self.password.as_ref().and_then(|password| password.current().as_ref().clone())
        {
            config.password(password);
        }
        config
    }

    /// Current TLS.
    pub(super) fn tls(&self) -> Tls {
        self.tls.current().as_ref().clone()
    }

    /// Adds settings of each session (statements `SET …`).
    pub(super) fn with_settings(self, more_settings: &'static str) -> Self {
        Self { more_settings, ..self }
    }

    /// Connects without any settings of the session.
    pub(super) async fn connect_unset(&self) -> Result<(Client, SocketConnection), tokio_postgres::Error> {
        self.with_password(self.config.clone()).connect(self.tls()).await
    }

    /// Applies the settings of the session.
    pub(super) async fn set_up(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        client.batch_execute(&format!("{SESSION_SETTINGS} {}", self.more_settings)).await
    }
}

impl Connect for DbLocation {
    fn connect(
        &self,
        _config: &Config,
    ) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), tokio_postgres::Error>> {
        Box::pin(async move {
            let (client, connection) = self.connect_unset().await?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    warn!("a connection to the database has ended: {}", error_chain(&error));
                }
            });
            self.set_up(&client).await?;
            Ok((client, driver))
        })
    }
}

/// Location for people: user, hosts and database.
fn shown(config: &Config) -> String {
    let host = |(at, host): (usize, &Host)| {
        let port = config.get_ports().get(at).or_else(|| config.get_ports().first()).unwrap_or(&5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(folder) => format!("{}:{port}", folder.display()),
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let (user, database) = (config.get_user().unwrap_or(""), config.get_dbname().unwrap_or(""));
    format!("postgres://{user}@{}/{database}", hosts.join(","))
}

/// Finds the password in the text of a file.
type PasswordParser = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Password of the file, else of the URL, else of a password file in libpq's format. `None` for that of the URL.
fn password(
    config: &Config,
    file: Option<&Path>,
    passfile: Option<PathBuf>,
) -> Result<Option<Kept<Option<String>>>, String> {
    let watched = |setting: &'static str, file: PathBuf, parse: PasswordParser| {
        let named = file.clone();
        let read = move || Ok(parse(&read_protected(setting, &named, 0, "name the file with the password")?));
        Kept::open(vec![file], read).map(Some).map_err(|bad| bad.to_string())
    };
    if let Some(file) = file {
        let whole = |text: &str| Some(text.trim_end_matches(['\r', '\n']).to_owned());
        return watched("store.password_file", file.to_owned(), Box::new(whole));
    }
    let default = || std::env::var_os("PGPASSFILE").map(PathBuf::from).filter(|path| path.exists());
    match passfile.or_else(default) {
        Some(path) if config.get_password().is_none() => {
            let config = config.clone();
            watched("passfile", path, Box::new(move |text| password_in(text, &config)))
        }
        Some(_) | None => Ok(None),
    }
}

/// Password of the first matching line, `host:port:database:user:password`. `*` matches anything, `\` escapes a colon
/// (<https://www.postgresql.org/docs/15/libpq-pgpass.html>).
fn password_in(lines: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first()? {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".to_owned(),
    };
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let wanted = [host.as_str(), port.as_str(), config.get_dbname()?, config.get_user()?];
    lines.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut parts = parts_of(line);
        let password = (parts.len() == 5).then(|| parts.pop())??;
        parts.iter().zip(wanted).all(|(part, wanted)| part == "*" || part == wanted).then_some(password)
    })
}

fn parts_of(line: &str) -> Vec<String> {
    let (mut parts, mut chars) = (vec![String::new()], line.chars());
    while let Some(char) = chars.next() {
        // The password is the rest.
        let char = match char {
            ':' if parts.len() < 5 => {
                parts.push(String::new());
                continue;
            }
            '\\' => chars.next().unwrap_or('\\'),
            other => other,
        };
        if let Some(part) = parts.last_mut() {
            part.push(char);
        }
    }
    parts
}

fn tls(trust: Trust, root: Option<&Path>) -> Result<Tls, BadFile> {
    let bad =
        |why| BadFile { setting: "sslrootcert", file: root.map(Path::to_owned).unwrap_or_default(), why };
    let unusable = |error: rustls::Error| bad(format!("TLS: {error}"));
    let config = match trust {
        Trust::Anyone => unverified_tls::client_config().map_err(unusable)?,
        Trust::Verified => {
            let Some(path) = root else {
                let why = "is not set: sslmode=verify-full needs sslrootcert=FILE, the certificates that are trusted";
                return Err(bad(why.to_owned()));
            };
            ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(unusable)?
                .with_root_certificates(roots("sslrootcert", path)?)
                .with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_shown_without_password_and_needs_user_and_database() {
        let location = DbLocation::of("postgres://shop:secret@db.example:6543/orders?sslmode=disable", None)
            .expect("a location");
        assert_eq!(location.to_string(), "postgres://shop@db.example:6543/orders");
        for (url, why) in [
            ("postgres://db.example/orders", "user"),
            ("postgres://shop@db.example", "database"),
            ("postgres://shop@db.example/orders?sslmode=verify-ca", "verify-full"),
            ("postgres://shop@db.example/orders?sslmode=verify-full", "sslrootcert"),
            ("postgres://shop@db.example/orders?sslmode=require&sslrootcert=/nowhere", "/nowhere"),
            ("postgres://shop@db.example/orders?sslmod=require", "sslmod"),
        ] {
            let error = DbLocation::of(url, None).expect_err(url);
            assert!(error.contains(why), "{url}: {error}");
        }
    }

    #[test]
    fn changed_password_and_certificates_are_used_for_the_next_connection() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, root) = (folder.path().join("password"), folder.path().join("root.pem"));
        let authority =
            || rcgen::generate_simple_self_signed(vec!["db.example".to_owned()]).expect("a key").cert.pem();
        std::fs::write(&file, "first").expect("a file");
        std::fs::write(&root, authority()).expect("a file");
        let url =
            format!("postgres://shop@db.example/orders?sslmode=verify-full&sslrootcert={}", root.display());
        let location = DbLocation::of(&url, Some(&file)).expect("a location");
        let password = || location.with_password(location.config.clone()).get_password().map(<[u8]>::to_vec);
        assert_eq!(password().as_deref(), Some(&b"first"[..]));
        let before = location.tls.current();
        std::fs::write(&file, "second\n").expect("a file");
        std::fs::write(&root, authority()).expect("a file");
        until(|| password().as_deref() == Some(&b"second"[..]));
        until(|| !Arc::ptr_eq(&before, &location.tls.current()));
        // The last good ones stay in use, and a check says so.
        std::fs::remove_file(&file).expect("it is there");
        std::fs::write(&root, "no certificate").expect("a file");
        until(|| {
            let _ = (password(), location.tls());
            let unusable = crate::reloaded::unusable_files().unwrap_or_default();
            unusable.contains("store.password_file") && unusable.contains("sslrootcert")
        });
        assert_eq!(password().as_deref(), Some(&b"second"[..]));
    }

    /// Waits until a changed file is noticed.
    fn until(is_so: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "the change is not noticed");
            std::thread::yield_now();
        }
    }

    #[test]
    fn password_comes_from_file_then_url_then_first_matching_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, passfile) = (folder.path().join("password"), folder.path().join("pgpass"));
        std::fs::write(&file, "of the file\n").expect("a file");
        std::fs::write(
            &passfile,
            "# a comment\nelsewhere:*:*:*:no\n*:5432:orders:shop:of\\:a: line\n*:*:*:*:last\n",
        )
        .expect("a file");
        let password = |url: &str, file: Option<&Path>| {
            let location = DbLocation::of(url, file).expect("a location");
            let config = location.with_password(location.config.clone());
            config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())
        };
        let by_line = format!("postgres://shop@db.example/orders?passfile={}", passfile.display());
        assert_eq!(
            password("postgres://shop:url@db.example/orders", Some(&file)).as_deref(),
            Some("of the file")
        );
        assert_eq!(password("postgres://shop:url@db.example/orders", None).as_deref(), Some("url"));
        assert_eq!(password(&by_line, None).as_deref(), Some("of:a: line"));
        assert_eq!(password(&by_line.replace("shop@", "other@"), None).as_deref(), Some("last"));
    }
}
