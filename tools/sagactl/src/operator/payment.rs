//! Shell: `sagactl payment`: the payment of an order; manual resolution of its open call to the bank.

use std::process::ExitCode;

use admin_api::payments::PaymentDetail;
use admin_api::records::RecordedEvent;
use clap::Subcommand;
use cli::table::{Column, left, removable, table, truncatable};
use cli::text::{fields, one_line, wrapped};
use cli::time::clock;
use cli::view::View;
use contract::bank::ChargeView;
use serde_json::Value;
use uuid::Uuid;

use super::dead_letter::change::{RESOLVE, WITHDRAW_RESOLUTION};
use super::resolution::{self, OrderOptions};
use super::saga::resolution_text;
use crate::admin::{Admin, Form, show};
use crate::args;

#[derive(Debug, Subcommand)]
pub enum PaymentCommand {
    /// Show the payment of an order: state, history, charge at the bank, and the dead letters that block it
    Show {
        /// Id of the order, or of the payment.
        #[arg(value_parser = args::id)]
        id: Uuid,
        #[command(flatten)]
        form: Form,
    },
    /// Resolve an open call to the bank manually (a refund, a reversal): payment stops calling, and the saga is resolved.
    /// Rejected without an open call
    Resolve(OrderOptions),
    /// Withdraw the resolution: payment calls the bank again
    #[command(mut_arg("reason", |reason| reason.help("Reason, for the audit log")))]
    WithdrawResolution(OrderOptions),
}

pub async fn run(admin: &Admin, command: PaymentCommand) -> anyhow::Result<ExitCode> {
    match command {
        PaymentCommand::Show { id, form } => {
            let payment: PaymentDetail = admin.get(&["payments", &id.to_string()], &()).await?;
            show(&payment, form, detail_text)
        }
        PaymentCommand::Resolve(options) => resolution::change(admin, "payments", RESOLVE, options).await,
        PaymentCommand::WithdrawResolution(options) => {
            resolution::change(admin, "payments", WITHDRAW_RESOLUTION, options).await
        }
    }
}

const HISTORY: [Column<RecordedEvent>; 3] = [
    left("at", |entry| clock(entry.at)),
    left("event", |entry| entry.event.clone()),
    removable(1, truncatable(left("what happened", event_text))),
];

/// Describes an event in words.
fn event_text(RecordedEvent { event, data, .. }: &RecordedEvent) -> String {
    let member = data.get(event).unwrap_or(data);
    let word = one_line(member).replace('_', " ");
    match event.as_str() {
        "Requested" => request_text(member),
        "Expired" if member["may_be_sent"] == true => {
            "the deadline passed, and the charge may have been sent".to_owned()
        }
        "Expired" => "the deadline passed before the charge was sent".to_owned(),
        "Doomed" => "the order was cancelled while the bank may have been called".to_owned(),
        "ClosureRequested" => {
            "the bank is asked for the outcome of a charge that may be forgotten".to_owned()
        }
        "Voided" => "nothing is captured, now or later".to_owned(),
        "ReversalRequested" => "the charge is not needed any more, and is to be reversed".to_owned(),
        "Captured" => format!("the bank captured the money as {}", one_line(member)),
        "Refused" => format!("the bank refused it: {word}"),
        "GivenUp" => "no attempt got a clear answer: the charge is to be reversed".to_owned(),
        "Reversed" => "the charge is reversed".to_owned(),
        "RefundRequested" => format!("a refund was requested: {word}"),
        "Refunded" => "the bank refunded the money".to_owned(),
        "ResolvedManually" => "an operator resolved the open call manually".to_owned(),
        "ResolutionWithdrawn" => "an operator withdrew the resolution".to_owned(),
        "CallAbandoned" => "the open call ended without being made".to_owned(),
        _ => one_line(member),
    }
}

/// Describes a request for a charge with its amount and customer.
fn request_text(context: &Value) -> String {
    let member =
        |name: &str, before: &str| context.get(name).map(|value| format!("{before}{}", one_line(value)));
    let (total, customer) = (member("total", " of "), member("customer", " for "));
    format!("a charge{}{} was requested", total.unwrap_or_default(), customer.unwrap_or_default())
}

