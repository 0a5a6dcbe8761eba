//! Shell: full verification of a running system whose databases were corrupted.

use uuid::Uuid;

use crate::system::System;

/// Runs statements in which `$id` is the order. Each must change something.
fn by_hand(system: &System, service: &str, statements: &str, order: &str) {
    let conn = system.database(service);
    for sql in statements.split(';').map(str::trim).filter(|sql| !sql.is_empty()) {
        let sql = sql.replace("$id", order);
        assert!(conn.execute(&sql, []).expect(&sql) > 0, "{sql} changed nothing");
    }
}

/// Repeats an event of a row.
const TWICE_AT_THE_BANK: &str = "
    INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, is_published)
        SELECT kind, row_id, version + 1, name, data, causation_id, recorded_at, is_published FROM event
        WHERE kind = 'charge' AND row_id = (SELECT id FROM row_charge WHERE reference = '$id');
    UPDATE row_charge SET version = version + 1 WHERE reference = '$id'";
const TWICE_AT_PAYMENT: &str = "
    INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, is_published)
        SELECT kind, row_id, version + 1, name, data, causation_id, recorded_at, is_published FROM event
        WHERE kind = 'payment' AND row_id = '$id' AND name = 'Captured';
    UPDATE row_payment SET version = version + 1 WHERE id = '$id'";

type Corruption = (&'static str, &'static [(&'static str, &'static str)]);

