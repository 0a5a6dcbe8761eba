//! Shell: replaying, discarding and restoring dead letters.

use std::process::ExitCode;

use anyhow::Context as _;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::because;
use crate::operator::admin::Admin;
use crate::operator::{each, read};
use crate::output::exit::{self, refuse};
use crate::output::{complain, say};

/// `sagactl dlq replay ID…`.
pub async fn replay(
    admin: &Admin,
    ids: Vec<Uuid>,
    force: bool,
    reason: Option<String>,
) -> anyhow::Result<ExitCode> {
    let body = forced(because(reason), force);
    each(ids, async |id| {
        let letter = admin.post(&["dlq", id, "replay"], &body).await.context("not replayed")?;
        standing(letter)
    })
    .await
}

/// `sagactl dlq replay --fingerprint F`.
pub async fn replay_group(
    admin: &Admin,
    fingerprint: &str,
    force: bool,
    reason: Option<String>,
) -> anyhow::Result<ExitCode> {
    let mut body = forced(because(reason), force);
    body["fingerprint"] = fingerprint.into();
    let done: Replayed = read(admin.post(&["dlq", "replay"], &body).await?)?;
    say(&format!("{} replayed, {} refused", done.replayed, done.refused.len()));
    for refused in &done.refused {
        complain(&refuse(format!("{}: not replayed: {}", refused.id, refused.detail)));
    }
    Ok(if done.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
}

/// `sagactl dlq discard`.
pub async fn discard(admin: &Admin, ids: Vec<Uuid>, reason: Option<String>) -> anyhow::Result<ExitCode> {
    let body = because(reason);
    each(ids, async |id| {
        standing(admin.tell(Method::DELETE, &["dlq", id], &body).await.context("not discarded")?)
    })
    .await
}

/// `sagactl dlq restore`.
pub async fn restore(admin: &Admin, ids: Vec<Uuid>, reason: Option<String>) -> anyhow::Result<ExitCode> {
    let body = because(reason);
    each(ids, async |id| standing(admin.post(&["dlq", id, "restore"], &body).await.context("not restored")?))
        .await
}

/// `sagactl dlq note`.
pub async fn note(admin: &Admin, id: Uuid, text: &str) -> anyhow::Result<ExitCode> {
    admin.post(&["dlq", &id.to_string(), "notes"], &json!({ "text": text })).await?;
    say(&format!("noted at {id}"));
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Deserialize)]
struct Replayed {
    replayed: u64,
    #[serde(default)]
    refused: Vec<Refused>,
}

#[derive(Debug, Deserialize)]
struct Refused {
    id: String,
    detail: String,
}

#[derive(Debug, Deserialize)]
struct Standing {
    id: String,
    status: String,
}

/// What became of a letter.
pub fn standing(letter: Value) -> anyhow::Result<String> {
    let Standing { id, status } = read(letter)?;
    Ok(format!("{id} is {status}"))
}

/// The same body, with the members that force it.
pub fn forced(mut body: Value, force: bool) -> Value {
    if force {
        body["force"] = true.into();
    }
    body
}
