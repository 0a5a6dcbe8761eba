//! Shell: `sagactl outbox`: unpublished entries of all services.

use std::process::ExitCode;

use admin_api::outbox::{RepublishEntries, RetriedEntries, RetryEntries, ServiceOutbox};
use clap::Subcommand;
use cli::exit::item_error;
use cli::table::{Column, left, removable, right, time, truncatable};
use cli::text::or_none;
use cli::time::timestamp;
use cli::view::View;
use contract::topology::producers;
use jiff::Timestamp;
use saga_core::outbox::{OutboxItem, Republished};
use serde::Serialize;

use crate::admin::{Admin, Form, ItemOutcome, OrList, Page, Unreachable, for_each, show};
use crate::args::{self, past_time};

#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// List entries that are pending or were rejected by the broker, by service, oldest first
    List(Form),
    /// Publish entries again that the broker rejected
    Retry {
        /// Service whose outbox it is.
        service: String,
        /// Position of one entry; without it, all rejected entries, which needs a --reason.
        seq: Option<i64>,
        /// Reason, for the audit log.
        #[arg(long, required_unless_present = "seq", value_parser = args::reason)]
        reason: Option<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Publish messages again that a broker has lost. Consumers that have processed them ignore the duplicates
    Republish {
        /// Service whose outbox it is; without it, those of all services.
        service: Option<String>,
        /// Start of the period to publish again, e.g. 2h (ago) or 2026-01-31T12:00:00Z.
        #[arg(long, value_name = "WHEN", value_parser = past_time)]
        since: Timestamp,
        /// Reason, for the audit log.
        #[arg(long, value_parser = args::reason)]
        reason: String,
        #[command(flatten)]
        form: Form,
    },
}

pub async fn run(admin: &Admin, OrList { command, list }: OrList<OutboxCommand>) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(OutboxCommand::List(list)) {
        OutboxCommand::List(form) => show(&page(admin.get(&["outbox"], &()).await?), form, text),
        OutboxCommand::Retry { service, seq, reason, form } => {
            let result: RetriedEntries =
                admin.post(&["outbox", &service, "retry"], &RetryEntries { seq, reason }).await?;
            show(&result, form, |result, _| format!("{service} retries {} entries", result.retried))
        }
        OutboxCommand::Republish { service, since, reason, form } => {
            let services =
                service.map_or_else(|| producers().map(str::to_owned).collect(), |service| vec![service]);
            let request = &RepublishEntries { since, reason: Some(reason) };
            for_each(services, form, async |service| republish(admin, service, request).await).await
        }
    }
}

/// Result of publishing messages of one service again.
#[derive(Debug, Serialize)]
struct ServiceRepublished<'a> {
    service: &'a str,
    #[serde(flatten)]
    republished: Republished,
}

/// Publishes messages of one service again. A service that does not answer does not keep others from it.
async fn republish(admin: &Admin, service: &str, request: &RepublishEntries) -> anyhow::Result<ItemOutcome> {
    let republished: Republished =
        admin.post(&["outbox", service, "republish"], request).await.map_err(item_error)?;
    let Republished { republished: count, kept_since } = republished;
    let mut text = format!("{service} publishes {count} messages again");
    if request.since < kept_since {
        let kept_since = timestamp(kept_since);
        text += &format!("; messages before {kept_since} are no longer kept (retention.published)");
    }
    ItemOutcome::new(&ServiceRepublished { service, republished }, text)
}

/// An entry with its service.
#[derive(Debug, Serialize)]
struct ServiceEntry {
    service: String,
    #[serde(flatten)]
    entry: OutboxItem,
}

fn page(services: Vec<ServiceOutbox>) -> Page<ServiceEntry> {
    let (mut items, mut unreachable, mut truncated) = (vec![], vec![], vec![]);
    for ServiceOutbox { service, entries, problem, more } in services {
        let entries = entries.into_iter().flatten();
        items.extend(entries.map(|entry| ServiceEntry { service: service.clone(), entry }));
        truncated.extend(more.then(|| service.clone()));
        unreachable.extend(problem.map(|problem| Unreachable { service, problem }));
    }
    Page { unreachable, truncated, ..Page::from_iter(items) }
}

const COLUMNS: [Column<ServiceEntry>; 7] = [
    left("service", |row| row.service.clone()),
    right("seq", |row| row.entry.seq.to_string()),
    left("status", |row| row.entry.status.clone()),
    left("subject", |row| row.entry.subject.clone()),
    removable(1, right("attempts", |row| row.entry.attempts.to_string())),
    removable(2, time("since", |row| Some(row.entry.created_at))),
    truncatable(left("last error", |row| or_none(row.entry.last_error.as_ref()))),
];

fn text(page: &Page<ServiceEntry>, view: &View) -> String {
    page.text("no unpublished entries", &COLUMNS, view)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn entries_are_a_table_that_names_unreachable_services() {
        let services = json!([
            {"service": "order", "entries": [
                {"seq": 7, "id": "01890000-0000-7000-8000-000000000001", "subject": "order.created",
                 "status": "FAILED", "attempts": 8, "last_error": "payload too large\nat 1",
                 "created_at": "2026-11-20T14:18:36Z"},
            ], "problem": null, "more": false},
            {"service": "payment", "problem": "payment does not answer", "more": false},
        ]);
        let services = from_value(services).expect("outboxes");
        insta::assert_snapshot!("outbox", text(&page(services), &View::FILE));
    }
}
