//! Pure: the saga view, resolutions, the audit log and notifications, through the policy.

use std::collections::BTreeSet;

use admin::audit_log::AuditEntry;
use admin::commands::CommandKind;
use admin::dead_letters::view::DeadLetterView;
use admin::ledgers::state::{RECONCILIATION_STATE, ReconciliationState};
use admin::notifications::settings::NotificationSettings;
use admin::notifications::state::{NOTIFICATION_STATE, NotificationCommand, NotificationState, Observation};
use admin::resolution::{Direction, Resolution, Target};
use admin::service::{AdminMessage, AdminService};
use admin_api::actor::Actor;
use admin_api::audit_log::{Action, Entry};
use admin_api::reconciliation::{ReconciliationSummary, Verdict};
use contract::Fact;
use contract::manual_resolution::Accepted;
use contract::order::CancelReason;
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
use jiff::SignedDuration;
use saga_core::dead_letter::{DeadLetterStatus, DeadLettered};
use saga_core::decider::{Decider as _, FieldValue};
use saga_core::message::Message as _;
use saga_engine::testing::service_under_test::Stimulus;
use saga_engine::testing::{NOON, consumed_facts};
use uuid::Uuid;

use crate::notification_state::finding;

use crate::given::{
    Admin, ORDER, all_types, announced, asks, cancelled, command_id, dead_refund, deadline, entry, fact,
    status, total, with_a_dead_letter,
};

#[test]
fn completed_saga_has_no_remaining_step() {
    let mut admin = Admin::of(AdminService);
    for (received, next) in [
        ("OrderCreated", Some("inventory-stock-reservation")),
        ("StockReserved", Some("payment-processing")),
        ("PaymentProcessed", Some("order-confirmation")),
        ("OrderConfirmed", None),
    ] {
        admin.receives(fact(received, ORDER)).records(&[received]).publishes([]);
        let owed = admin.row::<SagaView>(ORDER).remaining().into_iter().next();
        assert_eq!(owed.map(|owed| owed.step).as_deref(), next, "after {received}");
    }
    let view: SagaView = admin.row(ORDER);
    assert_eq!(
        (view.status(), view.total, view.deadline),
        (SagaStatus::Completed, Some(total()), Some(deadline()))
    );
}

#[test]
fn saga_is_compensated_after_all_answers_in_any_order() {
    let mut admin = Admin::of(AdminService);
    let mut status_after = |received: AdminMessage| {
        admin.receives(received).has_outcome("done");
        admin.row::<SagaView>(ORDER).status()
    };
    status_after(fact("OrderCreated", ORDER));
    status_after(fact("StockReserved", ORDER));
    assert_eq!(status_after(cancelled(ORDER, CancelReason::TimedOut)), SagaStatus::TimedOut);
    assert_eq!(status_after(fact("StockReleased", ORDER)), SagaStatus::Compensating);
    assert_eq!(status_after(fact("PaymentProcessed", ORDER)), SagaStatus::Compensating);
    assert_eq!(status_after(fact("PaymentRefunded", ORDER)), SagaStatus::Compensated);
}

#[test]
fn saga_with_dead_lettered_compensation_is_stuck() {
    let mut admin = Admin::of(AdminService);
    for received in ["OrderCreated", "StockReserved", "PaymentProcessed"] {
        admin.receives(fact(received, ORDER));
    }
    admin.receives(cancelled(ORDER, CancelReason::CustomerRequest));
    let dead_lettered = admin.receives(announced(&dead_refund(0)));
    dead_lettered.records(&["DeadLettered", "DeadLettered"]).publishes([]);
    assert_eq!(admin.row::<SagaView>(ORDER).status(), SagaStatus::CompensationStuck);
}

