//! Log lines of inputs: one line each, with all fields, at `info` only for changes.

use saga_core::input::{CommandOutcome, Input};
use saga_engine::runtime::log_line::TARGET;
use serde_json::Value;
use uuid::Uuid;

use crate::support::{
    Depot, DepotCommand, EngineHarness, FILLING, LISTENING, Lines, UNLUCKY, arrived, id, received, shelf,
};

/// Lines about inputs since the last call.
fn take(lines: &Lines) -> Vec<Value> {
    lines.all().into_iter().filter(|line| line["target"] == TARGET).collect()
}

/// Level, step, attempt and message of each line.
fn logged(lines: &[Value]) -> Vec<(String, String, Option<u64>, String)> {
    let word = |line: &'_ Value, name: &str| line[name].as_str().unwrap_or("").to_owned();
    let of = |line: &Value| {
        (word(line, "level"), word(line, "step"), line["attempt"].as_u64(), word(line, "message"))
    };
    lines.iter().map(of).collect()
}

fn line(level: &str, step: &str, attempt: Option<u64>, lines: &str) -> (String, String, Option<u64>, String) {
    (level.to_owned(), step.to_owned(), attempt, lines.to_owned())
}

#[tokio::test]
async fn inputs_with_changes_log_at_info_and_others_at_debug() {
    let (lines, _listening) = Lines::listen();
    let harness = EngineHarness::new().await;
    let executed = harness.execute(DepotCommand::List("tea")).await;
    assert!(matches!(executed, CommandOutcome::Done(_)));
    assert_eq!(logged(&take(&lines)), [line("INFO", "command", None, "shelf Listed")]);

    let tea = |number, pieces| received(arrived(id(number), "tea", pieces));
    harness.process_together(vec![tea(1, 3), tea(1, 3), tea(2, 0), tea(3, UNLUCKY)]).await;
    let lines = take(&lines);
    let step = FILLING.name;
    let [put, expected, rejected, dead] = &logged(&lines)[..] else { panic!("{lines:#?}") };
    assert_eq!(*put, line("INFO", step, Some(1), "shelf Put"));
    assert_eq!(*expected, line("DEBUG", step, Some(1), "nothing changed: duplicate"));
    assert_eq!(*rejected, line("DEBUG", step, Some(1), "rejected: nothing is no quantity"));
    assert_eq!((dead.0.as_str(), dead.1.as_str()), ("ERROR", step));
    let ids = ["message_id", "correlation_id", "causation_id"].map(|name| {
        lines[0][name]
            .as_str()
            .and_then(|id| id.parse::<Uuid>().ok())
            .unwrap_or_else(|| panic!("{name}: {}", lines[0]))
    });
    assert_eq!(ids[0], id(1), "the message's own id");
}

/// Each line has the fields of its own input, not of the batch.
#[tokio::test]
async fn inputs_of_one_batch_log_their_own_fields() {
    let (lines, _listening) = Lines::listen();
    let harness = EngineHarness::new().await;
    harness.execute(DepotCommand::List("tea")).await;
    take(&lines);
    let of = |step, number| Input::<Depot>::message(step, arrived(id(number), "tea", 1), id(404), 0);
    harness.process_together(vec![of(LISTENING, 1), of(FILLING, 2), of(LISTENING, 3), of(FILLING, 4)]).await;
    let events = harness.store.events(shelf("tea"), 0, usize::MAX).await.expect("the store works");
    assert_eq!(events[1].recorded_at, events[2].recorded_at, "they were one batch");
    let lines = take(&lines);
    let put = |number| (line("INFO", FILLING.name, Some(1), "shelf Put"), id(number).to_string());
    let logged: Vec<_> = logged(&lines).into_iter().zip(&lines).collect();
    let logged =
        logged.into_iter().map(|(line, lines)| (line, lines["message_id"].as_str().unwrap_or("").to_owned()));
    let info: Vec<_> = logged.filter(|((level, ..), _)| level == "INFO").collect();
    assert_eq!(info, [put(2), put(4)]);
}
