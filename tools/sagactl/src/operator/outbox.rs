//! Shell: what waits to be published, and trying again what was given up.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use contract::topology::producers;
use jiff::Timestamp;
use saga_engine::host::app::Republished;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dead_letter;
use crate::admin::{Admin, Done, Form, Items, OrList, Page, each, read, show};
use cli::text::or_none;
use cli::time::timestamp;
use cli::{Column, View, exit, left, removable, right, time, truncatable};

/// What operators do with outboxes.
#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// List what waits to be published, and what the broker refused, service by service, the oldest first
    List(OutboxOptions),
    /// Publish again what failed for good
    Retry {
        /// Service whose outbox it is.
        service: String,
        /// Which entry; without it, all that failed, which needs a --reason.
        seq: Option<i64>,
        /// Why, for the audit log.
        #[arg(long, required_unless_present = "seq")]
        reason: Option<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Publish once more what a broker that lost its data was told before; whoever has handled it does nothing
    Republish {
        /// Service whose outbox it is; without it, every service's.
        service: Option<String>,
        /// Everything published since, e.g. 2h (ago) or 2026-01-31T12:00:00Z.
        #[arg(long, value_name = "WHEN", value_parser = dead_letter::filter::moment)]
        since: Timestamp,
        /// Why, for the audit log.
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        form: Form,
    },
}

/// Which entries to list.
#[derive(Debug, Args, Serialize)]
pub struct OutboxOptions {
    #[command(flatten)]
    #[serde(skip)]
    form: Form,
}

/// `sagactl outbox`: without a command, a list of what waits or failed.
pub async fn run(
    admin: &Admin,
    OrList { command, list }: OrList<OutboxCommand, OutboxOptions>,
) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(OutboxCommand::List(list)) {
        OutboxCommand::List(options) => {
            admin.list(&["outbox"], &options, Items::OfEach("entries"), options.form, shown).await
        }
        OutboxCommand::Retry { service, seq, reason, form } => {
            let body = json!({ "seq": seq, "reason": reason });
            let answer = admin.post(&["outbox", &service, "retry"], &body).await?;
            show(answer, form, |Retried { retried }: &Retried, _| format!("{service} tries {retried} again"))
        }
        OutboxCommand::Republish { service, since, reason, form } => {
            let services =
                service.map_or_else(|| producers().map(str::to_owned).collect(), |service| vec![service]);
            let body = &json!({ "since": since, "reason": reason });
            each(services, form, async |service| republish(admin, service, since, body).await).await
        }
    }
}

/// Each service by itself: one that does not answer keeps no other from it.
async fn republish(admin: &Admin, service: &str, since: Timestamp, body: &Value) -> anyhow::Result<Done> {
    let answer = admin.post(&["outbox", service, "republish"], body).await;
    let mut answer = answer.map_err(exit::item_error)?;
    let Republished { republished, kept_since } = read(answer.clone())?;
    let beyond = match since < kept_since {
        true => {
            format!("; what was published before {} is not kept (retention.published)", timestamp(kept_since))
        }
        false => String::new(),
    };
    answer["service"] = service.into();
    Ok(Done { answer, told: format!("{service} publishes {republished} again{beyond}") })
}

#[derive(Debug, Deserialize)]
struct Retried {
    retried: u64,
}

#[derive(Debug, Deserialize)]
struct Entry {
    service: String,
    seq: i64,
    subject: String,
    status: String,
    attempts: u32,
    last_error: Option<String>,
    created_at: Timestamp,
}

const COLUMNS: [Column<Entry>; 7] = [
    left("service", |entry| entry.service.clone()),
    right("seq", |entry| entry.seq.to_string()),
    left("status", |entry| entry.status.clone()),
    left("subject", |entry| entry.subject.clone()),
    removable(1, right("attempts", |entry| entry.attempts.to_string())),
    removable(2, time("since", |entry| Some(entry.created_at))),
    truncatable(left("last error", |entry| or_none(entry.last_error.as_ref()))),
];

fn shown(page: &Page<Entry>, view: &View) -> String {
    page.shown("nothing waits to be published", &COLUMNS, view)
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn what_waits_is_a_table_and_a_silent_service_is_named() {
        let services = json!([
            {"service": "order", "entries": [
                {"seq": 7, "id": "01890000-0000-7000-8000-000000000001", "subject": "order.created",
                 "status": "FAILED", "attempts": 8, "last_error": "payload too large\nat 1",
                 "created_at": "2026-11-20T14:18:36Z"},
            ], "problem": null},
            {"service": "payment", "problem": "payment does not answer"},
        ]);
        let page = from_value(Items::OfEach("entries").fields(services)).expect("outboxes");
        insta::assert_snapshot!("outbox", shown(&page, &View::FILE));
        assert_eq!(shown(&Page::of(vec![]), &View::FILE), "nothing waits to be published");
    }
}
