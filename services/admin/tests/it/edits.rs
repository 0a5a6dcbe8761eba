//! Shell: edits of messages in an old version, or that cannot be read.

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

#[tokio::test]
async fn edited_data_has_the_current_version() {
    let admin = AdminHarness::new().await;
    let (dead, before) = editable();
    let newer = with(&before, "version", json!(9)).to_string();
    let dead = DeadLettered { payload_base64: BASE64.encode(newer), ..dead };
    admin.receives(&announced(&dead)).await;
    let request = json!({"data": before["data"], "reason": "as we know it"});
    admin.post(&format!("/dlq/{}/edit", dead.id), &request, 202).await;
    let (_, envelope) = edited(&admin).await;
    assert_eq!(json!(envelope.version), before["version"]);
}

/// Revisions restart with a new database, so that an id without the content would repeat.
#[tokio::test]
async fn different_edits_have_different_ids_after_loss_of_the_database() {
    let (dead, before) = editable();
    let mut ids = vec![];
    for reason in ["operator", "customer_request"] {
        let admin = AdminHarness::new().await;
        admin.receives(&announced(&dead)).await;
        let data = with(&before["data"], "reason", json!(reason));
        let request = json!({"data": data, "reason": "as we know it"});
        admin.post(&format!("/dlq/{}/edit", dead.id), &request, 202).await;
        ids.push(edited(&admin).await.0);
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn edit_of_unreadable_message_must_keep_its_order() {
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

#[tokio::test]
async fn card_token_in_truncated_message_is_hidden_in_preview_and_audit_log() {
    let admin = AdminHarness::new().await;
    let (dead, before) = editable();
    let half = r#"{"data": {"payment": {"token": "tok_4711", "order"#;
    let dead = DeadLettered { payload_base64: BASE64.encode(half), saga: Some(ORDER), ..dead };
    admin.receives(&announced(&dead)).await;
    let path = format!("/dlq/{}/edit", dead.id);
    let request = json!({"payload": before, "reason": "from the log"});
    let preview = admin.post(&path, &with(&request, "preview", json!(true)), 200).await;
    let dead_lettered = preview["changes"][0]["before"].as_str().expect("a text");
    assert_eq!(dead_lettered, half.replace("tok_4711", "***"));
    let done = admin.post(&path, &request, 202).await;
    let log = admin.get("/audit").await;
    for published in [preview, done, log] {
        assert!(!published.to_string().contains("tok_4711"), "{published}");
    }
}
