//! Shell: notifications: what was sent, whether it was delivered, and a test of that.

use std::process::ExitCode;
use std::time::Duration;

use admin_api::actor::Reason;
use admin_api::notifications::{NotificationsView, OpenFinding, SentNotification, TestNotification};
use anyhow::bail;
use clap::{Args, Subcommand};
use saga_core::breaker::{BreakerView, State as BreakerState};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::admin::{Admin, Form, Items, OrList, Page, read, show};
use crate::args::duration;
use cli::{Column, View, left, removable, time, truncatable};

/// Actions on notifications.
#[derive(Debug, Subcommand)]
pub enum NotificationCommand {
    /// List open findings, and the last notifications with their delivery
    List(Form),
    /// Send a test notification, and wait until it is delivered
    Test(TestOptions),
}

#[derive(Debug, Args)]
pub struct TestOptions {
    /// Time to wait; it is delivered afterwards too.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    wait: Duration,
    /// Reason, for the audit log.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Pause between two checks of a test.
const POLL: Duration = Duration::from_millis(200);

/// `sagactl notifications`: lists without a command.
pub async fn run(
    admin: &Admin,
    OrList { command, list }: OrList<NotificationCommand>,
) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(NotificationCommand::List(list)) {
        NotificationCommand::List(form) => {
            admin.list(&["notifications"], &(), Items::In("notifications"), form, shown).await
        }
        NotificationCommand::Test(options) => test(admin, options).await,
    }
}

async fn test(admin: &Admin, TestOptions { wait, reason, form }: TestOptions) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + wait;
    let TestNotification { id, .. } =
        read(admin.post(&["notifications", "test"], &Reason { reason }).await?)?;
    loop {
        let state: NotificationsView = read(admin.ask(&["notifications"], &()).await?)?;
        let to = state.to.unwrap_or_else(|| "admin's standard output".to_owned());
        let Some(sent) = state.notifications.into_iter().find(|sent| sent.id == id) else {
            bail!("the test notification is not among the last ones: see sagactl notifications")
        };
        match (delivery(&sent), why(&sent)) {
            (DeliveryInfo::Delivered, _) => {
                let told = |_: &Value, _: &View| format!("the test notification was delivered to {to}");
                return show(serde_json::to_value(&sent)?, form, told);
            }
            (DeliveryInfo::GivenUp, why) => bail!("the test notification was given up: {why}"),
            (DeliveryInfo::Pending, why) if Instant::now() >= until => {
                let wait = humantime_serde::re::humantime::format_duration(wait);
                bail!(
                    "the test notification was not delivered to {to} within {wait}, and is tried again: {why}"
                )
            }
            (DeliveryInfo::Pending, _) => sleep(POLL).await,
        }
    }
}

/// The list of the last notifications, below the open findings.
#[derive(Debug, Deserialize)]
struct Listed {
    to: Option<String>,
    breaker: Option<BreakerView>,
    open: Vec<OpenFinding>,
    #[serde(flatten)]
    notifications: Page<SentNotification>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
enum DeliveryInfo {
    Delivered,
    Pending,
    GivenUp,
}

const fn delivery(sent: &SentNotification) -> DeliveryInfo {
    match (&sent.delivered_at, &sent.given_up) {
        (Some(_), _) => DeliveryInfo::Delivered,
        (None, Some(_)) => DeliveryInfo::GivenUp,
        (None, None) => DeliveryInfo::Pending,
    }
}

/// Returns why a notification was not delivered.
fn why(sent: &SentNotification) -> String {
    let why = sent.given_up.as_ref().or(sent.failure.as_ref());
    why.map_or_else(|| "its receiver has not answered yet".to_owned(), Clone::clone)
}

/// Returns the text, after the error of a notification that was not delivered.
fn text(sent: &SentNotification) -> String {
    match (&sent.given_up, &sent.failure) {
        (None, None) => sent.text.clone(),
        (Some(why), _) | (None, Some(why)) => format!("({why}) {}", sent.text),
    }
}

const COLUMNS: [Column<SentNotification>; 6] = [
    time("decided", |sent| Some(sent.at)),
    left("kind", |sent| sent.kind.to_string()),
    left("delivery", |sent| delivery(sent).to_string()),
    removable(2, time("delivered", |sent| sent.delivered_at)),
    truncatable(left("text", text)),
    removable(1, left("webhook-id", |sent| sent.id.to_string())),
];

fn shown(listed: &Listed, view: &View) -> String {
    let to = listed.to.as_deref().unwrap_or("admin's standard output");
    let state = listed.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.state);
    let name = serde_json::to_value(state).unwrap_or_default();
    let answers = if state == BreakerState::Closed {
        String::new()
    } else {
        format!("; its breaker is {}", name.as_str().unwrap_or_default())
    };
    let mut lines = vec![format!("notifications go to {to}{answers}")];
    let open = listed.open.iter().filter(|finding| finding.cleared_at.is_none());
    lines.extend(open.map(|finding| {
        let reported = if finding.notified_at.is_some() { "reported" } else { "not reported yet" };
        format!("  {reported}: {}, since {}", finding.text, view.time(finding.since))
    }));
    lines.push(listed.notifications.shown("no notifications yet", &COLUMNS, view));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn notifications_are_a_table_below_open_findings() {
        let answer = json!({
            "to": "https://alerts.example",
            "open": [
                {"key": "dead_letters:f", "text": "1 dead letter at payment-processing", "since": "2026-11-20T14:18:36Z"},
                {"key": "sagas_overdue", "text": "2 sagas overdue", "since": "2026-11-20T14:00:00Z",
                 "notified_at": "2026-11-20T14:00:00Z", "cleared_at": "2026-11-20T14:18:00Z"},
            ],
            "notifications": [
                {"id": "01890000-0000-7000-8000-000000000002", "kind": "needs_human", "at": "2026-11-20T14:18:36Z",
                 "text": "a human is needed: 1 dead letter", "failure": "the receiver of notifications answered 503"},
                {"id": "01890000-0000-7000-8000-000000000001", "kind": "test", "at": "2026-11-20T14:00:00Z",
                 "text": "test notification", "delivered_at": "2026-11-20T14:00:01Z"},
            ],
        });
        let listed = from_value(Items::In("notifications").fields(answer)).expect("notifications");
        insta::assert_snapshot!("notifications", shown(&listed, &View::FILE));
    }
}
