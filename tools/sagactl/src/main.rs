//! Shell: the command line of a local system: start, stop, watch, load and reconcile it, and mend what got stuck.

// A closed pipe must be no failure: everything is printed by `output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// What can be asked.
mod command;

// The local system, load, chaos: libraries of their own; their subcommands.
mod local;

// What operators ask of admin, to see what is stuck and to mend it.
mod operator;

// Admin: requests, answers, lists.
mod admin;

// How everything is, and what to do where something is wrong; the same on a live screen.
mod overview;
mod top;

// Whether stock, money and messages agree.
mod reconciliation;

// Who may ask for what.
mod token;

// Words of the command line.
mod args;

// The command line about itself: manual pages, and what shells complete.
mod manual;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use cli as output;
use client::access::{self as entry, Entry};
use client::http;
use devstack::System;

use crate::admin::Admin;
use crate::command::{Arguments, Command, admin_of};
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
        Ok(runtime) => {
            let outcome = runtime.block_on(run(arguments));
            // A name that is still being looked up is waited for no longer.
            runtime.shutdown_background();
            outcome
        }
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
    let asked = || match place.admin.clone() {
        Some(elsewhere) => Asked::elsewhere(elsewhere, &entry(false)?),
        None => Asked::here(&folder, &entry(true)?),
    };
    match command {
        Command::Local(command) => local::run(command, folder).await,
        Command::Status(form) => overview::status(&asked()?, form).await,
        Command::Doctor(form) => overview::doctor(&asked()?, form).await,
        Command::Top(options) => top::run(asked()?, options).await,
        Command::Audit(options) if options.accept.is_some() => {
            reconciliation::accept(&admin()?, &options).await
        }
        Command::Audit(options) => {
            let entry = entry(is_local)?;
            reconciliation::run(admin_of(place.admin, &folder)?.as_str(), &entry, options).await
        }
        Command::Chaos(options) => chaos::run(options).await,
        Command::Load(options) => {
            let (reach, is_elsewhere) = (local::reach(&options.whose, &folder)?, options.whose.by_name);
            let system = if is_elsewhere { None } else { System::find(&folder)? };
            loadgen::run(&reach, system.as_ref(), options).await
        }
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
    note(&format!("sagactl: {}", complaint_of(error)));
    ExitCode::from(exit::REFUSED)
}

/// What is wrong with a command line, and below it what there is instead.
fn complaint_of(error: &clap::Error) -> String {
    let text = error.to_string();
    let ends = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    // No argument of this program begins with a dash: whoever wrote one meant an option, and mistyped it.
    let misleads = |line: &str| line.trim_start().starts_with("tip: to pass '");
    let said = text.lines().take_while(ends).filter(|line| !line.trim().is_empty() && !misleads(line));
    let names_a_breaker = error.kind() == ErrorKind::UnknownArgument && text.contains("<SERVICE/NAME>");
    let tip = names_a_breaker.then_some("  tip: name a breaker in one word: payment/bank");
    let lines: Vec<_> = said.map(|line| line.strip_prefix("error: ").unwrap_or(line)).chain(tip).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_command_line_is_told_in_lines_and_no_tip_misleads() {
        let told = |line: &str| {
            let parsed = Arguments::try_parse_from(std::iter::once("sagactl").chain(line.split(' ')));
            complaint_of(&parsed.expect_err("it makes no sense"))
        };
        let status = "unrecognized subcommand 'statsu'\n  tip: some similar subcommands exist: ";
        assert!(told("statsu").starts_with(status), "{}", told("statsu"));
        let id = "01890000-0000-7000-8000-000000000001";
        assert_eq!(told(&format!("saga extend {id} --by 1m")), "unexpected argument '--by' found");
        let breaker = "unexpected argument 'bank' found\n  tip: name a breaker in one word: payment/bank";
        assert_eq!(told("breakers open payment bank"), breaker);
        for line in
            ["saga show 123", "dlq show x", "dlq replay x", "redrive show 7", "dlq edit x", "saga settle x"]
        {
            assert!(told(line).contains("ids look like 01a205e9-"), "{line}: {}", told(line));
        }
    }
}
