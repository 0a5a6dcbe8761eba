//! Shell: output of one response of admin.

use std::process::ExitCode;

use clap::Args;
use cli::view::View;
use cli::{print, print_json, view};
use serde::Serialize;

/// Format of the output.
#[derive(Debug, Clone, Copy, Args)]
pub struct Form {
    /// Print one JSON object; a list as items and next, the value for --cursor.
    #[arg(long)]
    pub json: bool,
}

/// Prints a response as one line of JSON, or as `text` formats it for people.
pub fn show<T: Serialize>(
    response: &T,
    form: Form,
    text: impl FnOnce(&T, &View) -> String,
) -> anyhow::Result<ExitCode> {
    if form.json {
        print_json(&serde_json::to_value(response)?);
    } else {
        print(&text(response, &view()));
    }
    Ok(ExitCode::SUCCESS)
}
