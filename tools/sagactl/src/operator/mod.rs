//! Shell: what an operator asks of admin: to see what is stuck or parked, and to mend it.
//!
//! Every command asks [`Admin`], and [shows](show) the answer: as it came with `--json`, else for people.

mod admin;
mod breakers;
mod dlq;
mod faults;
mod log;
mod outbox;
mod redrive;
mod saga;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::admin::Admin;
use self::admin::Asked;
use crate::output::exit;
use crate::output::{complain, say};

/// What to ask of admin.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// Dead letters: list, look at, replay, edit, discard
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Redrives: bulk replays that watch themselves (start one with dlq redrive)
    #[command(subcommand)]
    Redrive(redrive::RedriveCommand),
    /// Sagas: where each stands, what it waits for
    #[command(subcommand)]
    Saga(saga::SagaCommand),
    /// Circuit breakers: list them; open, close or reset one
    Breakers(breakers::BreakerOptions),
    /// Planted faults: list them; inject or clear some
    Faults(faults::FaultOptions),
    /// What waits to be published; try again what was given up
    Outbox(outbox::OutboxOptions),
    /// The audit log: who did what, newest first; --operator NAME shows only theirs
    Log(log::LogOptions),
}

/// Which part of a list, and in which form.
#[derive(Debug, Args)]
pub struct PageOptions {
    /// At most this many (1 to 200; 50 when not given).
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Where the last page ended.
    #[arg(long)]
    cursor: Option<String>,
    /// The API's own JSON.
    #[arg(long)]
    json: bool,
}

impl PageOptions {
    /// Asks for it, beside what is asked already.
    fn asked(&self, asked: Asked) -> Asked {
        asked.with("limit", self.limit).with("cursor", self.cursor.as_deref())
    }
}

/// Runs one; `admin` is only made when somebody is to be asked.
pub async fn run(
    command: OperatorCommand,
    admin: impl FnOnce() -> anyhow::Result<Admin>,
    named: Option<&str>,
) -> anyhow::Result<ExitCode> {
    match command {
        OperatorCommand::Dlq(command) => dlq::run(&admin()?, command).await,
        OperatorCommand::Redrive(command) => redrive::run(&admin()?, command).await,
        OperatorCommand::Saga(command) => saga::run(&admin()?, command).await,
        OperatorCommand::Breakers(options) => breakers::run(&admin()?, options).await,
        OperatorCommand::Faults(options) => faults::run(admin, options).await,
        OperatorCommand::Outbox(options) => outbox::run(&admin()?, options).await,
        OperatorCommand::Log(options) => log::run(&admin()?, options, named).await,
    }
}

/// Prints an answer: as it came, in one line, or as `render` puts it for people.
fn show<T: DeserializeOwned>(
    answer: Value,
    json: bool,
    render: impl FnOnce(&T) -> String,
) -> anyhow::Result<ExitCode> {
    if json {
        say(&answer.to_string());
    } else {
        say(&render(&read(answer)?));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads an answer.
fn read<T: DeserializeOwned>(answer: Value) -> anyhow::Result<T> {
    serde_json::from_value(answer).context("admin answers otherwise than expected: is it of another version?")
}

/// `cursor` of the next page, for people.
fn more(next: Option<&str>) -> String {
    next.map(|cursor| format!("\nmore with --cursor {cursor}")).unwrap_or_default()
}

/// Does something to one thing after another. What is refused is said, and the rest is done all the same; when
/// admin is in trouble the rest is not tried.
async fn each<T: ToString>(
    things: Vec<T>,
    act: impl AsyncFn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    let mut first = None;
    for thing in things {
        let name = thing.to_string();
        match act(&name).await.with_context(|| name.clone()) {
            Ok(done) => say(&done),
            Err(error) if exit::code_of(&error) == exit::FAILED => return Err(error),
            Err(error) => {
                let code = complain(&error);
                first.get_or_insert(code);
            }
        }
    }
    Ok(first.map_or(ExitCode::SUCCESS, ExitCode::from))
}
