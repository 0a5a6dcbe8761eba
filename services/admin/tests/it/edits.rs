//! Edits of messages that this build does not read as they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use saga_core::dead_letter::DeadLettered;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::given::{ORDER, announced};
use crate::harness::AdminHarness;
use crate::routes::{editable, edited};

fn with(payload: &Value, member: &str, value: Value) -> Value {
    let mut payload = payload.clone();
    payload[member] = value;
    payload
}

/// The data is written as this build knows it, and says so.
#[tokio::test]
async fn edited_data_is_of_the_version_that_this_build_writes() {
    let admin = AdminHarness::new().await;
    let (dead, before) = editable();
    let newer = with(&before, "version", json!(9)).to_string();
    let dead = DeadLettered { payload_base64: BASE64.encode(newer), ..dead };
    admin.receives(&announced(&dead)).await;
    let asked = json!({"data": before["data"], "reason": "as we know it"});
    admin.post(&format!("/dlq/{}/edit", dead.id), &asked, 202).await;
    let (_, envelope) = edited(&admin).await;
    assert_eq!(json!(envelope.version), before["version"]);
}

/// A defect: admin lost its database, counts from the beginning again, and its service took what is asked now for what
/// it had heard long ago.
#[tokio::test]
async fn another_edit_is_another_message_though_admins_database_was_lost() {
    let (dead, before) = editable();
    let mut ids = vec![];
    for reason in ["operator", "customer_request"] {
        let admin = AdminHarness::new().await;
        admin.receives(&announced(&dead)).await;
        let data = with(&before["data"], "reason", json!(reason));
        let asked = json!({"data": data, "reason": "as we know it"});
        admin.post(&format!("/dlq/{}/edit", dead.id), &asked, 202).await;
        ids.push(edited(&admin).await.0);
    }
    assert_ne!(ids[0], ids[1]);
}

/// What was promised cannot be read any more, but whose it was is known.
#[tokio::test]
async fn a_message_that_cannot_be_read_is_edited_for_its_own_order_alone() {
    let admin = AdminHarness::new().await;
    let (dead, before) = editable();
    let payload_base64 = BASE64.encode("{\"half of");
    let dead = DeadLettered { payload_base64, saga: Some(ORDER), ..dead };
    admin.receives(&announced(&dead)).await;
    let path = format!("/dlq/{}/edit", dead.id);
    let of = |order: Uuid| {
        let data = with(&before["data"], "order", json!(order));
        json!({"payload": with(&before, "data", data), "reason": "from the log"})
    };
    let problem = admin.post(&path, &of(Uuid::from_u128(99)), 422).await;
    assert_eq!(problem["errors"][0]["field"], "payload.data.order", "{problem}");
    admin.post(&path, &of(ORDER), 202).await;
}

/// A message that broke off is shown as a text; the card in it is one all the same.
#[tokio::test]
async fn a_card_in_half_a_message_is_told_neither_by_a_preview_nor_by_the_audit_log() {
    let admin = AdminHarness::new().await;
    let (dead, before) = editable();
    let half = r#"{"data": {"payment": {"token": "tok_4711", "order"#;
    let dead = DeadLettered { payload_base64: BASE64.encode(half), saga: Some(ORDER), ..dead };
    admin.receives(&announced(&dead)).await;
    let path = format!("/dlq/{}/edit", dead.id);
    let asked = json!({"payload": before, "reason": "from the log"});
    let preview = admin.post(&path, &with(&asked, "preview", json!(true)), 200).await;
    let parked = preview["changes"][0]["before"].as_str().expect("a text");
    assert_eq!(parked, half.replace("tok_4711", "***"));
    let done = admin.post(&path, &asked, 202).await;
    let log = admin.get("/audit").await;
    for told in [preview, done, log] {
        assert!(!told.to_string().contains("tok_4711"), "{told}");
    }
}
