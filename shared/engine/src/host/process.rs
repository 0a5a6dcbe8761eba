//! Shell: command line of a service: runs it, or one operation on its database.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use futures::future::BoxFuture;
use saga_core::RowKind;
use saga_core::service::Service;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::error;

use super::app::Program;
use super::archive::Archive;
use super::health_probe;
use super::log::{self, LogSettings};
use super::run::{run, task_handler};
use super::settings::{self, DbLocation, Settings, Sources};
use super::stop::BLOCKING_ENDS_WITHIN;
use crate::store::OpenOptions;

/// Command line of every service.
#[derive(Debug, Parser)]
#[command(version, about = "One service of a saga. Without a command it runs until SIGTERM or Ctrl-C.")]
struct Arguments {
    /// TOML file with settings of this service.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Setting in place of that of the file, e.g. --set http.bind=127.0.0.1:9000 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(subcommand)]
    operation: Option<Operation>,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Operation {
    /// Delete the rows of a kind and rebuild them from their events. The service must be stopped. Exit code 4 for an
    /// unknown kind.
    Rebuild {
        /// Kind of rows, e.g. "saga".
        kind: String,
        /// Restore purged events from the archive first (`retention.archive`).
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        trailing: TrailingOptions,
    },
    /// Ask the running service for its readiness, as a container health check. Exit code 1 if it is not ready.
    Healthy {
        #[command(flatten)]
        trailing: TrailingOptions,
    },
    /// Verify every page, and every row against its events. The service must be stopped. Exit code 1 if anything is
    /// wrong, or there is no database.
    Verify {
        #[command(flatten)]
        trailing: TrailingOptions,
    },
    /// Print the settings that the service would run with, as JSON. Secrets are not shown.
    Settings {
        #[command(flatten)]
        trailing: TrailingOptions,
    },
}

/// Options that may also follow the command.
// Not a global option: if that is given in both places, only the last counts.
#[derive(Debug, Clone, Default, clap::Args)]
struct TrailingOptions {
    /// TOML file with settings of this service.
    #[arg(id = "trailing_config", long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Setting in place of that of the file, e.g. --set http.bind=127.0.0.1:9000 (may be repeated).
    #[arg(id = "trailing_set", long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Arguments {
    /// Merges the settings of both places. Those after the command win.
    fn sources(&self) -> Sources {
        let trailing = match &self.operation {
            None => &TrailingOptions::default(),
            Some(
                Operation::Rebuild { trailing, .. }
                | Operation::Healthy { trailing }
                | Operation::Verify { trailing }
                | Operation::Settings { trailing },
            ) => trailing,
        };
        let file = trailing.config.clone().or_else(|| self.config.clone());
        Sources { file, flags: self.set.iter().chain(&trailing.set).cloned().collect() }
    }
}

/// Kind of rows that a service does not have.
#[derive(Debug, thiserror::Error)]
#[error("{service} has no rows of kind {kind}; it has {known}")]
struct UnknownKind {
    service: &'static str,
    kind: String,
    known: String,
}

/// Exit code for an unknown name, as in the other programs.
const UNKNOWN: u8 = 4;

/// Runs a service from its command line. Prints an error as one line on standard error, and exits with code 1.
pub fn main<S: Service, X>(program: Program<S, X>) -> ExitCode
where
    X: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let arguments = Arguments::command().name(S::NAME).get_matches();
    let arguments = Arguments::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    let outcome = settings::load::<X>(S::NAME, program.defaults, &arguments.sources())
        .map_err(anyhow::Error::from)
        .and_then(|settings| start(program, settings, arguments.operation));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed pipe is no failure.
            let shown = format!("{error:#}");
            let _ = writeln!(std::io::stderr(), "{}: {}", S::NAME, S::SECRETS.blank_text(&shown));
            if error.is::<UnknownKind>() { ExitCode::from(UNKNOWN) } else { ExitCode::FAILURE }
        }
    }
}

