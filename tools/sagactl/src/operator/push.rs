//! Shell: what people are told by itself, whether it arrives, and a test of that.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::admin::{Admin, Form, Items, OrList, Page, read, show};
use crate::args::duration;
use crate::output::{Column, View, cut, goes, left, when};

/// What operators do with notices.
#[derive(Debug, Subcommand)]
pub enum PushCommand {
    /// List what is being told, and the last notices with what became of them
    List(Form),
    /// Send a notice that says nothing but that it arrived, and wait until it has
    Test(TestOptions),
}

/// How to test.
#[derive(Debug, Args)]
pub struct TestOptions {
    /// How long to wait for it; it is sent on afterwards.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    wait: Duration,
    /// Why, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Pause between two looks at a test.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// `sagactl push`: without a command, what is being told.
pub async fn run(admin: &Admin, OrList { command, list }: OrList<PushCommand>) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(PushCommand::List(list)) {
        PushCommand::List(form) => admin.list(&["push"], &(), Items::In("notices"), form, shown).await,
        PushCommand::Test(options) => test(admin, options).await,
    }
}

async fn test(admin: &Admin, TestOptions { wait, reason, form }: TestOptions) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + wait;
    let Tested { id } = read(admin.post(&["push", "test"], &json!({ "reason": reason })).await?)?;
    loop {
        let mut answer = admin.ask(&["push"], &()).await?;
        let to = answer["to"].as_str().map_or_else(|| "admin's standard output".to_owned(), str::to_owned);
        let notices = answer["notices"].as_array_mut().into_iter().flatten();
        let mine = notices.map(Value::take).find(|notice| notice["id"] == id.to_string());
        let notice: Option<Notice> = mine.clone().map(read).transpose()?;
        match notice.map(|notice| (notice.state(), notice.why())) {
            Some((State::Arrived, _)) => {
                let told = |_: &Value, _: &View| format!("the test notice has arrived at {to}");
                return show(mine.unwrap_or_default(), form, told);
            }
            Some((State::GivenUp, why)) => bail!("the test notice was given up: {why}"),
            Some((State::Waits, why)) if Instant::now() >= until => {
                let wait = humantime_serde::re::humantime::format_duration(wait);
                bail!("the test notice has not arrived at {to} within {wait}, and is sent on: {why}")
            }
            Some((State::Waits, _)) => sleep(LOOK_AGAIN).await,
            None => {
                bail!("so many notices were sent meanwhile that the test is not remembered: see sagactl push")
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Tested {
    id: Uuid,
}

/// What is told, and to whom.
#[derive(Debug, Deserialize)]
struct Push {
    to: Option<String>,
    breaker: Option<Breaker>,
    telling: Vec<Telling>,
    #[serde(flatten)]
    notices: Page<Notice>,
}

#[derive(Debug, Deserialize)]
struct Breaker {
    state: String,
}

/// Something that is wrong, or was until a moment ago.
#[derive(Debug, Deserialize)]
struct Telling {
    text: String,
    since: Timestamp,
    #[serde(default)]
    told_at: Option<Timestamp>,
    #[serde(default)]
    gone_since: Option<Timestamp>,
}

#[derive(Debug, Deserialize)]
struct Notice {
    id: String,
    kind: String,
    text: String,
    at: Timestamp,
    #[serde(default)]
    delivered_at: Option<Timestamp>,
    #[serde(default)]
    given_up: Option<String>,
    #[serde(default)]
    failure: Option<String>,
}

/// What became of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
enum State {
    Arrived,
    Waits,
    GivenUp,
}

impl Notice {
    fn state(&self) -> State {
        match (self.delivered_at, &self.given_up) {
            (Some(_), _) => State::Arrived,
            (None, Some(_)) => State::GivenUp,
            (None, None) => State::Waits,
        }
    }

    /// Why it has not arrived.
    fn why(&self) -> String {
        let why = self.given_up.as_ref().or(self.failure.as_ref());
        why.map_or_else(|| "its receiver has not answered yet".to_owned(), Clone::clone)
    }

    /// What it says; of one that has not arrived, why.
    fn said(&self) -> String {
        match (&self.given_up, &self.failure) {
            (None, None) => self.text.clone(),
            (Some(why), _) | (None, Some(why)) => format!("({why}) {}", self.text),
        }
    }
}

const COLUMNS: [Column<Notice>; 6] = [
    when("decided", |notice| Some(notice.at)),
    left("kind", |notice| notice.kind.clone()),
    left("state", |notice| notice.state().to_string()),
    goes(2, when("arrived", |notice| notice.delivered_at)),
    cut(left("says", Notice::said)),
    goes(1, left("webhook-id", |notice| notice.id.clone())),
];

fn shown(push: &Push, view: &View) -> String {
    let to = push.to.as_deref().unwrap_or("admin's standard output");
    let state = push.breaker.as_ref().map_or("CLOSED", |breaker| breaker.state.as_str());
    let answers = if state == "CLOSED" { String::new() } else { format!("; its breaker is {state}") };
    let mut lines = vec![format!("notices go to {to}{answers}")];
    let wrong = push.telling.iter().filter(|telling| telling.gone_since.is_none());
    lines.extend(wrong.map(|telling| {
        // Of an earlier time somebody may have been told before.
        let is_told = telling.told_at.is_some_and(|told_at| told_at >= telling.since);
        let told = if is_told { "told" } else { "to be told" };
        format!("  {told}: {}, since {}", telling.text, view.moment(telling.since))
    }));
    lines.push(push.notices.shown("no notices yet", &COLUMNS, view));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn notices_are_a_table_below_what_is_being_told() {
        let answer = json!({
            "to": "https://alerts.example", "breaker": {"name": "webhook", "state": "OPEN"},
            "telling": [
                {"key": "dead_letters:f", "text": "1 dead letter at payment-processing", "since": "2026-11-20T14:18:36Z",
                 "tell_from": "2026-11-20T14:18:36Z"},
                {"key": "overdue_sagas", "text": "2 sagas past the deadline", "since": "2026-11-20T14:00:00Z",
                 "tell_from": "2026-11-20T14:00:00Z", "told_at": "2026-11-20T14:00:00Z",
                 "gone_since": "2026-11-20T14:18:00Z"},
            ],
            "notices": [
                {"id": "01890000-0000-7000-8000-000000000002", "kind": "needs_human", "at": "2026-11-20T14:18:36Z",
                 "text": "somebody is needed: 1 dead letter", "failure": "the receiver of notices answered 503"},
                {"id": "01890000-0000-7000-8000-000000000001", "kind": "test", "at": "2026-11-20T14:00:00Z",
                 "text": "this is a test", "delivered_at": "2026-11-20T14:00:01Z"},
            ],
        });
        let push = from_value(Items::In("notices").listed(answer)).expect("notices");
        insta::assert_snapshot!("push", shown(&push, &View::FILE));
    }
}
