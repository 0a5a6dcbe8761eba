//! Shell: settings of the database, and how it is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use saga_core::row::RowKind;
use serde::{Deserialize, Serialize};

use super::{BadSettings, Settings};
use crate::store::postgres::{self, PostgresStore};
use crate::store::sqlite::SqliteStore;
use crate::store::{DEFAULT_MAX_CONNECTIONS, OpenOptions, Store, StoreFault};

/// Location and checks of the database (section `store`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// `sqlite:PATH` for a file, or `postgres://USER@HOST[:PORT][,HOST[:PORT]]/DATABASE`, which replicas share. Of several
    /// hosts, the one that takes writes is used.
    #[serde(serialize_with = "without_password")]
    pub url: String,
    /// File with the password of the database's user, in place of one in the URL.
    pub password_file: Option<PathBuf>,
    /// Maximum time of the integrity check at a start. `verify` checks all pages.
    #[serde(with = "humantime_serde")]
    pub check_within: Duration,
    /// Maximum time that a start waits for a PostgreSQL server to accept connections.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// Maximum number of connections of this process to a PostgreSQL server, at least 3. Unused ones are closed after ten
    /// seconds.
    pub max_connections: usize,
    /// Free bytes of a SQLite database's disk below which the check `disk` warns.
    pub free_bytes_warning: u64,
    /// Free bytes of a SQLite database's disk below which order accepts no new orders, so that those in flight can end.
    pub free_bytes_minimum: u64,
    /// Size of a SQLite database's write-ahead log above which the check `disk` warns. It grows while something reads without an
    /// end.
    pub log_bytes_warning: u64,
    /// Name of an accepted loss of data, as printed by the rejected start.
    pub accept_loss: String,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            password_file: None,
            check_within: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(30),
            max_connections: DEFAULT_MAX_CONNECTIONS,
            free_bytes_warning: 256 << 20,
            free_bytes_minimum: 64 << 20,
            log_bytes_warning: 256 << 20,
            accept_loss: String::new(),
        }
    }
}

impl<X> Settings<X> {
    /// Opens the database of `service`. Creates a missing file, and missing tables.
    ///
    /// # Errors
    /// When the URL is of another kind, or the database cannot be used.
    pub async fn open_store(&self, service: &str, rows: Vec<RowKind>) -> anyhow::Result<Arc<dyn Store>> {
        Ok(self.store.location()?.open(rows, &self.open_options(service)).await?)
    }

    /// Returns the options with which the database of `service` is opened.
    #[must_use]
    pub fn open_options<'a>(&'a self, service: &'a str) -> OpenOptions<'a> {
        let StoreSettings { check_within, connect_timeout, max_connections, accept_loss, .. } = &self.store;
        let (check_within, wait, instance) = (*check_within, *connect_timeout, self.instance.as_str());
        let max_connections = *max_connections;
        OpenOptions {
            service,
            check_within,
            accept_loss,
            instance,
            wait,
            max_connections,
            ..OpenOptions::default()
        }
    }
}

/// Kind and location of a service's database.
#[derive(Debug, Clone)]
pub enum DbLocation {
    /// SQLite file, which one process owns.
    File(PathBuf),
    /// PostgreSQL database, which replicas share.
    Server(Box<postgres::DbLocation>),
}

impl DbLocation {
    /// Opens it.
    ///
    /// # Errors
    /// As [`SqliteStore::open_as`] and [`PostgresStore::open`].
    pub async fn open(
        &self,
        rows: Vec<RowKind>,
        opening: &OpenOptions<'_>,
    ) -> Result<Arc<dyn Store>, StoreFault> {
        Ok(match self {
            Self::File(path) => Arc::new(SqliteStore::open_as(path, rows, opening)?),
            Self::Server(place) => Arc::new(PostgresStore::open(place, rows, opening).await?),
        })
    }
}

impl StoreSettings {
    /// Returns the URL without its password.
    #[must_use]
    pub fn shown_url(&self) -> String {
        shown(&self.url)
    }

    /// Parses `store.url`.
    ///
    /// # Errors
    /// When the URL is invalid, or the password file cannot be read.
    pub fn location(&self) -> Result<DbLocation, BadSettings> {
        let Self { url, password_file, .. } = self;
        if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            let place = postgres::DbLocation::of(url, password_file.as_deref());
            return place
                .map(|place| DbLocation::Server(Box::new(place)))
                .map_err(|why| BadSettings(format!("store.url: {why}")));
        }
        match url.strip_prefix("sqlite:").map(|path| path.trim_start_matches("//")) {
            Some(path) if !path.is_empty() => Ok(DbLocation::File(PathBuf::from(path))),
            _ => Err(BadSettings(format!(
                "store.url is {url:?}, expected sqlite:PATH or postgres://USER@HOST/DATABASE"
            ))),
        }
    }
}

fn without_password<S: serde::Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown(url))
}

/// Removes the password from a URL. It may contain an `@`, or be among the options.
fn shown(url: &str) -> String {
    let hidden = url.split_once("://").and_then(|(scheme, rest)| {
        let (user, rest) = rest.split('?').next()?.rsplit_once('@')?;
        let name = user.split_once(':').map_or_else(|| user.to_owned(), |(name, _)| format!("{name}:***"));
        Some(format!("{scheme}://{name}@{rest}"))
    });
    hidden.unwrap_or_else(|| url.to_owned())
}