fn start<S: Service, X>(
    program: Program<S, X>,
    settings: Settings<X>,
    operation: Option<Operation>,
) -> anyhow::Result<()>
where
    X: Serialize + Send + Sync + 'static,
{
    let Some(operation) = operation else {
        let is_elsewhere = settings.log.file.is_some();
        let log = log::start(&settings.log, S::SECRETS)?;
        let outcome = block_on(Box::pin(run(program, settings, log.dropped())));
        if is_elsewhere && let Err(error) = &outcome {
            // Readers of the log file do not see standard error.
            error!("ended: {error:#}");
        }
        return outcome;
    };
    let operation = match operation {
        Operation::Rebuild { kind, archived, .. } => {
            let archive = match archived {
                true => Some(settings.open_archive(S::NAME)?.context("retention.archive names no folder")?),
                false => None,
            };
            StoreOperation::Rebuild { kind, archive }
        }
        Operation::Verify { .. } => StoreOperation::Verify,
        Operation::Healthy { .. } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let summary = runtime.block_on(health_probe::fetch_readiness(&settings.http));
            // Does not wait for a name that is still being resolved.
            runtime.shutdown_background();
            let summary = summary?;
            let _ = writeln!(std::io::stdout(), "{}: {summary}", S::NAME);
            return Ok(());
        }
        Operation::Settings { .. } => {
            task_handler(&program, &settings)?;
            let mut shown = serde_json::to_value(&settings)?;
            // The address of the broker may hold a password.
            shown["bus"]["url"] = settings.bus.shown_url().into();
            let _ = writeln!(std::io::stdout(), "{shown:#}");
            return Ok(());
        }
    };
    // The operator reads the log on standard error.
    let _log = log::start(&LogSettings { file: None, ..settings.log.clone() }, S::SECRETS)?;
    let database = settings.store.location()?;
    block_on(operate(operation, database, settings.store.accept_loss, S::NAME, S::rows()))
}

fn block_on(work: BoxFuture<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(BLOCKING_ENDS_WITHIN);
    outcome
}

/// Operation on the database of a stopped service.
enum StoreOperation {
    Rebuild { kind: String, archive: Option<Archive> },
    Verify,
}

fn operate(
    operation: StoreOperation,
    database: DbLocation,
    accept_loss: String,
    service: &'static str,
    rows: Vec<RowKind>,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(async move {
        let names: Vec<_> = rows.iter().map(|kind| kind.name).collect();
        // Checks the whole database, and creates none where there is none.
        let (must_exist, check_within) = (true, Duration::MAX);
        let opening = OpenOptions {
            service,
            must_exist,
            check_within,
            accept_loss: &accept_loss,
            alone: true,
            ..OpenOptions::default()
        };
        let store = database.open(rows, &opening).await?;
        match operation {
            StoreOperation::Rebuild { kind, archive } => {
                let Some(kind) = names.iter().find(|name| **name == kind) else {
                    return Err(UnknownKind { service, kind, known: names.join(", ") }.into());
                };
                let before = store.verify().await?;
                let restored_events = match archive {
                    Some(archive) => archive.restore(store.as_ref(), kind).await?,
                    None => 0,
                };
                let rows = store.rebuild(kind).await?;
                let after = store.verify().await?;
                let report = serde_json::json!({
                    "kind": kind, "rows": rows, "restored_events": restored_events,
                    "digest_before": before.digest, "digest_after": after.digest,
                    "identical": before.digest == after.digest, "differing": after.differing,
                });
                print(&report);
            }
            StoreOperation::Verify => {
                let report = store.verify().await?;
                print(&serde_json::to_value(&report)?);
                if !report.differing.is_empty() {
                    anyhow::bail!("rows differ from their events: {}", report.differing.join(", "));
                }
            }
        }
        Ok(())
    })
}

/// Prints a report as one line. Ignores a closed pipe.
fn print(report: &serde_json::Value) {
    let _ = writeln!(std::io::stdout(), "{report}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> Vec<String> {
        Arguments::try_parse_from(line.split(' ')).expect("arguments").sources().flags
    }

    /// The system looks names up in such threads, for half a minute where no name server answers.
    #[test]
    fn process_ends_although_a_thread_is_blocked() {
        let (held, until_released) = std::sync::mpsc::channel::<()>();
        let (ended, has_ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let work = async move {
                tokio::task::spawn_blocking(move || until_released.recv());
                Ok(())
            };
            let _ = ended.send(block_on(Box::pin(work)).is_ok());
        });
        assert_eq!(has_ended.recv_timeout(Duration::from_secs(20)), Ok(true));
        drop(held);
    }

    #[test]
    fn settings_are_accepted_before_and_after_command() {
        Arguments::command().debug_assert();
        assert_eq!(flags("order --set a=1 verify"), ["a=1"]);
        assert_eq!(flags("order verify --set a=1"), ["a=1"]);
        assert_eq!(flags("order --set a=1 rebuild order --set a=2 --set b=3"), ["a=1", "a=2", "b=3"]);
    }
}
