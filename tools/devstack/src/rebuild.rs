//! Shell: folding the rows of a stopped service anew from its events.

use std::process::{Command, ExitCode};

use anyhow::Context as _;

use super::member::Member;
use super::process;
use super::system::System;
use super::told::told;
use cli::exit;

/// `sagactl rebuild SERVICE KIND`: the service's own report goes to standard output as it is.
pub fn run(system: &System, service: Member, kind: &str, archived: bool) -> anyhow::Result<ExitCode> {
    let replicas: Vec<_> = system.members().filter(|member| member.kind() == service.kind()).collect();
    for member in &replicas {
        if let Some(running) = process::find(system, *member) {
            let stop = told(system.folder(), &format!("stop {member}"));
            return Err(exit::refuse(format!(
                "{member} runs (pid {}): stop it first with {stop}",
                running.pid
            )));
        }
    }
    // Any of them: it is their database.
    let service = replicas.first().copied().unwrap_or(service);
    let program = system.program_of(service);
    let archived = archived.then_some("--archived");
    let status = Command::new(&program)
        .args(system.arguments_of(service))
        .args(["rebuild", kind])
        .args(archived)
        .status();
    let status = status.with_context(|| process::unstartable(&program))?;
    // It has said why itself.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