/// Corruptions, by service and statements. Rows stay the fold of their events where the name says so.
const CORRUPTIONS: &[Corruption] = &[
    ("captured twice, both at the bank and at payment", &[("bank", TWICE_AT_THE_BANK), ("payment", TWICE_AT_PAYMENT)]),
    ("captured twice at the bank", &[("bank", TWICE_AT_THE_BANK)]),
    ("captured twice at payment", &[("payment", TWICE_AT_PAYMENT)]),
    ("charge gone with its events", &[("bank", "
        DELETE FROM event WHERE kind = 'charge' AND row_id = (SELECT id FROM row_charge WHERE reference = '$id');
        DELETE FROM row_charge WHERE reference = '$id'")]),
    ("a cent less at the bank, events too", &[("bank", "
        UPDATE event SET data = replace(data, ':1000', ':999') WHERE kind = 'charge'
            AND row_id = (SELECT id FROM row_charge WHERE reference = '$id');
        UPDATE row_charge SET state = replace(state, ':1000', ':999') WHERE reference = '$id'")]),
    ("a cent less at payment, events too", &[("payment", "
        UPDATE event SET data = replace(data, ':1000', ':999') WHERE kind = 'payment' AND row_id = '$id' AND version = 1;
        UPDATE row_payment SET state = replace(state, ':1000', ':999') WHERE id = '$id'")]),
    ("a cent less at both, events too", &[
        ("bank", "
        UPDATE event SET data = replace(data, ':1000', ':999') WHERE kind = 'charge'
            AND row_id = (SELECT id FROM row_charge WHERE reference = '$id');
        UPDATE row_charge SET state = replace(state, ':1000', ':999') WHERE reference = '$id'"),
        ("payment", "
        UPDATE event SET data = replace(data, ':1000', ':999') WHERE kind = 'payment' AND row_id = '$id' AND version = 1;
        UPDATE row_payment SET state = replace(state, ':1000', ':999') WHERE id = '$id'"),
    ]),
    ("order gone with its events", &[("order", "
        DELETE FROM event WHERE kind = 'order' AND row_id = '$id'; DELETE FROM row_order WHERE id = '$id'")]),
    ("payment gone with its events", &[("payment", "
        DELETE FROM event WHERE kind = 'payment' AND row_id = '$id'; DELETE FROM row_payment WHERE id = '$id'")]),
    ("reservation gone with its events", &[("inventory", "
        DELETE FROM event WHERE kind = 'reservation' AND row_id = '$id'; DELETE FROM row_reservation WHERE id = '$id'")]),
    ("order and payment gone, the charge stays", &[
        ("order", "DELETE FROM event WHERE kind = 'order' AND row_id = '$id'; DELETE FROM row_order WHERE id = '$id'"),
        ("payment", "DELETE FROM event WHERE kind = 'payment' AND row_id = '$id'; DELETE FROM row_payment WHERE id = '$id'"),
        ("inventory", "
        DELETE FROM event WHERE kind = 'reservation' AND row_id = '$id'; DELETE FROM row_reservation WHERE id = '$id'"),
        ("admin", "DELETE FROM event WHERE kind = 'saga' AND row_id = '$id'; DELETE FROM row_saga WHERE id = '$id'"),
    ]),
    ("view gone with its events", &[
        ("admin", "DELETE FROM event WHERE kind = 'saga' AND row_id = '$id'; DELETE FROM row_saga WHERE id = '$id'"),
    ]),
    ("another customer at payment, events too", &[("payment", "
        UPDATE event SET data = replace(data, '\"ada\"', '\"eve\"') WHERE kind = 'payment' AND row_id = '$id' AND version = 1;
        UPDATE row_payment SET state = replace(state, '\"ada\"', '\"eve\"') WHERE id = '$id'")]),
];

/// Corruptions of rows alone, which their events reveal.
const ROW_CORRUPTIONS: &[Corruption] = &[
    ("order/", &[("order", "DELETE FROM row_order WHERE id = '$id'")]),
    ("payment/", &[("payment", "UPDATE row_payment SET updated_at = updated_at + 1 WHERE id = '$id'")]),
    ("saga/", &[("admin", "UPDATE row_saga SET state = replace(state, 'ada', 'eve') WHERE id = '$id'")]),
    (
        "reservation/",
        &[("inventory", "DELETE FROM event WHERE kind = 'reservation' AND row_id = '$id' AND version = 1")],
    ),
    (
        "order: 1 rows without events",
        &[("order", "DELETE FROM event WHERE kind = 'order' AND row_id = '$id'")],
    ),
];

#[tokio::test]
async fn full_verification_reports_each_corruption() {
    let system = System::start(&[]);
    system.list("pen", 1_000).await;
    let mut orders = Vec::new();
    for _ in 0..CORRUPTIONS.len() + ROW_CORRUPTIONS.len() {
        let order = system.order(&[("pen", 1)], "tok_ok").await;
        orders.push(order["id"].as_str().expect("an id").to_owned());
    }
    let back = system.order(&[("pen", 1)], "tok_ok").await;
    let back = back["id"].as_str().expect("an id").to_owned();
    let cancelled =
        system.post("order", &format!("/api/orders/{back}/cancel")).send().await.expect("an answer");
    assert!(cancelled.status().is_success());
    system.assert_reconciled().await;
    for ((_, corrupted), order) in CORRUPTIONS.iter().chain(ROW_CORRUPTIONS).zip(&orders) {
        for (service, statements) in *corrupted {
            by_hand(&system, service, statements, order);
        }
    }
    by_hand(&system, "bank", "
        UPDATE row_charge SET status = 'CAPTURED', version = 1, state = replace(state, 'Refunded', 'Captured'),
            updated_at = created_at WHERE reference = '$id';
        DELETE FROM event WHERE version = 2 AND row_id = (SELECT id FROM row_charge WHERE reference = '$id')", &back);
    let stray = Uuid::now_v7().to_string();
    system.charge(&stray).await;

    let report = system.get("admin", "/api/admin/reconciliation?wait=20&full=true").await;
    let found = report["discrepancies"].as_array().expect("a list");
    let names = CORRUPTIONS
        .iter()
        .map(|(name, _)| *name)
        .chain(["refund gone with its event", "charge without order"]);
    let corrupted = names.zip(orders[..CORRUPTIONS.len()].iter().chain([&back, &stray]).cloned());
    let rows = ROW_CORRUPTIONS.iter().zip(&orders[CORRUPTIONS.len()..]).map(|((name, _), order)| match name
        .ends_with('/')
    {
        true => (*name, format!("{name}{order}")),
        false => (*name, (*name).to_owned()),
    });
    let is_reported = |wanted: &str| {
        found.iter().any(|found| {
            found["subject"] == wanted
                || found["detail"].as_str().is_some_and(|detail| detail.contains(wanted))
        })
    };
    let missed: Vec<_> = corrupted.chain(rows).filter(|(_, wanted)| !is_reported(wanted)).collect();
    assert!(missed.is_empty(), "{missed:?} in {report:#}");
}

#[tokio::test]
async fn double_capture_is_unbalanced_although_both_ledgers_agree() {
    let system = System::start(&[]);
    system.list("pen", 1_000).await;
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    let order = order["id"].as_str().expect("an id");
    system.assert_reconciled().await;
    by_hand(&system, "bank", TWICE_AT_THE_BANK, order);
    by_hand(&system, "payment", TWICE_AT_PAYMENT, order);
    let report = system.get("admin", "/api/admin/reconciliation?wait=10&full=true").await;
    assert_eq!(report["verdict"], "UNBALANCED", "{report:#}");
}
