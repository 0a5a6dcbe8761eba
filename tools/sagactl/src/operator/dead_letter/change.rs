//! Shell: replaying, discarding and restoring dead letters, and writing notes at them.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::admin::{Admin, Done, Form, each, read, show};
use crate::output::exit::{self, refuse};
use crate::output::{complain, say, say_json};

/// Which dead letters to replay.
#[derive(Debug, Args)]
pub struct ReplayOptions {
    /// Those to replay.
    #[arg(required_unless_present = "fingerprint", conflicts_with = "fingerprint")]
    id: Vec<Uuid>,
    /// All pending ones that failed in this way, at most 1000.
    #[arg(long, requires = "reason")]
    fingerprint: Option<String>,
    /// Even one that was replayed three times, or whose replay is under way and seems lost.
    #[arg(long, requires = "reason")]
    force: bool,
    /// Why, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Which dead letters to give up.
#[derive(Debug, Args)]
pub struct DiscardOptions {
    /// The dead letters that are meant.
    #[arg(required = true)]
    id: Vec<Uuid>,
    /// Why, for the audit log.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    form: Form,
}

/// Which dead letters to change.
#[derive(Debug, Args)]
pub struct ChangeOptions {
    /// The dead letters that are meant.
    #[arg(required = true)]
    id: Vec<Uuid>,
    /// Why, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// `sagactl dlq replay`.
pub async fn replay(admin: &Admin, options: ReplayOptions) -> anyhow::Result<ExitCode> {
    let ReplayOptions { id, fingerprint, force, reason, form } = options;
    let body = json!({ "fingerprint": fingerprint, "force": force.then_some(true), "reason": reason });
    if fingerprint.is_some() {
        return replay_group(admin, &body, form).await;
    }
    each(id, form, async |id| {
        standing(admin.post(&["dlq", id, "replay"], &body).await.context("not replayed")?)
    })
    .await
}

async fn replay_group(admin: &Admin, body: &Value, form: Form) -> anyhow::Result<ExitCode> {
    let answer = admin.post(&["dlq", "replay"], body).await?;
    let Replayed { replayed, refused } = read(answer.clone())?;
    if form.json {
        say_json(&answer);
    } else {
        say(&format!("{replayed} replayed, {} refused", refused.len()));
    }
    for Refused { id, detail } in &refused {
        complain(&refuse(format!("{id}: not replayed: {detail}")));
    }
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::REFUSED) })
}

/// `sagactl dlq discard`.
pub async fn discard(admin: &Admin, options: DiscardOptions) -> anyhow::Result<ExitCode> {
    let DiscardOptions { id, reason, form } = options;
    let body = json!({ "reason": reason });
    each(id, form, async |id| {
        standing(admin.tell(Method::DELETE, &["dlq", id], &body).await.context("not discarded")?)
    })
    .await
}

/// `sagactl dlq restore`.
pub async fn restore(admin: &Admin, options: ChangeOptions) -> anyhow::Result<ExitCode> {
    let ChangeOptions { id, reason, form } = options;
    let body = json!({ "reason": reason });
    each(id, form, async |id| {
        standing(admin.post(&["dlq", id, "restore"], &body).await.context("not restored")?)
    })
    .await
}

/// `sagactl dlq note`.
pub async fn note(admin: &Admin, id: Uuid, text: &str, form: Form) -> anyhow::Result<ExitCode> {
    let answer = admin.post(&["dlq", &id.to_string(), "notes"], &json!({ "text": text })).await?;
    show(answer, form, |_: &Value, _| format!("noted at {id}"))
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

/// What became of a dead letter.
pub fn standing(dead_letter: Value) -> anyhow::Result<Done> {
    let Standing { id, status } = read(dead_letter.clone())?;
    Ok(Done { answer: dead_letter, told: format!("{id} is {status}") })
}
