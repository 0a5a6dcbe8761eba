//! Shell: sagas: where each stands, what was said, and who owes what.

use std::ops::Not;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use contract::money::Money;
use contract::saga::SagaStatus;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::dead_letter::change::told;
use super::dead_letter::filter::{Meant, Which};
use super::resolution::{OrderOptions, RESOLVE, WITHDRAW, orders};
use crate::admin::{Admin, Done, Form, Items, Page, PageOptions, each};
use crate::args::{self, duration, one_of};
use cli::exit::rejected;
use cli::text::{fields, one_line, or_none, wrapped};
use cli::{Column, View, left, note, removable, right, table, time, truncatable};

/// What to do with sagas.
#[derive(Debug, Subcommand)]
pub enum SagaCommand {
    /// List sagas, newest first
    List(ListOptions),
    /// Show a saga: what was said when, the steps that remain, and who owes them
    Show {
        /// The order's id.
        #[arg(value_parser = args::id)]
        id: Uuid,
        #[command(flatten)]
        form: Form,
    },
    /// Let orders wait longer, so that there is time to mend what is in their way: these, by their ids, or those whose
    /// dead letters match. An order that waits without a dead letter is named by its id. Those that have ended are
    /// counted; those past their deadline, or being undone, are refused
    Extend(ExtendOptions),
    /// Resolve sagas manually (e.g. a refund that was paid by cheque): they end, no service is asked for the rest, and the
    /// reconciliation accepts their current discrepancies, and no others
    Resolve(OrderOptions),
    /// Withdraw that: they are open again, and the bank is called again
    WithdrawResolution(OrderOptions),
}

/// Which orders are to wait longer, and for how long.
#[derive(Debug, Args)]
pub struct ExtendOptions {
    /// These orders, by their ids; or those whose dead letters match.
    #[command(flatten, next_help_heading = "Of the orders whose dead letters match")]
    which: Which,
    /// From now on, e.g. 10m; at most 24h.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    wait: Duration,
    /// Why, for the audit log.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    form: Form,
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
    #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(contract::saga::steps()))]
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
        SagaCommand::List(options) => {
            admin.list(&["sagas"], &options, Items::In("sagas"), options.page.form, list).await
        }
        SagaCommand::Extend(options) => extend(admin, options).await,
        SagaCommand::Resolve(options) => orders(admin, "sagas", RESOLVE, options).await,
        SagaCommand::WithdrawResolution(options) => orders(admin, "sagas", WITHDRAW, options).await,
        SagaCommand::Show { id, form } => admin.show(&["sagas", &id.to_string()], &(), form, detail).await,
    }
}

