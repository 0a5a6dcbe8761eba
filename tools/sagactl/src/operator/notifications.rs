//! Shell: `sagactl notifications`: sent notifications with their delivery, and a test of it.

use std::process::ExitCode;
use std::time::Duration;

use admin_api::actor::Reason;
use admin_api::notifications::{
    Acknowledge, NotificationsView, OpenFinding, SentNotification, TestNotification,
};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use cli::table::{Column, left, removable, time};
use cli::text::wrapped;
use cli::view::View;
use saga_core::breaker::{BreakerView, State};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::breakers::state_name;
use crate::admin::{Admin, Form, OrList, Page, show};
use crate::args::{self, duration};

#[derive(Debug, Subcommand)]
pub enum NotificationCommand {
    /// List open findings, and the last notifications with their delivery
    List(Form),
    /// Send a test notification, and wait until it is delivered
    Test(TestOptions),
    /// Say that you work on a finding: nobody is reminded of it, unless it becomes much worse
    Acknowledge(AcknowledgeOptions),
}

#[derive(Debug, Args)]
pub struct AcknowledgeOptions {
    /// Key of the finding, as `sagactl status --json` shows it.
    key: String,
    /// Time from now on, e.g. 30m; at most 7d. 0s ends it.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Duration,
    /// Note on what you do.
    #[arg(long, value_parser = args::reason)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub struct TestOptions {
    /// Time to wait; it is delivered afterwards too.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    wait: Duration,
    /// Reason, for the audit log.
    #[arg(long, value_parser = args::reason)]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Pause between two checks of a test.
const POLL: Duration = Duration::from_millis(200);

pub async fn run(
    admin: &Admin,
    OrList { command, list }: OrList<NotificationCommand>,
) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(NotificationCommand::List(list)) {
        NotificationCommand::List(form) => {
            show(&List::from(admin.get::<NotificationsView>(&["notifications"], &()).await?), form, text)
        }
        NotificationCommand::Test(options) => test(admin, options).await,
        NotificationCommand::Acknowledge(options) => acknowledge(admin, options).await,
    }
}

async fn test(admin: &Admin, TestOptions { wait, reason, form }: TestOptions) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + wait;
    let TestNotification { id, .. } = admin.post(&["notifications", "test"], &Reason { reason }).await?;
    loop {
        let state: NotificationsView = admin.get(&["notifications"], &()).await?;
        let to = receiver(state.to.as_deref());
        let sent = state.notifications.into_iter().find(|sent| sent.id == id);
        let sent =
            sent.context("the test notification is not among the last ones: see sagactl notifications")?;
        let error = error(&sent).unwrap_or("the receiver has not answered yet");
        match Delivery::of(&sent) {
            Delivery::Delivered => {
                return show(&sent, form, |_, _| format!("the test notification was delivered to {to}"));
            }
            Delivery::GivenUp => bail!("the test notification was given up: {error}"),
            Delivery::Pending if Instant::now() >= until => {
                let wait = humantime_serde::re::humantime::format_duration(wait);
                bail!(
                    "the test notification was not delivered to {to} within {wait}, and is retried: {error}"
                )
            }
            Delivery::Pending => sleep(POLL).await,
        }
    }
}

async fn acknowledge(admin: &Admin, options: AcknowledgeOptions) -> anyhow::Result<ExitCode> {
    let AcknowledgeOptions { key, time, reason, form } = options;
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let body = Acknowledge { key, seconds, reason };
    let finding: OpenFinding = admin.post(&["findings", "acknowledge"], &body).await?;
    show(&finding, form, |finding, view| match &finding.acknowledged {
        Some(acknowledged) => format!("{}: {}", finding.text, acknowledged.text(|until| view.time(until))),
        None => format!("{}: nobody works on it", finding.text),
    })
}

fn receiver(to: Option<&str>) -> String {
    to.unwrap_or("admin's standard output").to_owned()
}

/// The last notifications, with the open findings.
#[derive(Debug, Serialize)]
struct List {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerView>,
    open: Vec<OpenFinding>,
    #[serde(flatten)]
    page: Page<SentNotification>,
}

impl From<NotificationsView> for List {
    fn from(view: NotificationsView) -> Self {
        let NotificationsView { to, breaker, open, notifications, .. } = view;
        Self { to, breaker, open, page: notifications.into_iter().collect() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
enum Delivery {
    Delivered,
    Pending,
    GivenUp,
}

impl Delivery {
    const fn of(sent: &SentNotification) -> Self {
        match (&sent.delivered_at, &sent.given_up) {
            (Some(_), _) => Self::Delivered,
            (None, Some(_)) => Self::GivenUp,
            (None, None) => Self::Pending,
        }
    }
}

/// Error of the last attempt, if it failed.
fn error(sent: &SentNotification) -> Option<&str> {
    sent.given_up.as_deref().or(sent.failure.as_deref())
}

const COLUMNS: [Column<SentNotification>; 5] = [
    time("decided", |sent| Some(sent.at)),
    left("kind", |sent| sent.kind.to_string()),
    left("delivery", |sent| Delivery::of(sent).to_string()),
    removable(2, time("delivered", |sent| sent.delivered_at)),
    removable(1, left("webhook-id", |sent| sent.id.to_string())),
];

/// Wraps all but the table, which fits.
fn wrapped_lines(lines: &[String], view: &View) -> String {
    let wrap = |line: &String| wrapped(line, view.width).trim_end().to_owned();
    lines.iter().map(wrap).collect::<Vec<_>>().join("\n")
}

fn text(list: &List, view: &View) -> String {
    let breaker = list.breaker.as_ref().filter(|breaker| breaker.state != State::Closed);
    let breaker = breaker.map(|breaker| format!("; its breaker is {}", state_name(breaker.state)));
    let breaker = breaker.unwrap_or_default();
    let mut lines = vec![format!("notifications go to {}{breaker}", receiver(list.to.as_deref()))];
    let open = list.open.iter().filter(|finding| finding.cleared_at.is_none());
    lines.extend(open.map(|finding| {
        let reported = if finding.notified_at.is_some() { "reported" } else { "not reported yet" };
        let working = finding.acknowledged.as_ref().map(|it| it.text(|until| view.time(until)));
        let working = working.map(|working| format!("; {working}")).unwrap_or_default();
        format!(
            "  {reported}: {}: {}, since {}{working}",
            finding.key,
            finding.text,
            view.time(finding.since)
        )
    }));
    lines.push(list.page.text("no notifications yet", &COLUMNS, view));
    let sent = list.page.items.iter().map(|sent| {
        let error = error(sent).map(|error| format!("({error}) ")).unwrap_or_default();
        format!("  {}  {error}{}", view.time(sent.at), sent.text)
    });
    lines.extend(sent);
    wrapped_lines(&lines, view)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn notifications_are_a_table_below_open_findings() {
        let state: NotificationsView = from_value(json!({
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
        }))
        .expect("notifications");
        let list = List::from(state);
        insta::assert_snapshot!("notifications", text(&list, &View::FILE));
        let narrow = text(&list, &View { width: Some(80), now: None });
        let words = narrow.split_whitespace().collect::<Vec<_>>().join(" ");
        let whole = "(the receiver of notifications answered 503) a human is needed: 1 dead letter";
        assert!(words.contains(whole), "{narrow}");
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    }
}
