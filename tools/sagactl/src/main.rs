//! Shell: the command line of a local system: start, stop, watch, load and reconcile it, and mend what got stuck.

// What can be asked.
mod command;

// The local system: its processes, from their start to their end.
mod local;

// Orders at a fixed rate, followed to their end.
mod load;

// A system of its own, broken at random, and what became of its orders.
mod chaos;

// What operators ask of admin, to see what is stuck and to mend it.
mod operator;

// Admin: requests, answers, lists.
mod admin;

// Whether stock, money and messages agree.
mod reconciliation;

// Requests to the services.
mod http;

// Words of the command line.
mod args;

// What is printed, and exit codes.
mod output;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::admin::Admin;
use crate::command::{Arguments, Command, admin_of};
use crate::local::System;
use crate::output::{complain, exit};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    // One thread: what this program does is wait, and under load the cores belong to the system.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(error.into()),
    };
    // A closed pipe at the other end is no failure of ours.
    let _ = std::io::stdout().flush();
    outcome.unwrap_or_else(|error| ExitCode::from(complain(&error)))
}

async fn run(Arguments { data, admin, operator, command }: Arguments) -> anyhow::Result<ExitCode> {
    let folder = std::path::absolute(data)?;
    match command {
        Command::Local(command) => local::run(command, folder).await,
        Command::Audit(options) if options.accept.is_some() => {
            let who = args::operator_of(operator.as_deref(), |name| std::env::var(name).ok());
            let who = who.map_err(exit::refuse)?;
            reconciliation::accept(&Admin::at(admin_of(admin, &folder)?, who)?, &options).await
        }
        Command::Audit(options) => reconciliation::run(admin_of(admin, &folder)?.as_str(), options).await,
        Command::Chaos(options) => chaos::run(options).await,
        Command::Load(options) => load::run(&System::open(&folder)?, options).await,
        Command::Operate(command) => {
            let who = args::operator_of(operator.as_deref(), |name| std::env::var(name).ok());
            let who = who.map_err(exit::refuse)?;
            operator::run(command, || Admin::at(admin_of(admin, &folder)?, who), operator).await
        }
    }
}

/// Help goes to people as it is; an error is one line.
fn explain(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(exit::REFUSED);
    }
    let text = error.to_string();
    let ends = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let words: Vec<_> = text.lines().take_while(ends).flat_map(str::split_whitespace).collect();
    let sentence = words.join(" ");
    eprintln!("sagactl: {}", sentence.strip_prefix("error: ").unwrap_or(&sentence));
    ExitCode::from(exit::REFUSED)
}