#[test]
fn change_by_operator_at_a_service_is_in_the_audit_log_once() {
    for (name, action, target) in [
        ("ProductChangeAudited", Action::ProductRestock, "mug".to_owned()),
        ("RefundAudited", Action::PaymentRefund, ORDER.to_string()),
    ] {
        let mut admin = Admin::of(AdminService);
        admin.receives(fact(name, ORDER)).records(&["Written"]).publishes([]);
        let entries = admin.store.rows.keys().filter(|key| key.kind == AuditEntry::KIND);
        let ids: Vec<_> = entries.map(|key| key.id.clone()).collect();
        let [id] = ids.as_slice() else { panic!("{ids:?}") };
        let entry = admin.row::<AuditEntry>(id).0.expect("a written entry");
        assert_eq!((entry.by.operator.as_str(), entry.action), ("oscar", action));
        assert_eq!((entry.target.clone(), entry.outcome.as_str()), (target, "done"));
        admin.receives(fact(name, ORDER)).changes_nothing();
    }
}

#[test]
fn saga_with_replayed_compensation_is_not_stuck() {
    let mut admin = Admin::of(AdminService);
    for received in ["OrderCreated", "StockReserved", "PaymentProcessed"] {
        admin.receives(fact(received, ORDER));
    }
    admin.receives(cancelled(ORDER, CancelReason::CustomerRequest));
    admin.receives(fact("DeadLettered", ORDER));
    admin.receives(fact("DeadLetterResolved", ORDER)).records(&["DeadLetterResolved", "Resolved"]);
    assert_eq!(admin.row::<SagaView>(ORDER).status(), SagaStatus::Compensating);
    assert_eq!(status(&admin), Some(DeadLetterStatus::Resolved));
}

#[test]
fn resolution_of_dead_letter_leaves_saga_with_a_newer_dead_letter_open() {
    let (mut admin, dead) = with_a_dead_letter();
    let later = DeadLettered { id: Uuid::from_u128(9), message_id: Uuid::from_u128(8), ..dead.clone() };
    admin.receives(announced(&later));
    let rule = "cancelled = money back".to_owned();
    let accepted = vec![Accepted { rule, detail: "payment OPEN".to_owned(), difference: None }];
    let settle = |named: Uuid, seen: &[Uuid]| {
        let along = vec![Target::Saga(ORDER, accepted.clone())];
        let blocking = seen.iter().copied().collect();
        CommandKind::Resolve(
            Direction::Resolve,
            Resolution { target: Target::DeadLetter(named), along, blocking },
        )
    };
    admin.executes(asks(1, settle(dead.id, &[dead.id]))).has_outcome("done");
    assert_eq!(status(&admin), Some(DeadLetterStatus::ResolvedManually));
    assert_eq!(admin.row::<SagaView>(ORDER).manual_resolution, None);
    let detail = admin.row::<AuditEntry>(command_id(1)).0.expect("an entry").detail;
    assert_eq!(detail, Some(serde_json::json!({"saga": ORDER})));
    admin.executes(asks(2, settle(later.id, &[dead.id, later.id]))).has_outcome("done");
    assert_eq!(admin.row::<SagaView>(ORDER).manual_resolution.expect("it is settled").accepted, accepted);
}

/// Payment ignores older revisions, and admin may have lost its database.
#[test]
fn revision_of_resolution_grows_after_loss_of_database_and_clock_change() {
    let rule = "cancelled = money back".to_owned();
    let accepted = vec![Accepted { rule, detail: "payment OPEN".to_owned(), difference: None }];
    let request = |admin: &mut Admin, settling: Direction| {
        let case =
            Resolution { target: Target::Saga(ORDER, accepted.clone()), along: vec![], blocking: [].into() };
        admin.executes(asks(1, CommandKind::Resolve(settling, case))).has_outcome("done");
        let messages = admin.published().into_iter().filter_map(|messages| match messages {
            AdminMessage::Fact(Fact::ManualResolutionRequested(request)) => Some(request.revision),
            AdminMessage::Fact(_) | AdminMessage::DeadLetter(_) => None,
        });
        messages.max().expect("payment is told")
    };
    let mut received = 0;
    for minutes in [0, 1] {
        let mut admin = with_a_dead_letter().0;
        admin.now = NOON + SignedDuration::from_mins(minutes);
        for settling in [Direction::Resolve, Direction::Withdraw, Direction::Resolve] {
            let revision = request(&mut admin, settling);
            assert!(revision > received, "{settling:?} is {revision}, after {received}");
            received = revision;
            admin.now -= SignedDuration::from_secs(1);
        }
    }
}

