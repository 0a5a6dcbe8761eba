//! Shell: options that select dead letters. Relative times depend on the clock.

use std::collections::BTreeSet;

use admin::notifications::content::NOTIFICATION_TASK;
use admin::service::AdminService;
use admin_api::dead_letters::{Filter, ListParams};
use clap::Args;
use clap::builder::PossibleValuesParser;
use cli::exit::rejected;
use contract::topology::PARTICIPANTS;
use inventory::service::InventoryService;
use jiff::Timestamp;
use order::service::OrderService;
use payment::bank_task::{CHARGE, REFUND};
use payment::service::PaymentService;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::service::steps_of;
use uuid::Uuid;

use crate::args::{self, one_of, past_time};

#[derive(Debug, Args)]
pub struct StatusOptions {
    /// Only in these statuses, separated by commas.
    #[arg(long, ignore_case = true, value_delimiter = ',', default_values = UNRESOLVED, value_parser = one_of(statuses().chain([ALL])))]
    status: Vec<String>,
}

const UNRESOLVED: [&str; 2] = ["PENDING", "REPLAYING"];
const ALL: &str = "ALL";

fn statuses() -> impl Iterator<Item = &'static str> {
    DeadLetterStatus::ALL.iter().map(|status| status.as_str())
}

impl StatusOptions {
    /// Returns the statuses as the API takes them.
    pub fn joined(&self) -> String {
        match self.status.iter().any(|name| name == ALL) {
            true => statuses().collect::<Vec<_>>().join(","),
            false => self.status.join(","),
        }
    }
}

/// Steps of all services, and kinds of tasks.
fn steps() -> impl Iterator<Item = &'static str> {
    let all = [
        steps_of::<OrderService>(),
        steps_of::<InventoryService>(),
        steps_of::<PaymentService>(),
        steps_of::<AdminService>(),
    ];
    let tasks = [CHARGE, REFUND, NOTIFICATION_TASK].into_iter();
    let names: BTreeSet<_> = all.into_iter().flatten().map(|step| step.name).chain(tasks).collect();
    names.into_iter()
}

#[derive(Debug, Args)]
pub struct OriginOptions {
    /// Only of this service.
    #[arg(long, value_parser = PossibleValuesParser::new(PARTICIPANTS.map(|participant| participant.name)))]
    pub service: Option<String>,
    /// Only of this step, or kind of task.
    #[arg(long, value_parser = PossibleValuesParser::new(steps()))]
    pub step: Option<String>,
    /// Only messages of this type, e.g. StockReserved.
    #[arg(long = "type", value_name = "TYPE")]
    pub message_type: Option<String>,
}

#[derive(Debug, Args)]
pub struct FilterOptions {
    #[command(flatten)]
    origin: OriginOptions,
    /// Only of this cause; sagactl dlq groups lists them.
    #[arg(long)]
    fingerprint: Option<String>,
    /// Only of this saga.
    #[arg(long, value_name = "ID", value_parser = args::id)]
    saga: Option<Uuid>,
    /// Only with a last failure since, e.g. 10m (ago) or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", value_parser = past_time)]
    since: Option<Timestamp>,
    /// Only with a last failure before, e.g. 10m (ago) or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", value_parser = past_time)]
    until: Option<Timestamp>,
    /// Only with this text in the error or the type.
    #[arg(long)]
    text: Option<String>,
}

impl FilterOptions {
    fn is_empty(&self) -> bool {
        let Self { origin, fingerprint, saga, since, until, text } = self;
        let OriginOptions { service, step, message_type } = origin;
        let texts = [service, step, message_type, fingerprint, text];
        texts.iter().all(|text| text.is_none()) && saga.is_none() && since.is_none() && until.is_none()
    }

    pub fn filter(self) -> Filter {
        let Self { origin, fingerprint, saga, since, until, text } = self;
        let OriginOptions { service, step, message_type } = origin;
        let (failed_after, failed_before) = (since, until);
        Filter { fingerprint, service, step, message_type, saga, failed_after, failed_before, text }
    }

