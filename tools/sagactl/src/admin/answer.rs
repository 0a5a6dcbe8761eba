//! Shell: what admin answers, as people and programs get it.

use std::process::ExitCode;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::listing::Form;
use crate::output::{View, complain, exit, say, say_json, view};

/// Prints an answer: as it is, in one line, or as `render` puts it for people.
pub fn show<T: DeserializeOwned>(
    answer: Value,
    form: Form,
    render: impl FnOnce(&T, &View) -> String,
) -> anyhow::Result<ExitCode> {
    if form.json {
        say_json(&answer);
    } else {
        say(&render(&read(answer)?, &view()));
    }
    Ok(ExitCode::SUCCESS)
}

/// An answer as what it means.
pub fn read<T: DeserializeOwned>(answer: Value) -> anyhow::Result<T> {
    serde_json::from_value(answer).context("admin answers otherwise than expected: is it of another version?")
}

/// What became of one thing: for programs, and for people.
pub struct Done {
    pub answer: Value,
    pub told: String,
}

/// Does something to one thing after another. What is refused is said, and the rest is done all the same; when
/// admin itself fails the rest is not tried.
pub async fn each(
    ids: Vec<impl ToString>,
    form: Form,
    act: impl AsyncFn(&str) -> anyhow::Result<Done>,
) -> anyhow::Result<ExitCode> {
    let (mut items, mut refused, mut first, mut failed) = (Vec::new(), Vec::new(), None, None);
    for id in ids {
        let id = id.to_string();
        match act(&id).await.with_context(|| id.clone()) {
            Ok(done) if form.json => items.push(done.answer),
            Ok(done) => say(&done.told),
            Err(error) if exit::code_of(&error) == exit::FAILED => {
                failed = Some(error);
                break;
            }
            Err(error) => {
                refused.push(json!({ "id": id, "problem": format!("{error:#}") }));
                let code = complain(&error);
                first.get_or_insert(code);
            }
        }
    }
    if form.json {
        say_json(&json!({ "items": items, "next": null, "refused": refused }));
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(first.map_or(ExitCode::SUCCESS, ExitCode::from)),
    }
}
