//! Shell: `sagactl saga`: status, timeline and remaining steps of sagas; extension and manual resolution.

use std::process::ExitCode;
use std::time::Duration;

use admin_api::bulk::{BulkOutcome, ExtendMany, ExtendOne};
use admin_api::sagas::{SagaDetail, SagaItem, SagaPage, SagaParams, TimelineEntry};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use cli::exit::{self, ExitError, rejected};
use cli::note;
use cli::table::{Column, left, removable, right, table, time, truncatable};
use cli::text::{fields, one_line, or_none, wrapped};
use cli::time::{clock, offset, timestamp};
use cli::view::View;
use contract::manual_resolution::ManualResolution;
use contract::saga::SagaStatus;
use contract::saga_fact::DeadLetterRef;
use contract::saga_view::Owed;
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::dead_letter::change::{RESOLVE, WITHDRAW_RESOLUTION, outcome_text, rejections_text, report_as};
use super::dead_letter::selection::{Selection, SelectionOptions};
use super::resolution::{self, OrderOptions};
use crate::admin::{Admin, Form, ItemOutcome, Page, PageOptions, for_each, show};
use crate::args::{self, one_of, seconds};

#[derive(Debug, Subcommand)]
pub enum SagaCommand {
    /// List sagas, newest first
    List(ListOptions),
    /// Show the timeline of a saga, its remaining steps, and the services that owe them
    Show {
        /// Id of the order.
        #[arg(value_parser = args::id)]
        id: Uuid,
        #[command(flatten)]
        form: Form,
    },
    /// Extend the deadlines of orders, by their ids, of matching dead letters or of all that wait for a step, so that there is
    /// time for a repair. Orders that are cancelled or past their deadline are rejected; ended ones are only counted
    Extend(ExtendOptions),
    /// Resolve sagas manually, e.g. if a refund was paid by cheque. They end, and no service is asked for the rest.
    /// Reconciliation accepts their current discrepancies, and no others
    Resolve(OrderOptions),
    /// Withdraw the resolution: the sagas are open again, and the bank is called again
    #[command(mut_arg("reason", |reason| reason.help("Reason, for the audit log")))]
    WithdrawResolution(OrderOptions),
}

