//! Shell: a redrive of dead letters with edits in flight.

use admin::commands::{Command, CommandKind};
use admin::dead_letters::events::Replay;
use saga_core::dead_letter::{DeadLettered, EditedMessage};
use saga_core::input::Input;
use serde_json::json;
use uuid::Uuid;

use crate::given::{announced, by_ada};
use crate::redrives::{admin_with, numbers, started};
use crate::routes::numbered;

/// The oldest dead letters, more than one page, have edits in flight that their service has not received.
#[tokio::test]
async fn pending_edits_do_not_block_a_redrive() {
    let (admin, services) = admin_with(40).await;
    let ask = async |id: Uuid, replay: Replay| {
        let command = Command { id: Uuid::now_v7(), by: by_ada(), kind: CommandKind::Replay(id, replay) };
        let input = Input::command(command.id, id, command, None);
        admin.app.engine.process(input).await.expect("the store works");
    };
    let oldest: Vec<DeadLettered> = (0..20).map(numbered).collect();
    for (number, dead) in (9..).zip(&oldest) {
        ask(dead.id, Replay::default()).await;
        let edited = EditedMessage { message_id: Uuid::from_u128(number), payload_base64: String::new() };
        ask(dead.id, Replay { force: true, edited: Some(edited), ..Replay::default() }).await;
        let last_failed_at = dead.last_failed_at + jiff::SignedDuration::from_millis(1);
        admin.receives(&announced(&DeadLettered { replays: 1, last_failed_at, ..dead.clone() })).await;
        assert_eq!(admin.get(&format!("/dlq/{}", dead.id)).await["status"], "PENDING");
    }
    assert_eq!(admin.publishes().await.len(), 40);

    // Their service does not answer for now; the others wait, in no need of it.
    let redrive = started(&admin, json!({"canary": 1})).await;
    let sent = admin.publishes_at_least(1).await;
    let sent = services.requested(&sent[0]).expect("a dead letter").id;
    assert!(oldest.iter().all(|dead| dead.id != sent));
    let shown = admin.get(&format!("/dlq/redrive/{redrive}")).await;
    assert_eq!((&shown["status"], numbers(&shown)[1]), (&json!("CANARY"), 1), "{shown}");
}
