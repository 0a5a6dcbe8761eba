//! Shell: which dead letters are meant. Some failed a while ago: that depends on what time it is.

use std::collections::BTreeSet;

use admin::notifications::content::NOTIFICATION_TASK;
use admin::policy::AdminService;
use clap::Args;
use clap::builder::PossibleValuesParser;
use contract::topology::PARTICIPANTS;
use inventory::service::InventoryService;
use jiff::{SignedDuration, Timestamp};
use order::service::OrderService;
use payment::bank_task::{CHARGE, REFUND};
use payment::service::PaymentService;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::service::steps_of;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::admin::said;
use crate::args::{self, duration, one_of};
use cli::exit::rejected;

#[derive(Debug, Args, Serialize)]
pub struct InStatus {
    /// Only in these statuses, separated by commas.
    #[arg(long, ignore_case = true, value_delimiter = ',', default_values = UNRESOLVED, value_parser = one_of(names().chain([ALL])))]
    #[serde(serialize_with = "joined")]
    status: Vec<String>,
}

/// The statuses of what is not over.
const UNRESOLVED: [&str; 2] = ["PENDING", "REPLAYING"];
/// Every status.
const ALL: &str = "ALL";

fn names() -> impl Iterator<Item = &'static str> {
    DeadLetterStatus::ALL.iter().map(|status| status.as_str())
}

fn joined<S: Serializer>(wanted: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    if wanted.iter().any(|name| name == ALL) {
        return serializer.serialize_str(&names().collect::<Vec<_>>().join(","));
    }
    serializer.serialize_str(&wanted.join(","))
}

/// Where messages, and calls, can fail: the steps of all services, and the calls to the outside.
fn steps() -> impl Iterator<Item = &'static str> {
    let all = [
        steps_of::<OrderService>(),
        steps_of::<InventoryService>(),
        steps_of::<PaymentService>(),
        steps_of::<AdminService>(),
    ];
    let calls = [CHARGE, REFUND, NOTIFICATION_TASK].into_iter();
    let names: BTreeSet<_> = all.into_iter().flatten().map(|step| step.name).chain(calls).collect();
    names.into_iter()
}

/// Where a message failed.
#[derive(Debug, Args, Serialize)]
pub struct FailedAt {
    /// Only of this service.
    #[arg(long, value_parser = PossibleValuesParser::new(PARTICIPANTS.map(|participant| participant.name)))]
    service: Option<String>,
    /// Only of this step.
    #[arg(long, value_parser = PossibleValuesParser::new(steps()))]
    step: Option<String>,
    /// Only messages of this type, e.g. StockReserved.
    #[arg(long = "type", value_name = "TYPE")]
    #[serde(rename = "type")]
    message_type: Option<String>,
}

#[derive(Debug, Args, Serialize)]
pub struct Filter {
    #[command(flatten)]
    #[serde(flatten)]
    failed_at: FailedAt,
    /// Only those that failed in this way; sagactl dlq groups lists them.
    #[arg(long)]
    fingerprint: Option<String>,
    /// Only of this saga.
    #[arg(long, value_name = "ID", value_parser = args::id)]
    saga: Option<Uuid>,
    /// Only those that failed since, e.g. 10m (ago) or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    #[serde(rename = "failed_after")]
    since: Option<Timestamp>,
    /// Only those that failed before, e.g. 10m (ago) or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    #[serde(rename = "failed_before")]
    until: Option<Timestamp>,
    /// Only those with this text in their reason or type.
    #[arg(long)]
    text: Option<String>,
}

/// Which dead letters are meant.
#[derive(Debug, Args)]
pub struct Which {
    /// These, by their ids; or all that the options below match when it is asked.
    #[arg(value_parser = args::id)]
    pub id: Vec<Uuid>,
    #[command(flatten)]
    pub filter: Filter,
}

/// What was meant.
#[derive(Debug, PartialEq)]
pub enum Meant {
    /// These, one after another.
    Each(Vec<Uuid>),
    /// All that this filter matches.
    All(Value),
}