    pub fn list_params(
        self,
        status: Option<String>,
        limit: Option<usize>,
        cursor: Option<String>,
    ) -> ListParams {
        list_params(self.filter(), status, limit, cursor)
    }
}

/// Returns the parameters of a list of what a filter matches.
pub fn list_params(
    filter: Filter,
    status: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
) -> ListParams {
    let Filter { fingerprint, service, step, message_type, saga, failed_after, failed_before, text } = filter;
    ListParams {
        status,
        service,
        step,
        message_type,
        fingerprint,
        saga,
        failed_after,
        failed_before,
        text,
        limit,
        cursor,
    }
}

#[derive(Debug, Args)]
pub struct SelectionOptions {
    /// Ids; without them, all that match the options below.
    #[arg(value_parser = args::id)]
    pub id: Vec<Uuid>,
    #[command(flatten)]
    pub filter: FilterOptions,
}

#[derive(Debug, PartialEq)]
pub enum Selection {
    Ids(Vec<Uuid>),
    Matching(Box<Filter>),
}

impl SelectionOptions {
    /// True if nothing is selected.
    pub fn is_empty(&self) -> bool {
        self.id.is_empty() && self.filter.is_empty()
    }

    /// Returns the selection. Rejects an empty one, and ids together with a filter.
    pub fn selection(self) -> anyhow::Result<Selection> {
        let filter = self.filter.filter();
        match (self.id.is_empty(), filter.is_empty()) {
            (false, true) => Ok(Selection::Ids(self.id)),
            (true, false) => Ok(Selection::Matching(Box::new(filter))),
            (true, true) => {
                Err(rejected("select dead letters by their ids, or by a filter, e.g. --fingerprint"))
            }
            (false, false) => Err(rejected("select dead letters by their ids or by a filter, not by both")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        status: StatusOptions,
        #[command(flatten)]
        selection: SelectionOptions,
    }

    fn parse(line: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))
    }

    fn filter_of(line: &str) -> Value {
        json!(parse(line).expect("it parses").selection.filter.filter())
    }

    #[test]
    fn filter_has_only_the_given_members() {
        let filter = filter_of("--type StockReserved --since 2026-01-31T12:00:00Z");
        assert_eq!(filter, json!({"type": "StockReserved", "failed_after": "2026-01-31T12:00:00Z"}));
        assert!(parse("--status LOST").is_err() && parse("--saga 7").is_err());
    }

    #[test]
    fn default_statuses_are_the_unresolved_ones() {
        let joined = |line: &str| parse(line).expect("it parses").status.joined();
        assert_eq!(joined(""), "PENDING,REPLAYING");
        assert_eq!(joined("--status pending,RESOLVED"), "PENDING,RESOLVED");
        assert_eq!(joined("--status all"), "PENDING,REPLAYING,RESOLVED,DISCARDED,RESOLVED_MANUALLY");
    }

    #[test]
    fn selection_is_by_ids_or_by_a_filter_and_never_empty() {
        let selection = |line: &str| parse(line).expect("it parses").selection.selection().ok();
        let id = Uuid::from_u128(7);
        assert_eq!(selection(&id.to_string()), Some(Selection::Ids(vec![id])));
        let filter = Filter { fingerprint: Some("x".to_owned()), ..Filter::default() };
        assert_eq!(selection("--fingerprint x"), Some(Selection::Matching(Box::new(filter))));
        assert_eq!((selection(""), selection(&format!("{id} --fingerprint x"))), (None, None));
    }

    /// A fingerprint may be unknown; an unknown service or step is a typing error.
    #[test]
    fn unknown_service_or_step_is_rejected_with_the_known_ones() {
        for (line, similar) in
            [("--service paymnt", "payment"), ("--step payment-procesing", "payment-processing")]
        {
            let text = parse(line).expect_err("mistyped").to_string();
            let suggestion = format!("exists: '{similar}'");
            assert!(text.contains("possible values: ") && text.contains(&suggestion), "{text}");
        }
        for line in [
            "--service payment",
            "--step payment-charge",
            "--step order-operations",
            "--step admin-saga-view",
            "--step notification",
            "--fingerprint anything",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }
}
