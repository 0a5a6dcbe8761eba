//! Pure: which dead letters are meant.

use clap::Args;

use jiff::Timestamp;
use uuid::Uuid;

use crate::args::{moment, one_of};
use crate::operator::admin::Asked;

const STATUSES: [&str; 4] = ["PENDING", "REPLAYING", "RESOLVED", "DISCARDED"];

/// In which status.
#[derive(Debug, Args)]
pub struct InStatus {
    /// Only in these statuses, e.g. PENDING,REPLAYING.
    #[arg(long, ignore_case = true, value_delimiter = ',', value_parser = one_of(STATUSES))]
    status: Vec<String>,
}

impl InStatus {
    /// As members of a query.
    pub fn asked(self) -> Asked {
        Asked::default().with("status", (!self.status.is_empty()).then(|| self.status.join(",")))
    }
}

/// Where a message failed.
#[derive(Debug, Args)]
pub struct Place {
    /// Only of this service.
    #[arg(long)]
    service: Option<String>,
    /// Only of this step.
    #[arg(long)]
    step: Option<String>,
    /// Only messages of this type, e.g. StockReserved.
    #[arg(long = "type", value_name = "TYPE")]
    message_type: Option<String>,
}

impl Place {
    /// As members of a query.
    pub fn asked(self, asked: Asked) -> Asked {
        asked.with("service", self.service).with("step", self.step).with("type", self.message_type)
    }
}

/// Which dead letters.
#[derive(Debug, Args)]
pub struct Filter {
    #[command(flatten)]
    place: Place,
    /// Only those that failed in this way; sagactl dlq groups lists them.
    #[arg(long)]
    fingerprint: Option<String>,
    /// Only of this saga.
    #[arg(long, value_name = "ID")]
    saga: Option<Uuid>,
    /// Only those that failed since, e.g. 10m (ago) or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only those that failed before, e.g. 10m (ago) or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    until: Option<Timestamp>,
    /// Only those with this text in their reason or type.
    #[arg(long)]
    text: Option<String>,
}

impl Filter {
    /// As members of a query.
    pub fn asked(self, asked: Asked) -> Asked {
        self.place
            .asked(asked)
            .with("fingerprint", self.fingerprint)
            .with("saga", self.saga)
            .with("failed_after", self.since)
            .with("failed_before", self.until)
            .with("text", self.text)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        status: InStatus,
        #[command(flatten)]
        filter: Filter,
    }

    fn asked(line: &str) -> Option<Asked> {
        let line = Line::try_parse_from(std::iter::once("x").chain(line.split(' '))).ok()?;
        Some(line.filter.asked(line.status.asked()))
    }

    #[test]
    fn a_filter_asks_for_what_was_said_and_nothing_else() {
        let line = "--status pending,REPLAYING --type StockReserved --since 2026-01-31T12:00:00Z";
        let wanted = json!({
            "status": "PENDING,REPLAYING", "type": "StockReserved", "failed_after": "2026-01-31T12:00:00Z",
        });
        assert_eq!(asked(line).expect("a filter").into_object(), Some(wanted));
        assert_eq!(asked("--status LOST"), None);
        assert_eq!(asked("--saga 7"), None);
    }

    #[test]
    fn no_filter_is_none() {
        let line = Line::try_parse_from(["x"]).expect("a line");
        assert_eq!(line.filter.asked(line.status.asked()).into_object(), None);
    }
}