impl Which {
    /// What was meant, unless that would be nothing, all there is, or both.
    pub fn meant(self) -> anyhow::Result<Meant> {
        let filter = said(&self.filter)?;
        match (self.id.is_empty(), filter == json!({})) {
            (false, true) => Ok(Meant::Each(self.id)),
            (true, false) => Ok(Meant::All(filter)),
            (true, true) => Err(rejected(
                "say which dead letters: by their ids, or by what they have in common, e.g. with --fingerprint",
            )),
            (false, false) => {
                Err(rejected("name dead letters by their ids or by what they have in common, not both"))
            }
        }
    }
}

/// Reads a moment: `10m` is ten minutes ago.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    let bad = || "write it like 10m (ago) or 2026-01-31T12:00:00Z".to_owned();
    let Ok(ago) = duration(text) else { return text.parse().map_err(|_| bad()) };
    let ago = SignedDuration::try_from(ago).map_err(|_| bad())?;
    Timestamp::now().checked_sub(ago).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser, Serialize)]
    struct Line {
        #[command(flatten)]
        #[serde(flatten)]
        status: InStatus,
        #[command(flatten)]
        #[serde(flatten)]
        filter: Filter,
    }

    fn asked(line: &str) -> Option<Value> {
        let words = line.split_whitespace();
        let line = Line::try_parse_from(std::iter::once("x").chain(words)).ok()?;
        Some(said(&line).expect("an object"))
    }

    #[test]
    fn a_filter_asks_for_what_was_said_and_nothing_else() {
        let line = "--status pending,REPLAYING --type StockReserved --since 2026-01-31T12:00:00Z";
        let wanted = json!({
            "status": "PENDING,REPLAYING", "type": "StockReserved", "failed_after": "2026-01-31T12:00:00Z",
        });
        assert_eq!(asked(line), Some(wanted));
        assert_eq!(asked("--status LOST"), None);
        assert_eq!(asked("--saga 7"), None);
    }

    #[test]
    fn without_a_status_what_is_not_over_is_meant() {
        assert_eq!(asked(""), Some(json!({"status": "PENDING,REPLAYING"})));
        let all = json!({"status": "PENDING,REPLAYING,RESOLVED,DISCARDED,RESOLVED_MANUALLY"});
        assert_eq!(asked("--status all"), Some(all));
    }

    #[derive(Debug, Parser)]
    struct Those {
        #[command(flatten)]
        which: Which,
    }

    #[test]
    fn some_are_meant_by_their_ids_or_by_a_filter_and_never_all() {
        let meant = |line: &str| {
            let words = line.split_whitespace();
            let those = Those::try_parse_from(std::iter::once("x").chain(words)).expect("it parses");
            those.which.meant().ok()
        };
        let id = Uuid::from_u128(7);
        assert_eq!(meant(&id.to_string()), Some(Meant::Each(vec![id])));
        assert_eq!(meant("--fingerprint x"), Some(Meant::All(json!({"fingerprint": "x"}))));
        assert_eq!((meant(""), meant(&format!("{id} --fingerprint x"))), (None, None));
    }

    /// A cause may be one that nobody has seen; a service or a step that nobody knows is mistyped.
    #[test]
    fn a_service_or_a_step_that_does_not_exist_is_refused_with_those_that_do() {
        for (line, wanted) in
            [("--service paymnt", "payment"), ("--step payment-procesing", "payment-processing")]
        {
            let refused =
                Line::try_parse_from(std::iter::once("x").chain(line.split(' '))).expect_err("mistyped");
            let text = refused.to_string();
            assert!(
                text.contains("possible values: ") && text.contains(&format!("exists: '{wanted}'")),
                "{text}"
            );
        }
        for line in [
            "--service payment",
            "--step payment-charge",
            "--step order-operations",
            "--step admin-saga-view",
            "--step notification",
        ] {
            assert!(asked(line).is_some(), "{line}");
        }
        assert!(asked("--fingerprint anything").is_some());
    }

    #[test]
    fn a_moment_is_a_while_ago_or_a_timestamp() {
        let ago = moment("10m").expect("a moment").duration_until(Timestamp::now()).as_secs();
        assert!((600..610).contains(&ago), "{ago}");
        assert_eq!(moment("2026-01-31T12:00:00Z").expect("a moment").as_second(), 1_769_860_800);
        assert!(moment("yesterday").is_err() && moment("9999999y").is_err());
    }
}
