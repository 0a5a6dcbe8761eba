//! An edit under way, of which the redrive cannot send the dead letter.

use admin::commands::{Command, CommandKind};
use admin::dead_letter::events::Replay;
use saga_core::dead_letter::{DeadLettered, EditedMessage};
use saga_core::input::Input;
use serde_json::json;
use uuid::Uuid;

use crate::given::{announced, by_ada};
use crate::redrives::{admin_with, started};
use crate::routes::numbered;

/// The oldest was handed back, and then edited by force; the first replay of it failed before the edit was heard.
#[tokio::test]
async fn a_dead_letter_with_an_edit_under_way_keeps_no_other_from_being_sent() {
    let (admin, services) = admin_with(9).await;
    let oldest = numbered(0);
    let ask = async |replay: Replay| {
        let command =
            Command { id: Uuid::now_v7(), by: by_ada(), kind: CommandKind::Replay(oldest.id, replay) };
        let input = Input::command(command.id, oldest.id, command, None);
        admin.app.engine.settle(input).await.expect("the store works");
    };
    ask(Replay::default()).await;
    let edited = EditedMessage { message_id: Uuid::from_u128(9), payload_base64: String::new() };
    ask(Replay { force: true, edited: Some(edited), ..Replay::default() }).await;
    let last_failed_at = oldest.last_failed_at + jiff::SignedDuration::from_millis(1);
    admin.hears(&announced(&DeadLettered { replays: 1, last_failed_at, ..oldest.clone() })).await;
    assert_eq!(admin.tells().await.len(), 2);
    assert_eq!(admin.get(&format!("/dlq/{}", oldest.id)).await["status"], "PENDING");

    // Its service does not answer for now; eight others wait, in no need of it.
    started(&admin, json!({"canary": 1})).await;
    let sent = admin.tells_at_least(1).await;
    assert_ne!(services.asked(&sent[0]).map(|dead| dead.id), Some(oldest.id));
}