#[derive(Debug, Args)]
pub struct ExtendOptions {
    #[command(flatten, next_help_heading = "Orders of matching dead letters")]
    selection: SelectionOptions,
    /// All orders that wait for this step, with or without a dead letter.
    #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(contract::saga::steps()))]
    stuck_at: Option<String>,
    /// New time limit from now on, e.g. 10m; at most 24h.
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    seconds: u32,
    /// Reason, for the audit log.
    #[arg(long, value_parser = args::reason)]
    reason: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub struct ListOptions {
    /// Only in this status.
    #[arg(long, ignore_case = true, value_parser = status())]
    status: Option<SagaStatus>,
    /// Only sagas that are past their deadline and have not ended.
    #[arg(long)]
    overdue: bool,
    /// Only with this next step.
    #[arg(long, value_name = "STEP", value_parser = PossibleValuesParser::new(contract::saga::steps()))]
    stuck_at: Option<String>,
    /// Only of customers whose name contains this, whatever its case.
    #[arg(long, value_name = "TEXT")]
    customer: Option<String>,
    /// Only with this text.
    #[arg(long)]
    text: Option<String>,
    #[command(flatten)]
    page: PageOptions,
}

fn status() -> impl TypedValueParser<Value = SagaStatus> {
    one_of(SagaStatus::ALL.iter().map(|status| status.as_str())).try_map(|name| name.parse::<SagaStatus>())
}

pub async fn run(admin: &Admin, command: SagaCommand) -> anyhow::Result<ExitCode> {
    match command {
        SagaCommand::List(options) => list(admin, options).await,
        SagaCommand::Extend(options) => extend(admin, options).await,
        SagaCommand::Resolve(options) => resolution::change(admin, "sagas", RESOLVE, options).await,
        SagaCommand::WithdrawResolution(options) => {
            resolution::change(admin, "sagas", WITHDRAW_RESOLUTION, options).await
        }
        SagaCommand::Show { id, form } => {
            let saga: SagaDetail = admin.get(&["sagas", &id.to_string()], &()).await?;
            show(&saga, form, detail_text)
        }
    }
}

async fn list(admin: &Admin, options: ListOptions) -> anyhow::Result<ExitCode> {
    let ListOptions { status, overdue, stuck_at, customer, text, page } = options;
    let overdue = overdue.then_some(true);
    let (limit, cursor) = (page.limit, page.cursor_id()?);
    let params = SagaParams { status, overdue, stuck_at, customer, text, limit, cursor };
    let SagaPage { sagas, unreadable, next, total, unconsumed } = admin.get(&["sagas"], &params).await?;
    show(&Page { unreadable, next, total, unconsumed, ..Page::from_iter(sagas) }, page.form, list_text)
}

async fn extend(admin: &Admin, options: ExtendOptions) -> anyhow::Result<ExitCode> {
    let ExtendOptions { selection, stuck_at, seconds, reason, form } = options;
    let reason = Some(reason);
    if selection.is_empty() == stuck_at.is_none() {
        return Err(rejected(
            "name the orders in one way: by their ids, by --stuck-at STEP, or by a filter of their dead letters, e.g. \
             --fingerprint F",
        ));
    }
    let selected = stuck_at.is_none().then(|| selection.selection()).transpose()?;
    let filter = match selected {
        None => None,
        Some(Selection::Matching(filter)) => Some(*filter),
        Some(Selection::Ids(ids)) => {
            let request = ExtendOne { seconds, reason };
            return for_each(ids, form, async |id| {
                let outcome: BulkOutcome = admin.post(&["sagas", id, "extend"], &request).await?;
                match outcome.rejected.first() {
                    Some(rejection) => Err(rejected(format!("not extended: {}", rejection.detail))),
                    None => {
                        let text = extended(admin, id, outcome.until).await?;
                        ItemOutcome::new(&outcome, text)
                    }
                }
            })
            .await;
        }
    };
    let request = ExtendMany { filter, stuck_at, seconds, reason, ..ExtendMany::default() };
    let outcome: BulkOutcome = admin.post(&["sagas", "extend"], &request).await?;
    match request.stuck_at {
        Some(step) if outcome.total() == 0 => {
            Err(ExitError::new(exit::NOT_FOUND, format!("no saga waits for {step}")).into())
        }
        step => {
            let code = report_as(&outcome, "extended", form, &extension_text(&outcome))?;
            let waiting = match step {
                Some(step) => format!("--stuck-at {step}"),
                None => format!("--status {}", SagaStatus::DeadLettered.as_str()),
            };
            if outcome.total() == 0 {
                note("orders without a dead letter are extended by their ids, or by --stuck-at STEP");
            } else if outcome.done > 0 {
                note(&format!(
                    "the order service extends those that have not ended and are not past their deadline; the deadlines of \
                     those that still wait: sagactl saga list {waiting}"
                ));
            }
            Ok(code)
        }
    }
}

/// Summarises what the order service was asked to extend.
fn extension_text(outcome: &BulkOutcome) -> String {
    if outcome.total() == 0 {
        return outcome_text(outcome, "extended");
    }
    let until = outcome.until.filter(|_| outcome.done > 0);
    let until = until.map(|until| format!(" until {}", timestamp(until))).unwrap_or_default();
    format!("asked to extend {}{until}, {}", outcome.done, rejections_text(outcome))
}

/// Number of looks at a saga after its extension was requested, and the time between two.
const EXTENSION_CHECKS: u32 = 20;
const EXTENSION_INTERVAL: Duration = Duration::from_millis(150);

/// Waits a moment for the order service, which extends the deadline or rejects that, and describes the outcome.
async fn extended(admin: &Admin, id: &str, until: Option<Timestamp>) -> anyhow::Result<String> {
    for _ in 0..EXTENSION_CHECKS {
        let Ok(SagaDetail { saga, .. }) = admin.get(&["sagas", id], &()).await else { break };
        if let (Some(deadline), Some(until)) = (saga.deadline, until)
            && deadline >= until
        {
            return Ok(format!("{id}: its deadline is {}", timestamp(deadline)));
        }
        if !saga.status.can_be_overdue() || saga.status.is_cancelled() {
            return Err(rejected(format!("not extended: its saga is {}", saga.status.as_str())));
        }
        tokio::time::sleep(EXTENSION_INTERVAL).await;
    }
    let until = until.map(|until| format!(" to {}", timestamp(until))).unwrap_or_default();
    Ok(format!("{id}: the order service is asked to extend the deadline{until}, and has not answered yet"))
}

const COLUMNS: [Column<SagaItem>; 10] = [
    left("saga", |saga| saga.id.clone()),
    left("status", |saga| saga.status.as_str().to_owned()),
    removable(5, left("waits for", |saga| or_none(saga.next.as_ref().map(|next| &next.step)))),
    removable(7, left("customer", |saga| or_none(saga.customer.as_ref()))),
    removable(6, right("total", |saga| or_none(saga.total.as_ref()))),
    removable(4, time("waits since", |saga| saga.waits_since)),
    removable(3, time("until", |saga| saga.waits_until)),
    removable(2, time("deadline", |saga| saga.deadline)),
    left("overdue", |saga| if saga.overdue { "OVERDUE" } else { "" }.to_owned()),
    removable(1, time("last fact", |saga| saga.last_fact_at)),
];

fn list_text(page: &Page<SagaItem>, view: &View) -> String {
    page.text("no sagas", &COLUMNS, view)
}

const TIMELINE: [Column<TimelineEntry>; 6] = [
    removable(2, left("at", |entry| clock(entry.fact.occurred_at))),
    right("after", |entry| offset(entry.after_ms)),
    removable(3, left("producer", |entry| entry.fact.producer.clone())),
    left("fact", |entry| entry.fact.message_type.clone()),
    removable(1, left("message", |entry| entry.fact.message_id.to_string())),
    truncatable(left("detail", |entry| one_line(&json!(entry.fact.detail)))),
];

const REMAINING: [Column<Owed>; 3] = [
    left("step", |owed| owed.step.clone()),
    left("owner", |owed| owed.owner.clone()),
    left("fact", |owed| owed.fact.message_type().name.to_owned()),
];

/// Describes by whom and why a saga was resolved manually.
pub(super) fn resolution_text(resolution: &ManualResolution, view: &View) -> String {
    let ManualResolution { operator, reason, at, was, .. } = resolution;
    format!("by {operator} at {}: {reason} (was {})", view.full_time(*at), was.as_str())
}

fn detail_text(detail: &SagaDetail, view: &View) -> String {
    let saga = &detail.saga;
    let dead_letter = |letter: &DeadLetterRef| format!("{} at {}", letter.dead_letter, letter.step);
    let dead_letters: Vec<_> = saga.dead_letters.iter().map(dead_letter).collect();
    let overdue = if saga.overdue { " OVERDUE" } else { "" };
    let head = wrapped(
        &fields(&[
            ("status", Some(saga.status.as_str().to_owned())),
            (
                "resolved manually",
                saga.manual_resolution.as_ref().map(|resolution| resolution_text(resolution, view)),
            ),
            ("dead letters", (!dead_letters.is_empty()).then(|| dead_letters.join(", "))),
            ("cancelled because", saga.cancelled_because.clone()),
            ("customer", saga.customer.clone()),
            ("total", saga.total.as_ref().map(ToString::to_string)),
            ("deadline", saga.deadline.map(|deadline| view.full_time(deadline) + overdue)),
            ("first fact", detail.timeline.first().map(|entry| view.full_time(entry.fact.occurred_at))),
        ]),
        view.width,
    );
    let remaining = match detail.remaining.as_slice() {
        [] => "no remaining steps".to_owned(),
        remaining => format!("remaining steps\n{}", table(&REMAINING, remaining, view)),
    };
    format!("saga {}\n{head}\n{}\n\n{remaining}\n", saga.id, table(&TIMELINE, &detail.timeline, view))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

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
    fn extension_of_many_is_asked_for() {
        let until = "2026-11-20T14:18:36Z".parse().ok();
        let asked = BulkOutcome { done: 2, until, ..BulkOutcome::default() };
        assert_eq!(extension_text(&asked), "asked to extend 2 until 2026-11-20 14:18:36Z, 0 rejected");
        assert_eq!(
            extension_text(&BulkOutcome { done: 0, more_rejected: 3, until, ..BulkOutcome::default() }),
            "asked to extend 0, 3 rejected"
        );
    }

    #[test]
    fn sagas_are_a_table() {
        let bare =
            json!({"id": "01890000-0000-7000-8000-000000000002", "status": "STARTED", "overdue": false});
        let sagas: Vec<SagaItem> = from_value(json!([item(), bare])).expect("sagas");
        let page = Page { next: Some("abc".to_owned()), ..Page::from_iter(sagas) };
        insta::assert_snapshot!("saga_list", list_text(&page, &View::FILE));
    }

    #[test]
    fn narrow_terminal_shows_customer_and_total() {
        let mut on_time = item();
        on_time["overdue"] = false.into();
        let sagas: Vec<SagaItem> = from_value(json!([on_time])).expect("sagas");
        let text = list_text(&Page::from_iter(sagas), &View { width: Some(80), now: None });
        assert!(text.contains("ada") && text.contains("37.98 EUR") && !text.contains("overdue"), "{text}");
    }

    #[test]
    fn saga_is_shown_with_timeline_and_remaining_steps() {
        let id = "01890000-0000-7000-8000-00000000000c";
        let mut saga = item();
        saga["timeline"] = json!([
            {"after_ms": 0, "type": "OrderCreated", "producer": "order", "causation_id": id,
             "message_id": "01890000-0000-7000-8000-00000000000a", "occurred_at": "2026-11-20T14:18:36Z",
             "detail": {"customer": "ada", "total": {"amount_minor": 3_798, "currency": "EUR"}}},
            {"after_ms": 40_314, "type": "StockReserved", "producer": "inventory", "causation_id": id,
             "message_id": "01890000-0000-7000-8000-00000000000b", "occurred_at": "2026-11-20T14:18:36Z",
             "detail": {}},
        ]);
        saga["remaining"] = json!([
            {"step": "payment-processing", "owner": "payment", "fact": "PaymentProcessed"},
            {"step": "order-confirmation", "owner": "order", "fact": "OrderConfirmed"},
        ]);
        let text = |saga: &Value, view| detail_text(&from_value(saga.clone()).expect("a saga"), view);
        insta::assert_snapshot!("saga_show", text(&saga, &View::FILE));
        saga["cancelled_because"] = "the bank said no, ".repeat(20).into();
        saga["timeline"][0]["detail"]["note"] = "a very long note ".repeat(20).into();
        let narrow = text(&saga, &View { width: Some(60), now: None });
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    }
}
