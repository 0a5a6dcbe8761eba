//! Shell: what waits to be published, and trying again what was given up.

use std::process::ExitCode;

use clap::Subcommand;
use jiff::Timestamp;
use saga_engine::host::app::PublishedAgain;
use serde::Deserialize;
use serde_json::json;

use super::dead_letter;
use crate::admin::{Admin, OfService, OrList, each, read};
use crate::output::text::{moment, or_nothing, short};
use crate::output::{Column, left, right, say, table};

/// What is shown of an error in a table.
const LONGEST_ERROR: usize = 80;

/// What operators do with outboxes.
#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// Publish again what failed for good
    Retry {
        /// Service whose outbox it is.
        service: String,
        /// Which entry; without it, all that failed.
        seq: Option<i64>,
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
        reason: Option<String>,
    },
}

/// `sagactl outbox`: without a command, a list of what waits or failed.
pub async fn run(admin: &Admin, OrList { command, form }: OrList<OutboxCommand>) -> anyhow::Result<ExitCode> {
    match command {
        None => admin.show(&["outbox"], &(), form, |services: &Vec<_>| list(services)).await,
        Some(OutboxCommand::Retry { service, seq }) => {
            let answer = admin.post(&["outbox", &service, "retry"], &json!({ "seq": seq })).await?;
            let Retried { retried } = read(answer)?;
            say(&format!("{service} tries {retried} again"));
            Ok(ExitCode::SUCCESS)
        }
        Some(OutboxCommand::Republish { service, since, reason }) => {
            republish(admin, service, since, reason).await
        }
    }
}

/// Each service by itself: one that does not answer keeps no other from it.
async fn republish(
    admin: &Admin,
    service: Option<String>,
    since: Timestamp,
    reason: Option<String>,
) -> anyhow::Result<ExitCode> {
    let body = &json!({ "since": since, "reason": reason });
    let services = match service {
        Some(service) => vec![service],
        None => {
            let all: Vec<OfService<Entry>> = read(admin.ask(&["outbox"], &()).await?)?;
            all.into_iter().map(|of| of.service).collect()
        }
    };
    each(services, async |service| {
        let answer = admin.post(&["outbox", service, "republish"], body).await?;
        let PublishedAgain { republished, kept_since } = read(answer)?;
        let beyond = match since < kept_since {
            true => format!("; what was published before {kept_since:.0} is not kept (retention.published)"),
            false => String::new(),
        };
        Ok(format!("{service} publishes {republished} again{beyond}"))
    })
    .await
}

#[derive(Debug, Deserialize)]
struct Retried {
    retried: u64,
}

#[derive(Debug, Deserialize)]
struct Entry {
    seq: i64,
    subject: String,
    status: String,
    attempts: u32,
    last_error: Option<String>,
    created_at: Timestamp,
}

fn list(services: &[OfService<Entry>]) -> String {
    let columns: [Column<(&str, &Entry)>; 7] = [
        left("service", |(service, _)| (*service).to_owned()),
        right("seq", |(_, entry)| entry.seq.to_string()),
        left("status", |(_, entry)| entry.status.clone()),
        left("subject", |(_, entry)| entry.subject.clone()),
        right("attempts", |(_, entry)| entry.attempts.to_string()),
        left("since", |(_, entry)| moment(entry.created_at)),
        left("last error", |(_, entry)| {
            or_nothing(entry.last_error.as_ref().map(|error| short(error, LONGEST_ERROR)))
        }),
    ];
    let entries = OfService::items(services);
    let shown = if entries.is_empty() {
        "nothing waits to be published".to_owned()
    } else {
        table(&columns, &entries)
    };
    shown + &OfService::problems(services)
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn what_waits_is_a_table_and_a_silent_service_is_named() {
        let services: Vec<_> = from_value(json!([
            {"service": "order", "entries": [
                {"seq": 7, "id": "01890000-0000-7000-8000-000000000001", "subject": "order.created",
                 "status": "FAILED", "attempts": 8, "last_error": "payload too large\nat 1",
                 "created_at": "2026-11-20T14:18:36Z"},
            ], "problem": null},
            {"service": "payment", "problem": "payment does not answer"},
        ]))
        .expect("outboxes");
        insta::assert_snapshot!("outbox", list(&services));
        assert_eq!(list(&[]), "nothing waits to be published");
    }
}
