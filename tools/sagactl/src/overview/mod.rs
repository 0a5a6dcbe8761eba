//! Shell: `sagactl status` and `doctor`: the state of everything, problems, and commands to go on with.

// Where the state comes from, and the state itself.
pub mod snapshot;
mod source;

// Problems with their commands, and text for people.
pub mod problem;
pub mod text;

use std::process::ExitCode;

use cli::{exit, print, print_json, view};
use devstack::processes::Processes;
use serde_json::{Value, json};

use self::problem::problems;
pub use self::snapshot::Snapshot;
pub use self::source::Source;
use crate::admin::Form;

/// `sagactl status`.
pub async fn status(source: &Source, form: Form) -> anyhow::Result<ExitCode> {
    let (snapshot, processes) = source.snapshot().await?;
    if form.json {
        print_json(&to_json(&snapshot, processes.as_ref())?);
    } else {
        let view = view();
        // The overview has more about failing checks.
        let processes = processes.map(|processes| processes.shown(snapshot.overview.is_none(), &view));
        print(&text::status(&snapshot, processes.as_deref(), &source.command, &view));
    }
    Ok(exit_code(&snapshot))
}

/// `sagactl doctor`.
pub async fn doctor(source: &Source, form: Form) -> anyhow::Result<ExitCode> {
    let (snapshot, _) = source.snapshot().await?;
    let problems = problems(&snapshot, &source.command, &view());
    let faults = snapshot.faults(&source.command);
    if form.json {
        let needs_human = snapshot.needs_human();
        print_json(&json!({ "needs_human": needs_human, "findings": problems, "faults": faults }));
    } else {
        print(&text::doctor(&problems, &faults));
    }
    Ok(exit_code(&snapshot))
}

/// Snapshot as JSON: the local processes and the overview.
pub fn to_json(snapshot: &Snapshot, processes: Option<&Processes>) -> anyhow::Result<Value> {
    let mut json = match processes {
        Some(processes) => serde_json::to_value(processes)?,
        None => json!({}),
    };
    json["needs_human"] = snapshot.needs_human().into();
    json["overview"] = serde_json::to_value(&snapshot.overview)?;
    json["problem"] = serde_json::to_value(&snapshot.problem)?;
    Ok(json)
}

pub fn exit_code(snapshot: &Snapshot) -> ExitCode {
    ExitCode::from(if snapshot.needs_human() { exit::HUMAN_NEEDED } else { 0 })
}
