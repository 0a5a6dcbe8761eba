//! Shell: folding the rows of a stopped service anew from its events.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};

use super::member::Member;
use super::process;
use super::system::System;

/// `sagactl rebuild SERVICE KIND`: the service's own report goes to standard output as it is.
pub fn run(system: &System, service: Member, kind: &str) -> anyhow::Result<ExitCode> {
    if service == Member::NATS {
        bail!("nats has no rows: name one of {}", Member::names(Member::services()));
    }
    if let Some(running) = process::find(system, service) {
        bail!("{service} runs (pid {}): stop it first with sagactl stop {service}", running.pid);
    }
    let program = system.program_of(service);
    let status = Command::new(&program).args(system.arguments_of(service)).args(["rebuild", kind]).status();
    let status = status.with_context(|| process::unstartable(&program))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
