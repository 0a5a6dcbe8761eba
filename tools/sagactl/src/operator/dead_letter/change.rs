//! Shell: replaying, discarding and restoring dead letters, and writing notes at them.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::filter::{Filter, Meant, Which};
use super::outcome;
use crate::admin::{Admin, Done, Form, Several, each, read, said};
use crate::args::{self, duration};
use cli::exit::{self, rejected};
use cli::{print, print_error, print_json};

/// Which dead letters to replay.
#[derive(Debug, Args)]
pub struct ReplayOptions {
    #[command(flatten)]
    which: Which,
    /// Even one that was replayed three times, or whose replay is under way and seems lost.
    #[arg(long, requires = "reason")]
    force: bool,
    /// Why, for the audit log; needed for many, and with --force.
    #[arg(long)]
    reason: Option<String>,
    /// Wait until it is known what came of it, for 30s or as long as is said here, however many they are. Exit code 0 when
    /// all took effect, 2 when one failed again or changed nothing, 1 when of some it is not known in time.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    form: Form,
}

/// Which dead letters are given up, or settled outside, and why.
#[derive(Debug, Args)]
pub struct DeadLetterOptions {
    #[command(flatten)]
    pub which: Which,
    /// Why (and what was settled outside, how), for the audit log.
    #[arg(long)]
    pub reason: String,
    #[command(flatten)]
    pub form: Form,
}

/// Which dead letters to change.
#[derive(Debug, Args)]
pub struct RestoreOptions {
    #[command(flatten)]
    which: Which,
    /// Why, for the audit log; needed for many.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// What to write down, at which dead letters.
#[derive(Debug, Args)]
pub struct NoteOptions {
    /// The dead letters, by their ids, unless the options below say which; then what the note says.
    #[arg(required = true, value_name = "[ID]... TEXT")]
    words: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    form: Form,
}

/// `sagactl dlq replay`.
pub async fn replay(admin: &Admin, options: ReplayOptions) -> anyhow::Result<ExitCode> {
    let ReplayOptions { which, force, reason, wait, form } = options;
    let body = said(&json!({ "force": force.then_some(true), "reason": reason }))?;
    let one =
        async |id: &str| standing(admin.post(&["dlq", id, "replay"], &body).await.context("not replayed")?);
    match (which.meant()?, wait) {
        (Meant::Each(ids), None) => each(ids, form, one).await,
        (Meant::Each(ids), Some(wait)) => each_to_its_end(admin, ids, one, wait, form).await,
        (Meant::All(filter), None) => many(admin, &["dlq", "replay"], "replayed", &filter, body, form).await,
        (Meant::All(filter), Some(wait)) => all_to_their_end(admin, &filter, body, wait, form).await,
    }
}

/// Hands all of them back before any is waited for: one that takes its time keeps no other waiting.
async fn each_to_its_end(
    admin: &Admin,
    ids: Vec<Uuid>,
    one: impl AsyncFn(&str) -> anyhow::Result<Done>,
    wait: Duration,
    form: Form,
) -> anyhow::Result<ExitCode> {
    let mut several = Several::new(form);
    let mut sent = Vec::new();
    for id in ids {
        let id = id.to_string();
        match one(&id).await {
            Ok(done) => sent.push((id, done)),
            Err(error) => {
                if several.tell(&id, Err(error)).is_break() {
                    // Nobody can be asked what came of the others, but it is said that they were handed back.
                    for (id, done) in sent {
                        let _ = several.tell(&id, Ok(done));
                    }
                    return several.end();
                }
            }
        }
    }
    outcome::of_all(admin, sent.into_iter().map(|(id, _)| id), wait, several).await
}

/// The same of all that a filter matches now.
async fn all_to_their_end(
    admin: &Admin,
    filter: &Value,
    mut body: Value,
    wait: Duration,
    form: Form,
) -> anyhow::Result<ExitCode> {
    // Admin says so of those that match, and nobody is to depend on whether any do.
    if body.get("reason").is_none() {
        return Err(rejected("reason: is required for many (say why with --reason)"));
    }
    let mut several = Several::new(form);
    let ids = outcome::matching(admin, filter).await?;
    if ids.is_empty() {
        if !form.json {
            print(&Many::default().told("replayed"));
        }
        return several.end();
    }
    body["ids"] = json!(ids);
    let many: Many = read(admin.post(&["dlq", "replay"], &body).await?)?;
    complain_of(&many, "replayed");
    for Refused { id, detail, .. } in &many.rejected {
        several.rejected(id, &format!("{id}: not replayed: {detail}"), exit::REJECTED);
    }
    let refused: BTreeSet<&str> = many.rejected.iter().map(|refused| refused.id.as_str()).collect();
    let sent = ids.into_iter().filter(|id| !refused.contains(id.as_str()));
    outcome::of_all(admin, sent, wait, several).await
}

/// `sagactl dlq discard`.
pub async fn discard(admin: &Admin, options: DeadLetterOptions) -> anyhow::Result<ExitCode> {
    let DeadLetterOptions { which, reason, form } = options;
    let body = json!({ "reason": reason });
    match which.meant()? {
        Meant::All(filter) => many(admin, &["dlq", "discard"], "discarded", &filter, body, form).await,
        Meant::Each(ids) => {
            each(ids, form, async |id| {
                standing(admin.tell(Method::DELETE, &["dlq", id], &body).await.context("not discarded")?)
            })
            .await
        }
    }
}

/// `sagactl dlq restore`.
pub async fn restore(admin: &Admin, options: RestoreOptions) -> anyhow::Result<ExitCode> {
    let RestoreOptions { which, reason, form } = options;
    let body = json!({ "reason": reason });
    match which.meant()? {
        Meant::All(filter) => many(admin, &["dlq", "restore"], "restored", &filter, body, form).await,
        Meant::Each(ids) => {
            each(ids, form, async |id| {
                standing(admin.post(&["dlq", id, "restore"], &body).await.context("not restored")?)
            })
            .await
        }
    }
}

/// `sagactl dlq note`.
pub async fn note(admin: &Admin, options: NoteOptions) -> anyhow::Result<ExitCode> {
    let NoteOptions { mut words, filter, form } = options;
    let text = words.pop().unwrap_or_default();
    let body = json!({ "text": text });
    let id = |word: String| args::id(&word).map_err(|why| rejected(format!("{word:?} is no id: {why}")));
    let which = Which { id: words.into_iter().map(id).collect::<Result<_, _>>()?, filter };
    match which.meant()? {
        Meant::All(filter) => many(admin, &["dlq", "notes"], "noted", &filter, body, form).await,
        Meant::Each(ids) => {
            each(ids, form, async |id| {
                let answer = admin.post(&["dlq", id, "notes"], &body).await.context("not noted")?;
                Ok(Done { answer, told: format!("noted at {id}") })
            })
            .await
        }
    }
}

/// Does one thing to all that a filter matches: `body` with it, to this path.
pub async fn many(
    admin: &Admin,
    path: &[&str],
    done: &str,
    filter: &Value,
    mut body: Value,
    form: Form,
) -> anyhow::Result<ExitCode> {
    body["filter"] = filter.clone();
    told(admin.post(path, &body).await?, done, form)
}

/// Tells what became of many.
pub fn told(answer: Value, done: &str, form: Form) -> anyhow::Result<ExitCode> {
    let many: Many = read(answer.clone())?;
    if form.json {
        print_json(&answer);
    } else {
        print(&many.told(done));
    }
    complain_of(&many, done);
    Ok(if many.not_done() == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::REJECTED) })
}

