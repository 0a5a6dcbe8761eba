//! Shell: what admin answers, as people and programs get it.

use std::process::ExitCode;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::listing::Form;
use crate::output::{complain, exit, say};

/// Prints an answer: as it came, in one line, or as `render` puts it for people.
pub fn show<T: DeserializeOwned>(
    answer: Value,
    form: Form,
    render: impl FnOnce(&T) -> String,
) -> anyhow::Result<ExitCode> {
    say(&if form.json { answer.to_string() } else { render(&read(answer)?) });
    Ok(ExitCode::SUCCESS)
}

/// An answer as what it means.
pub fn read<T: DeserializeOwned>(answer: Value) -> anyhow::Result<T> {
    serde_json::from_value(answer).context("admin answers otherwise than expected: is it of another version?")
}

/// Does something to one thing after another. What is refused is said, and the rest is done all the same; when
/// admin itself fails the rest is not tried.
pub async fn each(
    ids: Vec<impl ToString>,
    act: impl AsyncFn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    let mut first = None;
    for id in ids {
        let id = id.to_string();
        match act(&id).await.with_context(|| id.clone()) {
            Ok(done) => say(&done),
            Err(error) if exit::code_of(&error) == exit::FAILED => return Err(error),
            Err(error) => {
                let code = complain(&error);
                first.get_or_insert(code);
            }
        }
    }
    Ok(first.map_or(ExitCode::SUCCESS, ExitCode::from))
}
