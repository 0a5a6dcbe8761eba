//! Shell: what was settled outside: dead letters, sagas, what payment asks the bank for an order; and taking that back.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::dead_letter::change::{DeadLetterOptions, many, standing};
use super::dead_letter::filter::Meant;
use crate::admin::{Admin, Done, Form, each, read};
use crate::args;

/// What to do with payments.
#[derive(Debug, Subcommand)]
pub enum PaymentCommand {
    /// Settle outside what payment asks the bank for an order (a refund, a reversal): it asks no more, and the order's
    /// saga is SETTLED. Refused when it asks for nothing
    Settle(OrderOptions),
    /// Take that back: the bank is asked again
    Unsettle(OrderOptions),
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

/// What is done: the word for it, and the word for having done it.
#[derive(Debug, Clone, Copy)]
pub struct Verb {
    name: &'static str,
    done: &'static str,
    not_done: &'static str,
}

/// Somebody has settled it outside.
pub const SETTLE: Verb = Verb { name: "settle", done: "settled", not_done: "not settled" };
/// Nobody has, after all.
pub const UNSETTLE: Verb = Verb { name: "unsettle", done: "unsettled", not_done: "not unsettled" };

/// `sagactl payment settle` and `unsettle`.
pub async fn run(admin: &Admin, command: PaymentCommand) -> anyhow::Result<ExitCode> {
    match command {
        PaymentCommand::Settle(options) => orders(admin, "payments", SETTLE, options).await,
        PaymentCommand::Unsettle(options) => orders(admin, "payments", UNSETTLE, options).await,
    }
}

/// `sagactl saga settle` and `unsettle`, and the same of payments.
pub async fn orders(admin: &Admin, of: &str, verb: Verb, options: OrderOptions) -> anyhow::Result<ExitCode> {
    let OrderOptions { id, reason, form } = options;
    let body = json!({ "reason": reason });
    each(id, form, async |id| told(admin.post(&[of, id, verb.name], &body).await.context(verb.not_done)?))
        .await
}

/// `sagactl dlq settle` and `unsettle`.
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

#[derive(Debug, Deserialize)]
struct Saga {
    id: String,
    status: String,
    settled: Option<Settled>,
}

#[derive(Debug, Deserialize)]
struct Settled {
    accepted: Vec<Accepted>,
}

#[derive(Debug, Deserialize)]
struct Accepted {
    rule: String,
    detail: String,
    difference: Option<String>,
}

/// What became of a saga, and what the audit accepts of it.
fn told(saga: Value) -> anyhow::Result<Done> {
    let Saga { id, status, settled } = read(saga.clone())?;
    let accepted = settled.into_iter().flat_map(|settled| settled.accepted);
    let lines = accepted.map(|Accepted { rule, detail, difference }| {
        let by = difference.map(|by| format!("; difference {by}")).unwrap_or_default();
        format!("\n  accepted: {rule}: {}{by}", plain(&detail))
    });
    Ok(Done { told: format!("{id} is {status}{}", lines.collect::<String>()), answer: saga })
}

/// What is accepted, in words: of a payment `OPEN` says that it waits for the bank, and not where the money is.
fn plain(detail: &str) -> String {
    detail.replacen("payment OPEN", "payment OPEN (it asked the bank for something, and has no answer)", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_settles_a_saga_is_told_what_the_audit_accepts_from_then_on() {
        let open = "payment OPEN, 1 charges captured at the bank";
        let saga = json!({"id": "7", "status": "SETTLED", "settled": {"operator": "ada", "accepted": [
            {"rule": "cancelled = money back", "detail": open, "difference": "33.00 EUR"},
            {"rule": "cancelled = stock back", "detail": "reservation RESERVED"},
        ]}});
        assert_eq!(
            told(saga).expect("a saga").told,
            "7 is SETTLED\n  accepted: cancelled = money back: payment OPEN (it asked the bank for something, and has no \
             answer), 1 charges captured at the bank; difference 33.00 EUR\n  accepted: cancelled = stock back: \
             reservation RESERVED"
        );
        let open = json!({"id": "7", "status": "FAILED"});
        assert_eq!(told(open).expect("a saga").told, "7 is FAILED");
    }
}