async fn extend(admin: &Admin, options: ExtendOptions) -> anyhow::Result<ExitCode> {
    let ExtendOptions { which, wait, reason, form } = options;
    let mut body = json!({ "seconds": wait.as_secs(), "reason": reason });
    match which.meant()? {
        Meant::All(filter) => {
            body["filter"] = filter;
            let answer = admin.post(&["sagas", "extend"], &body).await?;
            let is_none = answer["done"] == 0 && answer["rejected"] == json!([]);
            let code = told(answer, "extended", form)?;
            if is_none {
                note(
                    "an order that waits without a dead letter is named by its id (sagactl saga list --stuck-at STEP)",
                );
            }
            Ok(code)
        }
        Meant::Each(ids) => {
            each(ids, form, async |id| {
                let answer = admin.post(&["sagas", id, "extend"], &body).await?;
                match answer["rejected"][0]["detail"].as_str() {
                    Some(why) => Err(rejected(format!("not extended: {why}"))),
                    None => Ok(Done {
                        told: format!("{id} waits longer, once the order service has heard"),
                        answer,
                    }),
                }
            })
            .await
        }
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
    #[serde(default)]
    dead_letters: Vec<DeadLetterRef>,
    cancelled_because: Option<String>,
    last_fact_at: Option<Timestamp>,
    waits_since: Option<Timestamp>,
    waits_until: Option<Timestamp>,
    manual_resolution: Option<Settled>,
}

#[derive(Debug, Deserialize)]
struct Settled {
    operator: String,
    reason: String,
    at: Timestamp,
    was: String,
}

impl Settled {
    fn told(&self, view: &View) -> String {
        let Self { operator, reason, at, was } = self;
        format!("by {operator} at {}: {reason} (it was {was})", view.full_time(*at))
    }
}

impl Saga {
    fn deadline(&self, view: &View) -> Option<String> {
        let overdue = if self.overdue { " OVERDUE" } else { "" };
        self.deadline.map(|deadline| view.full_time(deadline) + overdue)
    }
}

#[derive(Debug, Deserialize)]
struct DeadLetterRef {
    dead_letter: String,
    step: String,
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
    occurred_at: Timestamp,
    after_ms: i64,
    #[serde(rename = "type")]
    fact: String,
    producer: String,
    message_id: String,
    #[serde(default)]
    detail: Value,
}

const COLUMNS: [Column<Saga>; 10] = [
    left("saga", |saga| saga.id.clone()),
    left("status", |saga| saga.status.clone()),
    left("waits for", |saga| or_none(saga.next.as_ref().map(|next| &next.step))),
    removable(3, left("customer", |saga| or_none(saga.customer.as_ref()))),
    removable(2, right("total", |saga| or_none(saga.total))),
    removable(6, time("waits since", |saga| saga.waits_since)),
    removable(5, time("until", |saga| saga.waits_until)),
    removable(4, time("deadline", |saga| saga.deadline)),
    left("overdue", |saga| if saga.overdue { "OVERDUE" } else { "" }.to_owned()),
    removable(1, time("last fact", |saga| saga.last_fact_at)),
];

fn list(page: &Page<Saga>, view: &View) -> String {
    page.shown("no sagas", &COLUMNS, view)
}

const TIMELINE: [Column<Moment>; 6] = [
    removable(2, left("at", |said| time::clock(said.occurred_at))),
    right("after", |said| time::offset(said.after_ms)),
    removable(3, left("who", |said| said.producer.clone())),
    left("said", |said| said.fact.clone()),
    removable(1, left("message", |said| said.message_id.clone())),
    truncatable(left(
        "detail",
        |said| if said.detail.is_null() { String::new() } else { one_line(&said.detail) },
    )),
];

const OWED: [Column<Owed>; 3] = [
    left("step", |owed| owed.step.clone()),
    left("owner", |owed| owed.owner.clone()),
    left("will say", |owed| owed.fact.clone()),
];

fn detail(detail: &Detail, view: &View) -> String {
    let saga = &detail.saga;
    let in_the_way = |parked: &DeadLetterRef| format!("{} (dead letter {})", parked.step, parked.dead_letter);
    let parked: Vec<_> = saga.dead_letters.iter().map(in_the_way).collect();
    let head = wrapped(
        &fields(&[
            ("status", Some(saga.status.clone())),
            ("settled", saga.manual_resolution.as_ref().map(|settled| settled.told(view))),
            ("parked", (!parked.is_empty()).then(|| parked.join(", "))),
            ("cancelled because", saga.cancelled_because.clone()),
            ("customer", saga.customer.clone()),
            ("total", saga.total.map(|total| total.to_string())),
            ("deadline", saga.deadline(view)),
            ("first fact", detail.timeline.first().map(|said| view.full_time(said.occurred_at))),
        ]),
        view.width,
    );
    let owed = if detail.remaining.is_empty() {
        "nobody owes anything".to_owned()
    } else {
        format!("still to come\n{}", table(&OWED, &detail.remaining, view))
    };
    format!("saga {}\n{head}\n{}\n\n{owed}\n", saga.id, table(&TIMELINE, &detail.timeline, view))
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
            "waits_since": "2026-11-20T14:18:36.123456Z", "waits_until": "2026-11-20T14:19:36.5Z",
        })
    }

    #[test]
    fn a_page_of_sagas_is_a_table() {
        let bare =
            json!({"id": "01890000-0000-7000-8000-000000000002", "status": "STARTED", "overdue": false});
        let page: Page<Saga> = from_value(json!({"items": [item(), bare], "next": "abc"})).expect("a page");
        insta::assert_snapshot!("saga_list", list(&page, &View::FILE));
        assert_eq!(list(&Page::of(vec![]), &View::FILE), "no sagas");
    }

    #[test]
    fn a_saga_shows_its_timeline_and_who_owes_what() {
        let mut saga = item();
        saga["timeline"] = json!([
            {"after_ms": 0, "type": "OrderCreated", "producer": "order", "causation_id": "c",
             "message_id": "01890000-0000-7000-8000-00000000000a", "occurred_at": "2026-11-20T14:18:36Z",
             "detail": {"customer": "ada", "total": {"amount_minor": 3_798, "currency": "EUR"}}},
            {"after_ms": 40_314, "type": "StockReserved", "producer": "inventory", "causation_id": "c",
             "message_id": "01890000-0000-7000-8000-00000000000b", "occurred_at": "2026-11-20T14:18:36Z",
             "detail": {}},
        ]);
        saga["remaining"] = json!([
            {"step": "payment-processing", "owner": "payment", "fact": "PaymentProcessed"},
            {"step": "order-confirmation", "owner": "order", "fact": "OrderConfirmed"},
        ]);
        insta::assert_snapshot!("saga_show", detail(&from_value(saga.clone()).expect("a saga"), &View::FILE));
        saga["cancelled_because"] = "the bank said no, ".repeat(20).into();
        saga["timeline"][0]["detail"]["lines"] = vec![json!({"sku": "pen", "quantity": 1}); 20].into();
        let narrow = View { width: Some(60), now: None };
        let shown = detail(&from_value(saga).expect("a saga"), &narrow);
        assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
    }
}
