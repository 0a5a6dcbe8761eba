//! Shell: how everything is, in one look, and what to do where something is wrong.

// What is asked, of whom.
mod asked;

// What there was to see; what is wrong, what that means, and how to go on.
pub mod finding;
pub mod seen;

// The same for people.
pub mod shown;

use std::process::ExitCode;

use serde_json::{Value, json};

pub use self::asked::Asked;
use self::finding::problems;
use self::seen::Seen;
use crate::admin::Form;
use cli::{exit, print, print_json, view};
use devstack::processes::Processes;

/// `sagactl status`: processes, services, sagas, dead letters, and whether a human is needed.
pub async fn status(asked: &Asked, form: Form) -> anyhow::Result<ExitCode> {
    let (seen, processes) = asked.look().await?;
    if form.json {
        print_json(&told(&seen, processes.as_ref())?);
    } else {
        let view = view();
        // Admin says more of what services print_error of.
        let processes = processes.map(|processes| processes.shown(seen.overview.is_none(), &view));
        print(&shown::status(&seen, processes.as_deref(), &asked.call, &view));
    }
    Ok(code(&seen))
}

/// `sagactl doctor`: each thing that is wrong, what it means, and the commands that go on from there.
pub async fn doctor(asked: &Asked, form: Form) -> anyhow::Result<ExitCode> {
    let (seen, _) = asked.look().await?;
    let problems = problems(&seen, &asked.call, &view());
    let faults = seen.faults(&asked.call);
    if form.json {
        print_json(&json!({ "needs_human": seen.needs_human(), "findings": problems, "faults": faults }));
    } else {
        print(&shown::doctor(&problems, &faults));
    }
    Ok(code(&seen))
}

/// Everything for programs: what there is to see of this machine beside what admin says.
pub fn told(seen: &Seen, processes: Option<&Processes>) -> anyhow::Result<Value> {
    let mut told = match processes {
        Some(processes) => serde_json::to_value(processes)?,
        None => json!({}),
    };
    told["needs_human"] = seen.needs_human().into();
    told["overview"] = serde_json::to_value(&seen.overview)?;
    told["problem"] = serde_json::to_value(&seen.problem)?;
    Ok(told)
}

/// How a command ends that looked.
pub fn code(seen: &Seen) -> ExitCode {
    ExitCode::from(if seen.needs_human() { exit::HUMAN_NEEDED } else { 0 })
}
