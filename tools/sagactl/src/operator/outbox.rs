//! Shell: what waits to be published, and trying again what was given up.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::admin::{Admin, Asked};
use super::{read, show};
use crate::output::plain_table as table;
use crate::output::say;
use crate::output::text::{moment, or_nothing, short};

/// What is shown of an error in a table.
const LONGEST_ERROR: usize = 80;

/// What to do with outboxes; they are listed when nothing is said.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct OutboxOptions {
    #[command(subcommand)]
    command: Option<OutboxCommand>,
    /// The API's own JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum OutboxCommand {
    /// Publish again what failed for good
    Retry {
        /// Whose.
        service: String,
        /// Which entry; without it, all that failed.
        seq: Option<i64>,
    },
}

/// `sagactl outbox`.
pub async fn run(admin: &Admin, options: OutboxOptions) -> anyhow::Result<ExitCode> {
    let Some(OutboxCommand::Retry { service, seq }) = options.command else {
        return show(admin.ask(&["outbox"], &Asked::default()).await?, options.json, list);
    };
    let body = seq.map_or_else(|| json!({}), |seq| json!({ "seq": seq }));
    let Retried { retried } = read(admin.post(&["outbox", &service, "retry"], &body).await?)?;
    say(&format!("{service} tries {retried} again"));
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Deserialize)]
struct Retried {
    retried: u64,
}

#[derive(Debug, Deserialize)]
struct OfService {
    service: String,
    entries: Option<Vec<Entry>>,
    problem: Option<String>,
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

fn list(services: &Vec<OfService>) -> String {
    let entries = services.iter().flat_map(|of| of.entries.iter().flatten().map(move |entry| (of, entry)));
    let rows = entries.map(|(of, entry)| {
        [
            of.service.clone(),
            entry.seq.to_string(),
            entry.status.clone(),
            entry.subject.clone(),
            entry.attempts.to_string(),
            moment(entry.created_at),
            or_nothing(entry.last_error.as_ref().map(|error| short(error, LONGEST_ERROR))),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let mut text = if rows.is_empty() {
        "nothing waits to be published".to_owned()
    } else {
        table(["service", "seq", "status", "subject", "attempts", "since", "last error"], rows, &[1, 4])
    };
    for of in services {
        if let Some(problem) = &of.problem {
            text.push_str(&format!("\n{} cannot be asked: {problem}", of.service));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn what_waits_is_a_table_and_a_silent_service_is_named() {
        let services = from_value(json!([
            {"service": "order", "entries": [
                {"seq": 7, "id": "01890000-0000-7000-8000-000000000001", "subject": "order.created",
                 "status": "FAILED", "attempts": 8, "last_error": "payload too large\nat 1",
                 "created_at": "2026-11-20T14:18:36Z"},
            ], "problem": null},
            {"service": "payment", "problem": "payment does not answer"},
        ]));
        insta::assert_snapshot!("outbox", list(&services.expect("outboxes")));
        assert_eq!(list(&vec![]), "nothing waits to be published");
    }
}
