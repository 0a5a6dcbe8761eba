//! Shell: the command line of a local system: start, stop, watch, load and audit it, and mend what got stuck.
//!
//! Exit codes: 0 done; 1 it did not work (nobody answers, something broke); 2 the command makes no sense or was
//! refused, the books do not balance, or a redrive stopped; 3 the system runs already; 4 there is no such thing;
//! 130 interrupted while following a redrive.

mod audit;
mod catalogue;
mod command;
mod exit;
mod http;
mod load;
mod member;
mod nats;
mod operator;
mod process;
mod readiness;
mod rebuild;
mod say;
mod single;
mod status;
mod stop;
mod supervise;
mod system;
mod table;
mod text;
mod up;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::command::{Arguments, Command};
use crate::operator::Admin;
use crate::system::System;

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
    outcome.unwrap_or_else(|error| ExitCode::from(say::complain(&error)))
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let folder = std::path::absolute(&arguments.data)?;
    let system = || System::open(&folder);
    let address = || operator::address_of(arguments.admin.as_deref(), &folder);
    match arguments.command {
        Command::Up(options) => up::run(folder, options).await,
        Command::Down => stop::down(&folder).await,
        Command::Status { json } => status::run(&system()?, json).await,
        Command::Stop { name } => single::stop(&system()?, name).await,
        Command::Start { name } => single::start(&system()?, name).await,
        Command::Kill { name } => single::kill(&system()?, name).await,
        Command::Rebuild { service, kind } => rebuild::run(&system()?, service, &kind),
        Command::Audit { wait, json } => audit::run(&address()?, wait, json).await,
        Command::Load(options) => load::run(&system()?, options).await,
        Command::Operate(command) => {
            let named = arguments.operator.as_deref();
            let operator = operator::operator_of(named, |name| std::env::var(name).ok());
            let operator = operator.map_err(exit::refuse)?;
            operator::run(command, || Admin::at(&address()?, operator), named).await
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
