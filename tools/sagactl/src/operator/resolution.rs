//! Shell: manual resolution of sagas and payments, and its withdrawal.

use std::process::ExitCode;

use admin_api::actor::RequiredReason;
use admin_api::sagas::SagaItem;
use anyhow::Context as _;
use clap::Args;
use contract::manual_resolution::Accepted;
use uuid::Uuid;

use super::dead_letter::change::Change;
use crate::admin::{Admin, Form, ItemOutcome, for_each};
use crate::args;

#[derive(Debug, Args)]
pub struct OrderOptions {
    /// Ids of the orders.
    #[arg(required = true, value_parser = args::id)]
    id: Vec<Uuid>,
    /// Reason, and means by which the rest was done, for the audit log.
    #[arg(long, value_parser = args::reason)]
    reason: String,
    #[command(flatten)]
    form: Form,
}

/// Resolves `sagas` or `payments`, or withdraws that.
pub async fn change(
    admin: &Admin,
    collection: &str,
    change: Change,
    options: OrderOptions,
) -> anyhow::Result<ExitCode> {
    let OrderOptions { id, reason, form } = options;
    let request = RequiredReason { reason };
    for_each(id, form, async |id| {
        let saga: SagaItem =
            admin.post(&[collection, id, change.name], &request).await.context(change.not_done())?;
        ItemOutcome::new(&saga, text(&saga))
    })
    .await
}

/// Describes a saga, and the discrepancies that reconciliation accepts.
fn text(saga: &SagaItem) -> String {
    let accepted = saga.manual_resolution.iter().flat_map(|resolution| &resolution.accepted);
    let lines = accepted.map(|Accepted { rule, detail, difference }| {
        let difference = difference.as_ref().map(|by| format!("; difference {by}")).unwrap_or_default();
        format!("\n  accepted: {rule}: {}{difference}", explained(detail))
    });
    format!("{} is {}{}", saga.id, saga.status.as_str(), lines.collect::<String>())
}

/// Explains `payment OPEN`, which does not say where the money is.
fn explained(detail: &str) -> String {
    detail.replacen("payment OPEN", "payment OPEN (a call to the bank has no answer)", 1)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn resolved_saga_is_shown_with_its_accepted_discrepancies() {
        let open = "payment OPEN, 1 charges captured at the bank";
        let saga = json!({"id": "7", "status": "RESOLVED_MANUALLY", "overdue": false, "manual_resolution": {"operator": "ada", "reason": "cheque",
            "at": "2026-11-20T14:18:36Z", "was": "COMPENSATION_STUCK", "revision": 1, "accepted": [
            {"rule": "cancelled = money back", "detail": open, "difference": "33.00 EUR"},
            {"rule": "cancelled = stock back", "detail": "reservation RESERVED"},
        ]}});
        assert_eq!(
            text(&from_value(saga).expect("a saga")),
            "7 is RESOLVED_MANUALLY\n  accepted: cancelled = money back: payment OPEN (a call to the bank has no answer), 1 charges captured at the bank; difference 33.00 EUR\n  accepted: cancelled = stock back: \
             reservation RESERVED"
        );
    }
}