fn detail_text(detail: &PaymentDetail, view: &View) -> String {
    let payment = &detail.payment;
    let blocked = match detail.dead_letters.as_slice() {
        [] => None,
        letters => {
            let one = |letter: &contract::saga_fact::DeadLetterRef| {
                format!(
                    "{} at {}: sagactl dlq replay {}",
                    letter.dead_letter, letter.step, letter.dead_letter
                )
            };
            Some(letters.iter().map(one).collect::<Vec<_>>().join("; "))
        }
    };
    let status = match blocked {
        Some(_) => format!("{}, blocked by a dead letter", payment.status),
        None => payment.status.clone(),
    };
    let head = wrapped(
        &fields(&[
            ("status", Some(status)),
            ("order", Some(payment.order.to_string())),
            ("customer", payment.customer.clone()),
            ("amount", payment.amount.as_ref().map(ToString::to_string)),
            ("failure", payment.failure.map(|failure| failure.as_str().to_owned())),
            ("at the bank", Some(charge_text(detail))),
            (
                "resolved manually",
                detail.manual_resolution.as_ref().map(|resolution| resolution_text(resolution, view)),
            ),
            ("dead letters", blocked),
        ]),
        view.width,
    );
    format!("payment {}\n{head}\n{}\n", payment.id, table(&HISTORY, &detail.history, view))
}

fn charge_text(detail: &PaymentDetail) -> String {
    match (&detail.charge, &detail.bank_problem) {
        (_, Some(problem)) => format!("unknown: {problem}"),
        (None, None) => format!("no charge with the key {}", detail.payment.id),
        (Some(ChargeView { id, status, amount, .. }), None) => {
            let amount = amount.as_ref().map(|amount| format!(", {amount}")).unwrap_or_default();
            format!("{status} as {id}{amount}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn payment_is_shown_with_charge_dead_letters_and_history() {
        let mut detail = json!({
            "id": "01890000-0000-7000-8000-00000000000a", "order": "01890000-0000-7000-8000-000000000001",
            "status": "REFUNDING", "customer": "ada", "amount": {"amount_minor": 3_798, "currency": "EUR"},
            "bank_reference": "ch_1",
            "charge": {"id": "ch_1", "status": "CAPTURED", "amount": {"amount_minor": 3_798, "currency": "EUR"}},
            "dead_letters": [{"dead_letter": "01890000-0000-7000-8000-00000000000b", "step": "bank-refund"}],
            "history": [
                {"at": "2026-11-20T14:18:36Z", "event": "Requested", "data": {"Requested": {"customer": "ada"}}},
                {"at": "2026-11-20T14:18:37Z", "event": "Captured", "data": {"Captured": "ch_1"}},
            ],
        });
        let text = |detail: &serde_json::Value| {
            detail_text(&from_value(detail.clone()).expect("a payment"), &View::FILE)
        };
        insta::assert_snapshot!("payment_show", text(&detail));
        for (event, data, wanted) in [
            ("Doomed", json!("Doomed"), "the order was cancelled while the bank may have been called"),
            ("Refused", json!({"Refused": "insufficient_funds"}), "the bank refused it: insufficient funds"),
            (
                "RefundRequested",
                json!({"RefundRequested": "order_cancelled"}),
                "a refund was requested: order cancelled",
            ),
            (
                "Requested",
                json!({"Requested": {"customer": "ada", "total": {"amount_minor": 1_899, "currency": "EUR"}}}),
                "a charge of 18.99 EUR for ada was requested",
            ),
            ("New", json!({"New": {"a": 1}}), "a 1"),
        ] {
            let entry = json!({"at": "2026-11-20T14:18:36Z", "event": event, "data": data});
            detail["history"][1] = entry;
            assert!(text(&detail).contains(wanted), "{}", text(&detail));
        }
        detail["dead_letters"] = json!([]);
        detail["manual_resolution"] = json!({
            "operator": "nina", "reason": "cheque 4711", "at": "2026-11-20T14:19:00Z",
            "was": "COMPENSATION_STUCK", "accepted": [], "revision": 1,
        });
        assert!(text(&detail).contains("by nina at 2026-11-20 14:19:00Z: cheque 4711"), "{}", text(&detail));
        detail["charge"].take();
        assert!(text(&detail).contains("no charge with the key 01890000-0000-7000-8000-00000000000a"));
        detail["bank_problem"] = "bank does not answer".into();
        assert!(text(&detail).contains("unknown: bank does not answer"));
    }
}
