//! Shell: rebuilding the rows of a stopped service from its events.

use std::process::{Command, ExitCode};

use anyhow::Context as _;
use cli::exit;

use super::component::Component;
use super::system::System;
use super::{command_line, process};

/// `sagactl rebuild SERVICE KIND`. The service prints its own report.
pub fn run(system: &System, service: Component, kind: &str, archived: bool) -> anyhow::Result<ExitCode> {
    let replicas: Vec<_> = system.components().filter(|replica| replica.kind() == service.kind()).collect();
    for replica in &replicas {
        if let Some(running) = process::find(system, *replica) {
            let stop = command_line::for_system(system.folder(), &format!("stop {replica}"));
            return Err(exit::rejected(format!(
                "{replica} runs (pid {}): stop it first with {stop}",
                running.pid
            )));
        }
    }
    // Replicas share a database.
    let service = replicas.first().copied().unwrap_or(service);
    let program = system.program_of(service);
    let archived = archived.then_some("--archived");
    let status = Command::new(&program)
        .args(system.arguments_of(service))
        .args(["rebuild", kind])
        .args(archived)
        .status();
    let status = status.with_context(|| process::cannot_start(&program))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
