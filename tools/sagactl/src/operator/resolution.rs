//! Shell: manual resolution of dead letters, sagas and payments, and its withdrawal.

use std::process::ExitCode;

use admin_api::sagas::SagaItem;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use contract::manual_resolution::Accepted;
use serde_json::{Value, json};
use uuid::Uuid;

use super::dead_letter::change::{DeadLetterOptions, many, standing};
use super::dead_letter::filter::Meant;
use crate::admin::{Admin, Done, Form, each, read};
use crate::args;

/// Actions on payments.
#[derive(Debug, Subcommand)]
pub enum PaymentCommand {
    /// Resolve an open call to the bank manually (a refund, a reversal): payment stops calling, and the saga is resolved.
    /// Rejected without an open call
    Resolve(OrderOptions),
    /// Withdraw that: payment calls the bank again
    WithdrawResolution(OrderOptions),
}

/// Which orders, and why.
#[derive(Debug, Args)]
pub struct OrderOptions {
    /// The orders, by their ids.
    #[arg(required = true, value_parser = args::id)]
    id: Vec<Uuid>,
    /// Why, and how, for the audit log.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    form: Form,
}

/// An action with its words.
#[derive(Debug, Clone, Copy)]
pub struct Verb {
    name: &'static str,
    done: &'static str,
    not_done: &'static str,
}

pub const RESOLVE: Verb = Verb { name: "resolve", done: "resolved", not_done: "not resolved" };
pub const WITHDRAW: Verb =
    Verb { name: "withdraw-resolution", done: "opened again", not_done: "not opened again" };

/// `sagactl payment resolve` and `withdraw-resolution`.
pub async fn run(admin: &Admin, command: PaymentCommand) -> anyhow::Result<ExitCode> {
    match command {
        PaymentCommand::Resolve(options) => orders(admin, "payments", RESOLVE, options).await,
        PaymentCommand::WithdrawResolution(options) => orders(admin, "payments", WITHDRAW, options).await,
    }
}

/// `sagactl saga resolve` and `withdraw-resolution`, and the same of payments.
pub async fn orders(admin: &Admin, of: &str, verb: Verb, options: OrderOptions) -> anyhow::Result<ExitCode> {
    let OrderOptions { id, reason, form } = options;
    let body = json!({ "reason": reason });
    each(id, form, async |id| told(admin.post(&[of, id, verb.name], &body).await.context(verb.not_done)?))
        .await
}

/// `sagactl dlq resolve` and `withdraw-resolution`.
pub async fn dead_letters(admin: &Admin, verb: Verb, options: DeadLetterOptions) -> anyhow::Result<ExitCode> {
    let DeadLetterOptions { which, reason, form } = options;
    let body = json!({ "reason": reason });
    match which.meant()? {
        Meant::All(filter) => many(admin, &["dlq", verb.name], verb.done, &filter, body, form).await,
        Meant::Each(ids) => {
            each(ids, form, async |id| {
                standing(admin.post(&["dlq", id, verb.name], &body).await.context(verb.not_done)?)
            })
            .await
        }
    }
}

/// Describes a saga, and the discrepancies that the reconciliation accepts.
fn told(saga: Value) -> anyhow::Result<Done> {
    let SagaItem { id, status, manual_resolution, .. } = read(saga.clone())?;
    let accepted = manual_resolution.into_iter().flat_map(|resolution| resolution.accepted);
    let lines = accepted.map(|Accepted { rule, detail, difference }| {
        let by = difference.map(|by| format!("; difference {by}")).unwrap_or_default();
        format!("\n  accepted: {rule}: {}{by}", plain(&detail))
    });
    Ok(Done { told: format!("{id} is {}{}", status.as_str(), lines.collect::<String>()), answer: saga })
}

/// Explains `payment OPEN`, which does not say where the money is.
fn plain(detail: &str) -> String {
    detail.replacen("payment OPEN", "payment OPEN (a call to the bank has no answer)", 1)
}

#[cfg(test)]
mod tests {
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
            told(saga).expect("a saga").told,
            "7 is RESOLVED_MANUALLY\n  accepted: cancelled = money back: payment OPEN (a call to the bank has no answer), 1 charges captured at the bank; difference 33.00 EUR\n  accepted: cancelled = stock back: \
             reservation RESERVED"
        );
        let open = json!({"id": "7", "status": "COMPENSATION_STUCK", "overdue": false});
        assert_eq!(told(open).expect("a saga").told, "7 is COMPENSATION_STUCK");
    }
}