/// The first refusals; they are much alike.
fn complain_of(many: &Many, done: &str) {
    for Refused { id, detail, .. } in many.failures().take(MOST_COMPLAINTS) {
        print_error(&rejected(format!("{id}: not {done}: {detail}")));
    }
    let more = many.not_done().saturating_sub(MOST_COMPLAINTS as u64);
    if more > 0 {
        print_error(&rejected(format!("{more} more were not {done}")));
    }
}

/// Refusals that people are shown.
const MOST_COMPLAINTS: usize = 10;

#[derive(Debug, Default, Deserialize)]
struct Many {
    done: u64,
    rejected: Vec<Refused>,
    #[serde(default)]
    more_rejected: u64,
    #[serde(default)]
    more_ended: u64,
}

impl Many {
    /// Those that it should have been done to: what has ended needs it no more.
    fn failures(&self) -> impl Iterator<Item = &Refused> {
        self.rejected.iter().filter(|refused| !refused.has_ended)
    }

    fn not_done(&self) -> u64 {
        self.failures().count() as u64 + self.more_rejected.saturating_sub(self.more_ended)
    }

    fn had_ended(&self) -> u64 {
        (self.rejected.len() - self.failures().count()) as u64 + self.more_ended
    }

    fn told(&self, what: &str) -> String {
        let ended = match self.had_ended() {
            _ if self.done == 0 && self.rejected.is_empty() => {
                return format!("no dead letter matches: nothing was {what}");
            }
            0 => String::new(),
            ended => format!(", {ended} had ended already"),
        };
        format!("{} {what}, {} refused{ended}", self.done, self.not_done())
    }
}

#[derive(Debug, Deserialize)]
struct Refused {
    id: String,
    detail: String,
    #[serde(default)]
    has_ended: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_already_is_no_failure_and_nothing_is_said_to_be_nothing() {
        let many = |answer| read::<Many>(answer).expect("many");
        let told = |answer: Value| (many(answer.clone()).told("extended"), many(answer).not_done());
        let ended = json!({"id": "a", "detail": "the saga is COMPENSATED", "has_ended": true});
        let late = json!({"id": "b", "detail": "its deadline passed"});
        assert_eq!(
            told(json!({"done": 196, "rejected": [ended]})),
            ("196 extended, 0 refused, 1 had ended already".to_owned(), 0)
        );
        assert_eq!(
            told(json!({"done": 1, "rejected": [ended, late], "more_rejected": 9, "more_ended": 7})),
            ("1 extended, 3 refused, 8 had ended already".to_owned(), 3)
        );
        assert_eq!(
            told(json!({"done": 0, "rejected": []})),
            ("no dead letter matches: nothing was extended".to_owned(), 0)
        );
    }
}
