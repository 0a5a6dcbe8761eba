//! Shell: a service's process: `main` parses the command line, `run` does the rest.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use futures::future::BoxFuture;
use saga_core::RowKind;
use saga_core::service::Service;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::error;

use super::app::Program;
use super::log::{self, LogSettings};
use super::run::run;
use super::settings::{self, Settings, Sources};
use crate::store::Store;
use crate::store::sqlite::{Opening, SqliteStore};

/// What every service can be told on its command line.
#[derive(Debug, Parser)]
#[command(version, about = "One service of a saga. Without a command it runs until SIGTERM or Ctrl-C.")]
struct Arguments {
    /// TOML file with settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, e.g. --set http.bind=127.0.0.1:9000 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(subcommand)]
    operation: Option<Operation>,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Operation {
    /// Delete the rows of a kind and fold them anew from the events; the service must be stopped.
    Rebuild {
        /// Kind of rows, e.g. "saga".
        kind: String,
    },
    /// Check every page, and every row against the fold of its events; the service must be stopped. Exit code 1 when
    /// something is wrong, or there is no database.
    Verify,
}

/// Runs a service from its command line to its end. Errors are one line on standard error and exit code 1.
pub fn main<S: Service, X>(program: Program<S, X>) -> ExitCode
where
    X: DeserializeOwned + Serialize + Send + Sync + 'static,
{
    let arguments = Arguments::command().name(S::NAME).get_matches();
    let arguments = Arguments::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    let sources = Sources { file: arguments.config, flags: arguments.set };
    let outcome = settings::load::<X>(S::NAME, program.defaults, &sources)
        .map_err(anyhow::Error::from)
        .and_then(|settings| start(program, settings, arguments.operation));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error:#}", S::NAME);
            ExitCode::FAILURE
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
        let log = log::start(&settings.log)?;
        let outcome = block_on(Box::pin(run(program, settings, log.lost())));
        if is_elsewhere && let Err(error) = &outcome {
            // Who looks into the file does not see standard error.
            error!("ended: {error:#}");
        }
        return outcome;
    };
    // Whoever operates reads along.
    let _log = log::start(&LogSettings { file: None, ..settings.log.clone() })?;
    let database = settings.sqlite_path()?;
    block_on(operate(operation, database, settings.store.accept_loss, S::NAME, S::rows()))
}

fn block_on(work: BoxFuture<'_, anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

fn operate(
    operation: Operation,
    database: PathBuf,
    accept_loss: String,
    service: &'static str,
    rows: Vec<RowKind>,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(async move {
        let names: Vec<_> = rows.iter().map(|kind| kind.name).collect();
        // Whole, however long it takes; and none is made where there is none.
        let (must_exist, check_within) = (true, Duration::MAX);
        let opening = Opening { service, must_exist, check_within, accept_loss: &accept_loss };
        let store = SqliteStore::open_as(&database, rows, &opening)?;
        match operation {
            Operation::Rebuild { kind } => {
                let Some(kind) = names.iter().find(|name| **name == kind) else {
                    anyhow::bail!("{service} has no rows of kind {kind:?}; it has {}", names.join(", "));
                };
                let before = store.verify().await?;
                let rows = store.rebuild(kind).await?;
                let after = store.verify().await?;
                let report = serde_json::json!({
                    "kind": kind, "rows": rows, "digest_before": before.digest, "digest_after": after.digest,
                    "identical": before.digest == after.digest, "differing": after.differing,
                });
                println!("{report}");
            }
            Operation::Verify => {
                let report = store.verify().await?;
                println!("{}", serde_json::to_string(&report)?);
                if !report.differing.is_empty() {
                    anyhow::bail!("rows differ from their events: {}", report.differing.join(", "));
                }
            }
        }
        Ok(())
    })
}
