//! Shell: sagas: where each stands, what was said, and who owes what.

use std::ops::Not;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use contract::money::Money;
use contract::saga::SagaStatus;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::admin::{Admin, Form, Page, PageOptions};
use crate::args::one_of;
use crate::output::text::{listed, moment, one_line, or_nothing};
use crate::output::{Column, left, right, table};

/// What to do with sagas.
#[derive(Debug, Subcommand)]
pub enum SagaCommand {
    /// List sagas, newest first
    List(ListOptions),
    /// Show a saga: what was said when, the steps that remain, and who owes them
    Show {
        /// The order's id.
        id: Uuid,
        #[command(flatten)]
        form: Form,
    },
}

/// Which sagas to list.
#[derive(Debug, Args, Serialize)]
pub struct ListOptions {
    /// Only in this status.
    #[arg(long, ignore_case = true, value_parser = one_of(SagaStatus::ALL.iter().map(|status| status.as_str())))]
    status: Option<String>,
    /// Only those past their deadline that have not ended.
    #[arg(long)]
    #[serde(skip_serializing_if = "Not::not")]
    overdue: bool,
    /// Only those whose next step is this one.
    #[arg(long, value_name = "STEP")]
    stuck_at: Option<String>,
    /// Only of this customer.
    #[arg(long)]
    customer: Option<String>,
    /// Only those that contain this text.
    #[arg(long)]
    text: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    page: PageOptions,
}

pub async fn run(admin: &Admin, command: SagaCommand) -> anyhow::Result<ExitCode> {
    match command {
        SagaCommand::List(options) => admin.show(&["sagas"], &options, options.page.form, list).await,
        SagaCommand::Show { id, form } => admin.show(&["sagas", &id.to_string()], &(), form, detail).await,
    }
}

#[derive(Debug, Deserialize)]
struct Saga {
    id: String,
    status: String,
    next: Option<Owed>,
    customer: Option<String>,
    total: Option<Money>,
    deadline: Option<Timestamp>,
    overdue: bool,
    cancelled_because: Option<String>,
    last_fact_at: Option<Timestamp>,
}

impl Saga {
    fn deadline(&self) -> Option<String> {
        let overdue = if self.overdue { " OVERDUE" } else { "" };
        self.deadline.map(|deadline| moment(deadline) + overdue)
    }
}

#[derive(Debug, Deserialize)]
struct Owed {
    step: String,
    owner: String,
    fact: String,
}

#[derive(Debug, Deserialize)]
struct Detail {
    #[serde(flatten)]
    saga: Saga,
    timeline: Vec<Moment>,
    remaining: Vec<Owed>,
}

#[derive(Debug, Deserialize)]
struct Moment {
    after_ms: i64,
    #[serde(rename = "type")]
    fact: String,
    producer: String,
    message_id: String,
    #[serde(default)]
    detail: Value,
}

const COLUMNS: [Column<Saga>; 7] = [
    left("saga", |saga| saga.id.clone()),
    left("status", |saga| saga.status.clone()),
    left("waits for", |saga| or_nothing(saga.next.as_ref().map(|next| &next.step))),
    left("customer", |saga| or_nothing(saga.customer.as_ref())),
    right("total", |saga| or_nothing(saga.total)),
    left("deadline", |saga| or_nothing(saga.deadline())),
    left("last fact", |saga| or_nothing(saga.last_fact_at.map(moment))),
];

fn list(page: &Page<Saga>) -> String {
    page.shown("no sagas", &COLUMNS)
}

const TIMELINE: [Column<Moment>; 5] = [
    right("after", |said| format!("+{} ms", said.after_ms)),
    left("who", |said| said.producer.clone()),
    left("said", |said| said.fact.clone()),
    left("message", |said| said.message_id.clone()),
    left("detail", |said| if said.detail.is_null() { String::new() } else { one_line(&said.detail) }),
];

const OWED: [Column<Owed>; 3] = [
    left("step", |owed| owed.step.clone()),
    left("owner", |owed| owed.owner.clone()),
    left("will say", |owed| owed.fact.clone()),
];

fn detail(detail: &Detail) -> String {
    let saga = &detail.saga;
    let head = listed(&[
        ("status", Some(saga.status.clone())),
        ("cancelled because", saga.cancelled_because.clone()),
        ("customer", saga.customer.clone()),
        ("total", saga.total.map(|total| total.to_string())),
        ("deadline", saga.deadline()),
    ]);
    let owed = if detail.remaining.is_empty() {
        "nobody owes anything".to_owned()
    } else {
        format!("still to come\n{}", table(&OWED, &detail.remaining))
    };
    format!("saga {}\n{head}\n{}\n\n{owed}\n", saga.id, table(&TIMELINE, &detail.timeline))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn item() -> Value {
        json!({
            "id": "01890000-0000-7000-8000-000000000001", "status": "IN_PROGRESS",
            "next": {"step": "payment-processing", "owner": "payment", "fact": "PaymentProcessed"},
            "customer": "ada", "total": {"amount_minor": 3_798, "currency": "EUR"},
            "deadline": "2026-11-20T14:19:36.5Z", "overdue": true, "last_fact_at": "2026-11-20T14:18:36.123456Z",
        })
    }

    #[test]
    fn a_page_of_sagas_is_a_table() {
        let bare =
            json!({"id": "01890000-0000-7000-8000-000000000002", "status": "STARTED", "overdue": false});
        let page: Page<Saga> = from_value(json!({"sagas": [item(), bare], "next": "abc"})).expect("a page");
        insta::assert_snapshot!("saga_list", list(&page));
        assert_eq!(list(&Page { items: vec![], next: None }), "no sagas");
    }

    #[test]
    fn a_saga_shows_its_timeline_and_who_owes_what() {
        let mut saga = item();
        saga["timeline"] = json!([
            {"after_ms": 0, "type": "OrderCreated", "producer": "order", "causation_id": "c",
             "message_id": "01890000-0000-7000-8000-00000000000a", "occurred_at": "2026-11-20T14:18:36Z",
             "detail": {"customer": "ada", "total": {"amount_minor": 3_798, "currency": "EUR"}}},
            {"after_ms": 12, "type": "StockReserved", "producer": "inventory", "causation_id": "c",
             "message_id": "01890000-0000-7000-8000-00000000000b", "occurred_at": "2026-11-20T14:18:36Z",
             "detail": {}},
        ]);
        saga["remaining"] = json!([
            {"step": "payment-processing", "owner": "payment", "fact": "PaymentProcessed"},
            {"step": "order-confirmation", "owner": "order", "fact": "OrderConfirmed"},
        ]);
        insta::assert_snapshot!("saga_show", detail(&from_value(saga).expect("a saga")));
    }
}