#[test]
fn audit_entry_is_written_once_and_closed_once() {
    let mut admin = Admin::of(AdminService);
    let (action, target) = (Action::BreakerOpen, "payment/bank".to_owned());
    admin.executes(asks(1, CommandKind::OpenEntry { action, target, detail: None })).records(&["Written"]);
    assert_eq!(entry(&admin, 1).4, "asked");
    let end = |outcome: &str| CommandKind::CloseEntry(command_id(1), outcome.to_owned());
    admin.executes(asks(2, end("there is no breaker bank"))).records(&["Ended"]);
    admin.executes(asks(3, end("done"))).changes_nothing();
    assert_eq!(entry(&admin, 1).4, "there is no breaker bank");
}

#[test]
fn entry_that_was_recorded_elsewhere_is_written_and_closed_once() {
    let mut admin = Admin::of(AdminService);
    let record = |action, outcome: &str| {
        let by = Actor { operator: "ada".to_owned(), reason: None };
        let (target, outcome) = ("bank".to_owned(), outcome.to_owned());
        CommandKind::RecordEntry(Entry { at: deadline(), by, action, target, detail: None, outcome })
    };
    admin.executes(asks(1, record(Action::ProcessStop, "asked"))).records(&["Written"]);
    admin.executes(asks(1, record(Action::ProcessStop, "asked"))).changes_nothing();
    admin.executes(asks(1, record(Action::ProcessKill, "done"))).changes_nothing();
    admin.executes(asks(1, record(Action::ProcessStop, "done"))).records(&["Ended"]);
    admin.executes(asks(1, record(Action::ProcessStop, "done"))).changes_nothing();
    assert_eq!(entry(&admin, 1).4, "done");
}

#[test]
fn rows_are_indexed_by_what_operators_search() {
    let mut admin = Admin::of(AdminService);
    admin.receives(fact("OrderCreated", ORDER));
    let fields = admin.row::<SagaView>(ORDER).fields(&ORDER.to_string());
    let wanted = [
        ("status", "STARTED".into()),
        ("next_step", "inventory-stock-reservation".into()),
        ("customer", "ada".into()),
        ("deadline", deadline().as_microsecond().into()),
        ("finished", 0.into()),
    ];
    let named = |names: &[&'static str], fields: Vec<FieldValue>| {
        names.iter().copied().zip(fields).collect::<Vec<_>>()
    };
    assert_eq!(named(SagaView::FIELDS, fields), wanted);

    let (mut admin, dead) = with_a_dead_letter();
    admin.executes(asks(1, CommandKind::Discard(dead.id)));
    let wanted = [
        ("status", "DISCARDED".into()),
        ("service", "payment".into()),
        ("step", "payment-refund".into()),
        ("type", "OrderCancelled".into()),
        ("fingerprint", "f1".into()),
        ("saga", FieldValue::Text(ORDER.to_string())),
        ("failed_at", dead.last_failed_at.as_microsecond().into()),
        ("replays", 0.into()),
        ("redrive", FieldValue::Null),
    ];
    assert_eq!(named(DeadLetterView::FIELDS, admin.row::<DeadLetterView>(dead.id).fields("1")), wanted);
}

#[test]
fn every_saga_fact_is_consumed_and_stored() {
    // What operators wish is admin's own word: what comes of it the services say.
    let own = ["DeadlineExtensionRequested", "ManualResolutionRequested"];
    let is_consumed = |name: &&str| fact(name, ORDER).saga().is_some() && !own.contains(name);
    let of_sagas = all_types().filter(is_consumed);
    // Of which saga it was, nobody knows any more. The others are for the audit log.
    let others = ["DeadLetterForgotten", "ProductChangeAudited", "RefundAudited"];
    let received = of_sagas.clone().chain(others).collect::<BTreeSet<_>>();
    assert_eq!(received, consumed_facts::<AdminService>());
    for received in of_sagas {
        let mut admin = Admin::of(AdminService);
        admin.receives(fact(received, ORDER)).has_outcome("done");
        admin.receives(fact(received, ORDER)).has_outcome("done").changes_nothing();
        assert!(admin.row::<SagaView>(ORDER).facts.contains_key(received), "{received}");
    }
}

