//! Shell: `sagactl`, the command line for operators: system state, dead letters, sagas, reconciliation, the local system.

// The functions of `cli` ignore a closed pipe.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// Command line.
mod args;
mod command;
mod manual;

// The local system and its tokens. Load and chaos are libraries of their own.
mod local;
mod token;

// Commands that admin carries out, and its client.
mod admin;
mod operator;

// State of everything, once and on a live screen.
mod overview;
mod top;

// Reconciliation.
mod reconcile;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use client::access::{self, Access};
use devstack::System;
use devstack::audit::Operator;

use crate::admin::Admin;
use crate::command::{Arguments, Command, Selection, admin_of};
use crate::overview::Source;
use cli::{configure, exit, note, print_error};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return print_usage_error(&error, std::env::args().collect()),
    };
    // One thread: this program mostly waits, and under load the cores belong to the system.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(arguments));
            // Does not wait for DNS lookups.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    // A closed pipe is no failure.
    let _ = std::io::stdout().flush();
    outcome.unwrap_or_else(|error| ExitCode::from(print_error(&error)))
}

async fn run(Arguments { common, command }: Arguments) -> anyhow::Result<ExitCode> {
    configure(common.color, common.wide);
    if common.admin.is_some() && command.is_local() {
        return Err(exit::rejected(
            "--admin names the admin of a remote system, and this command is for processes and files of this machine: \
             leave it out, and name the data folder with --data",
        ));
    }
    let variable = |name: &str| std::env::var(name).ok();
    let Selection { folder, admin: remote } =
        command::selection(common.data, common.admin, variable).map_err(exit::rejected)?;
    let folder = std::path::absolute(&folder)?;
    let operator = || args::operator_of(common.operator.as_deref(), variable).map_err(exit::rejected);
    // The token of the local system is not sent to a remote admin.
    let access = || -> anyhow::Result<Access> {
        let access = match Access::from_argument(common.token.as_ref(), variable)? {
            Some(given) => given,
            None if remote.is_none() => {
                System::find(&folder)?.map_or(Ok(Access::default()), |system| system.access())?
            }
            None => Access::default(),
        };
        Ok(Access { authorities: access::authorities(common.ca.as_deref(), variable)?, ..access })
    };
    let admin = || Admin::new(admin_of(remote.clone(), &folder)?, &access()?, operator()?);
    let source = || match remote.clone() {
        Some(remote) => Source::remote(remote, &access()?),
        None => Source::local(&folder, &access()?),
    };
    let local_operator = || -> anyhow::Result<Operator> {
        let token = Access::from_argument(common.token.as_ref(), variable)?.and_then(|given| given.token);
        let named = operator()?;
        let is_given = named.as_ref().is_some_and(|named| named.is_given);
        Ok(Operator { name: named.map(|named| named.name), is_given, token })
    };
    match command {
        Command::Local(command) => local::run(command, folder, local_operator()?).await,
        Command::Status(form) => overview::status(&source()?, form).await,
        Command::Doctor(form) => overview::doctor(&source()?, form).await,
        Command::Top(options) => top::run(source()?, options).await,
        Command::Reconcile(options) if options.accept.is_some() => {
            reconcile::accept(&admin()?, options).await
        }
        Command::Reconcile(options) => {
            reconcile::run(admin_of(remote.clone(), &folder)?.as_str(), &access()?, options).await
        }
        Command::Chaos(options) => chaos::run(options).await,
        Command::Load(options) => {
            let endpoints = local::endpoints(&options.target, &folder)?;
            let system = if options.target.by_name { None } else { System::find(&folder)? };
            loadgen::run(&endpoints, system.as_ref(), options).await
        }
        Command::Token(command) => token::run(command, &folder, local_operator()?).await,
        Command::Operate(command) => operator::run(command, admin).await,
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { folder } => manual::pages(&folder),
    }
}

/// Prints help as it is, and an error in one line with a suggestion.
fn print_usage_error(error: &clap::Error, line: Vec<String>) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(exit::REJECTED);
    }
    let text = negative_value(error, &line).unwrap_or_else(|| error_text(error));
    note(&format!("sagactl: {text}"));
    ExitCode::from(exit::REJECTED)
}

/// Describes a negative value of an option, which clap takes for another option.
fn negative_value(error: &clap::Error, line: &[String]) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let digits = argument.strip_prefix('-').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?;
    let at = line.iter().position(|word| word.starts_with('-') && word[1..].starts_with(&digits[..1]))?;
    let option = line.get(at.checked_sub(1)?).filter(|before| before.starts_with("--"))?;
    Some(format!("invalid value '{}' for '{option}': it cannot be negative", line[at]))
}

/// Formats the error of a command line, followed by suggestions.
fn error_text(error: &clap::Error) -> String {
    let text = error.to_string();
    let ends = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    // No argument of this program begins with a dash: this tip would mislead.
    let misleads = |line: &str| line.trim_start().starts_with("tip: to pass '");
    let own = text.lines().take_while(ends).filter(|line| !line.trim().is_empty() && !misleads(line));
    let names_a_breaker = error.kind() == ErrorKind::UnknownArgument && text.contains("<SERVICE/NAME>");
    let tip = names_a_breaker.then_some("  tip: name a breaker in one word: payment/bank");
    let lines: Vec<_> = own.map(|line| line.strip_prefix("error: ").unwrap_or(line)).chain(tip).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_value_is_named_with_its_option() {
        let error_of = |line: &str| {
            let words: Vec<_> =
                std::iter::once("sagactl").chain(line.split(' ')).map(str::to_owned).collect();
            negative_value(&Arguments::try_parse_from(&words).expect_err("invalid"), &words)
        };
        let redrive = error_of("dlq redrive --canary -1");
        assert_eq!(redrive.as_deref(), Some("invalid value '-1' for '--canary': it cannot be negative"));
        let extend = error_of("saga extend --stuck-at payment-processing --for -5m --reason x");
        assert_eq!(extend.as_deref(), Some("invalid value '-5m' for '--for': it cannot be negative"));
        assert_eq!(error_of("saga list --by -x"), None);
    }

    #[test]
    fn usage_errors_are_short_and_suggest_alternatives() {
        let error_of = |line: &str| {
            let parsed = Arguments::try_parse_from(std::iter::once("sagactl").chain(line.split(' ')));
            error_text(&parsed.expect_err("invalid"))
        };
        let status = "unrecognized subcommand 'statsu'\n  tip: some similar subcommands exist: ";
        assert!(error_of("statsu").starts_with(status), "{}", error_of("statsu"));
        let id = "01890000-0000-7000-8000-000000000001";
        assert_eq!(error_of(&format!("saga extend {id} --by 1m")), "unexpected argument '--by' found");
        let breaker = "unexpected argument 'bank' found\n  tip: name a breaker in one word: payment/bank";
        assert_eq!(error_of("breakers open payment bank"), breaker);
        for line in
            ["saga show 123", "dlq show x", "dlq replay x", "redrive show 7", "dlq edit x", "saga resolve x"]
        {
            assert!(error_of(line).contains("ids look like 01a205e9-"), "{line}: {}", error_of(line));
        }
    }
}
