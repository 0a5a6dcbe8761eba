//! Shell: sagas: where each stands, what was said, and who owes what.

use std::process::ExitCode;

use clap::Subcommand;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use shared::money::Money;
use shared::saga::SagaStatus;
use uuid::Uuid;

use super::admin::{Admin, Asked};
use super::{PageOptions, more, show};
use crate::args::one_of;
use crate::output::plain_table as table;
use crate::output::text::{listed, moment, one_line, or_nothing};

const STATUSES: [&str; 7] = [
    SagaStatus::Started.as_str(),
    SagaStatus::InProgress.as_str(),
    SagaStatus::Completed.as_str(),
    SagaStatus::TimedOut.as_str(),
    SagaStatus::Compensating.as_str(),
    SagaStatus::Compensated.as_str(),
    SagaStatus::Failed.as_str(),
];

/// What to do with sagas.
#[derive(Debug, Subcommand)]
pub enum SagaCommand {
    /// List sagas, newest first
    List {
        /// Only in this status.
        #[arg(long, ignore_case = true, value_parser = one_of(STATUSES))]
        status: Option<String>,
        /// Only those past their deadline that have not ended.
        #[arg(long)]
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
        page: PageOptions,
    },
    /// Show a saga: what was said when, the steps that remain, and who owes them
    Show {
        /// Which: the order's id.
        id: Uuid,
        /// The API's own JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `sagactl saga`.
pub async fn run(admin: &Admin, command: SagaCommand) -> anyhow::Result<ExitCode> {
    match command {
        SagaCommand::List { status, overdue, stuck_at, customer, text, page } => {
            let asked = Asked::default()
                .with("status", status)
                .with("overdue", overdue.then_some(true))
                .with("stuck_at", stuck_at)
                .with("customer", customer)
                .with("text", text);
            show(admin.ask(&["sagas"], &page.asked(asked)).await?, page.json, list)
        }
        SagaCommand::Show { id, json } => {
            show(admin.ask(&["sagas", &id.to_string()], &Asked::default()).await?, json, detail)
        }
    }
}

#[derive(Debug, Deserialize)]
struct Page {
    sagas: Vec<Item>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Item {
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

#[derive(Debug, Deserialize)]
struct Owed {
    step: String,
    owner: String,
    fact: String,
}

#[derive(Debug, Deserialize)]
struct Detail {
    #[serde(flatten)]
    saga: Item,
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

fn list(page: &Page) -> String {
    if page.sagas.is_empty() {
        return "no sagas".to_owned();
    }
    let row = |saga: &Item| {
        let deadline = or_nothing(saga.deadline.map(moment));
        [
            saga.id.clone(),
            saga.status.clone(),
            or_nothing(saga.next.as_ref().map(|next| next.step.clone())),
            or_nothing(saga.customer.as_ref()),
            or_nothing(saga.total),
            if saga.overdue { format!("{deadline} OVERDUE") } else { deadline },
            or_nothing(saga.last_fact_at.map(moment)),
        ]
    };
    let header = ["saga", "status", "waits for", "customer", "total", "deadline", "last fact"];
    format!("{}{}", table(header, page.sagas.iter().map(row), &[4]), more(page.next.as_deref()))
}

fn detail(detail: &Detail) -> String {
    let saga = &detail.saga;
    let overdue = if saga.overdue { " OVERDUE" } else { "" };
    let head = listed(&[
        ("status", Some(saga.status.clone())),
        ("cancelled because", saga.cancelled_because.clone()),
        ("customer", saga.customer.clone()),
        ("total", saga.total.map(|total| total.to_string())),
        ("deadline", saga.deadline.map(|deadline| format!("{}{overdue}", moment(deadline)))),
    ]);
    let said = detail.timeline.iter().map(|said| {
        let note = if said.detail.is_null() { String::new() } else { one_line(&said.detail) };
        let after = format!("+{} ms", said.after_ms);
        [after, said.producer.clone(), said.fact.clone(), said.message_id.clone(), note]
    });
    let timeline = table(["after", "who", "said", "message", "detail"], said, &[0]);
    let mut text = format!("saga {}\n{head}\n{timeline}\n", saga.id);
    if detail.remaining.is_empty() {
        text.push_str("\nnobody owes anything\n");
    } else {
        let owed =
            detail.remaining.iter().map(|owed| [owed.step.clone(), owed.owner.clone(), owed.fact.clone()]);
        text.push_str(&format!("\nstill to come\n{}\n", table(["step", "owner", "will say"], owed, &[])));
    }
    text
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
        let page: Page = from_value(json!({"sagas": [item(), bare], "next": "abc"})).expect("a page");
        insta::assert_snapshot!("saga_list", list(&page));
        assert_eq!(list(&Page { sagas: vec![], next: None }), "no sagas");
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