/// Otherwise it would block all later notifications.
#[test]
fn unreadable_notification_is_given_up_and_reported_again() {
    let mut admin = Admin::of(AdminService);
    let seen = Observation { findings: vec![finding("fire")], ..Observation::default() };
    let command = asks(
        1,
        CommandKind::Notify(NotificationCommand::Observe(seen, NotificationSettings::default().intervals())),
    );
    let (id, saga) = (command.id, command.correlation_id());
    admin.takes(Stimulus::Command { id, saga, command, key: None });
    let task = admin.open_task();
    admin.store.tasks.get_mut(&task.id).expect("it is open").payload = "{".to_owned();
    admin
        .call_fails_finally(&task, "the task has no valid notification")
        .has_outcome("done")
        .records(&["GivenUp"]);
    let state = admin.row::<NotificationState>(NOTIFICATION_STATE);
    assert_eq!(state.in_flight(), None);
    assert!(state.open()["fire"].notified_at().is_none(), "it is to be reported again");
    let given_up = state.recent().next().and_then(|sent| sent.given_up.as_ref());
    assert!(given_up.is_some_and(|why| why.contains("the task has no valid notification")), "{state:?}");
}

#[test]
fn unbalanced_result_stays_until_a_conclusive_reconciliation() {
    let mut admin = Admin::of(AdminService);
    let look = |verdict, second| {
        let at = NOON + SignedDuration::from_secs(second);
        asks(
            1,
            CommandKind::Reconciled {
                result: ReconciliationSummary { verdict, at, discrepancies: 1, resolved_to_check: 0 },
                invalidated: 0,
                unanswered: None,
                checkpoint: None,
            },
        )
    };
    admin.executes(look(Verdict::InFlight, 1)).records(&["Recorded"]);
    admin.executes(look(Verdict::Unbalanced, 2)).records(&["Recorded"]);
    admin.executes(look(Verdict::InFlight, 3)).changes_nothing();
    admin.executes(look(Verdict::Unbalanced, 4)).records(&["Recorded"]);
    admin.executes(look(Verdict::Balanced, 5)).records(&["Recorded"]);
    admin.executes(look(Verdict::InFlight, 6)).records(&["Recorded"]);
}

#[test]
fn rejected_resolution_keeps_the_last_reconciliation() {
    let mut admin = Admin::of(AdminService);
    let look = ReconciliationSummary {
        verdict: Verdict::Unbalanced,
        at: NOON,
        discrepancies: 1,
        resolved_to_check: 0,
    };
    admin
        .executes(asks(
            1,
            CommandKind::Reconciled {
                result: look.clone(),
                invalidated: 0,
                unanswered: None,
                checkpoint: None,
            },
        ))
        .records(&["Recorded"]);
    let settle_many = |named| {
        let cases = vec![Resolution { target: named, along: vec![], blocking: BTreeSet::new() }];
        CommandKind::ResolveMany { direction: Direction::Resolve, resolutions: cases, entry: command_id(9) }
    };
    let dead = dead_refund(0);
    admin.executes(asks(2, settle_many(Target::DeadLetter(dead.id)))).has_outcome("done");
    assert_eq!(
        admin.row::<ReconciliationState>(RECONCILIATION_STATE),
        ReconciliationState { last: Some(look), ..ReconciliationState::default() },
        "there is none yet"
    );
    admin.receives(announced(&dead)).has_outcome("done");
    admin.executes(asks(3, settle_many(Target::DeadLetter(dead.id)))).has_outcome("done");
    assert_eq!(
        admin.row::<ReconciliationState>(RECONCILIATION_STATE),
        ReconciliationState { invalidated: 1, ..ReconciliationState::default() }
    );
}
