//! Shell: the command line of a local system: start, stop, watch, load and reconcile it, and mend what got stuck.

// A closed pipe must be no failure: everything is printed by `output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

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

// How everything is, and what to do where something is wrong.
mod overview;

// Whether stock, money and messages agree.
mod reconciliation;

// Requests to the services, and how this program gets in.
mod entry;
mod http;

// Who may ask for what.
mod token;

// Words of the command line.
mod args;

// What is printed, and exit codes.
mod output;

// The command line about itself: manual pages, and what shells complete.
mod manual;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::admin::Admin;
use crate::command::{Arguments, Command, admin_of};
use crate::entry::Entry;
use crate::local::System;
use crate::output::{complain, exit, look, note};
use crate::overview::Asked;

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

async fn run(Arguments { common, command }: Arguments) -> anyhow::Result<ExitCode> {
    look(common.color, common.wide);
    if common.admin.is_some() && command.is_local() {
        return Err(exit::refuse(
            "--admin names the admin of a system elsewhere, and this command is about processes and files of this machine: \
             leave it out, and name the system's folder with --data",
        ));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let is_elsewhere = common.admin.is_some() || common.data.is_none();
    let place = command::place(common.data, common.admin, variable).map_err(exit::refuse)?;
    let folder = std::path::absolute(&place.folder)?;
    let who = || args::operator_of(common.operator.as_deref(), variable).map_err(exit::refuse);
    // The token of the local system is for that alone.
    let entry = |is_local: bool| -> anyhow::Result<Entry> {
        let entry = match Entry::named(common.token.as_ref(), variable)? {
            Some(named) => named,
            None if is_local => {
                System::find(&folder)?.map_or(Ok(Entry::default()), |system| system.entry())?
            }
            None => Entry::default(),
        };
        Ok(Entry { authorities: entry::authorities(common.ca.as_deref(), variable)?, ..entry })
    };
    let is_local = place.admin.is_none();
    let admin = || Admin::at(admin_of(place.admin.clone(), &folder)?, &entry(is_local)?, who()?);
    // A folder that was named is meant more than a variable.
    let elsewhere = place.admin.clone().filter(|_| is_elsewhere);
    let asked = || match elsewhere {
        Some(elsewhere) => Asked::elsewhere(elsewhere, &entry(false)?),
        None => Asked::here(&folder, &entry(true)?),
    };
    match command {
        Command::Local(command) => local::run(command, folder).await,
        Command::Status(form) => overview::status(&asked()?, form).await,
        Command::Doctor(form) => overview::doctor(&asked()?, form).await,
        Command::Audit(options) if options.accept.is_some() => {
            reconciliation::accept(&admin()?, &options).await
        }
        Command::Audit(options) => {
            let entry = entry(is_local)?;
            reconciliation::run(admin_of(place.admin, &folder)?.as_str(), &entry, options).await
        }
        Command::Chaos(options) => chaos::run(options).await,
        Command::Load(options) => load::run(&System::open(&folder)?, options).await,
        Command::Token(command) => token::run(command, &folder),
        Command::Operate(command) => operator::run(command, admin, common.operator.clone()).await,
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
    }
}

/// Help goes to people as it is; an error is one line, with what was probably meant.
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
    note(&format!("sagactl: {}", sentence.strip_prefix("error: ").unwrap_or(&sentence)));
    ExitCode::from(exit::REFUSED)
}
