//! Shell: writes the retries, dead letters and tasks of a batch.

use std::collections::BTreeMap;

use saga_core::dead_letter::{DeadLettered, StoredDeadLetter};
use saga_core::decision::Writes;
use saga_core::waiting::{Retry, Task};
use uuid::Uuid;

use super::statements::{Returned, Statements, column, values};
use crate::store::StoreFault;
use crate::store::encoding::{micros, without_nul};

pub(super) fn write_retries(statements: &mut Statements, writes: &Writes) -> Result<(), StoreFault> {
    if !writes.retries_done.is_empty() {
        let (steps, ids): (Vec<&str>, Vec<Uuid>) = writes.retries_done.iter().copied().unzip();
        statements.push(
            "DELETE FROM retry USING unnest($1::text[], $2::uuid[]) AS over (step, id)
             WHERE retry.step = over.step AND retry.message_id = over.id",
            values![steps, ids],
            Returned::Nothing,
        );
    }
    let last: BTreeMap<(&str, Uuid), &Retry> =
        writes.retries.iter().map(|retry| ((retry.step.as_str(), retry.message_id), retry)).collect();
    insert_retries(
        statements,
        &last.into_values().collect::<Vec<_>>(),
        include_str!("sql/replace_retries.sql"),
    )?;
    insert_retries(statements, &writes.retries_again.iter().collect::<Vec<_>>(), "DO NOTHING")
}

fn insert_retries(statements: &mut Statements, retries: &[&Retry], conflict: &str) -> Result<(), StoreFault> {
    if retries.is_empty() {
        return Ok(());
    }
    let delivery = |retry: &&Retry| retry.delivery.as_ref().map(json).transpose();
    let sql = format!("{}{conflict}", include_str!("sql/insert_retries.sql"));
    statements.push(
        sql,
        values![
            column(retries, |retry| retry.step.clone()),
            column(retries, |retry| retry.message_id),
            column(retries, |retry| retry.payload.to_vec()),
            column(retries, |retry| i64::from(retry.attempts)),
            column(retries, |retry| micros(retry.next_attempt)),
            column(retries, |retry| micros(retry.first_failed_at)),
            column(retries, |retry| without_nul(&retry.last_error)),
            retries.iter().map(delivery).collect::<Result<Vec<_>, _>>()?,
            column(retries, |retry| retry.dead_letter),
        ],
        Returned::Nothing,
    );
    Ok(())
}

pub(super) fn write_dead_letters(statements: &mut Statements, writes: &Writes) -> Result<(), StoreFault> {
    let last: BTreeMap<Uuid, &DeadLettered> =
        writes.new_dead_letters.iter().map(|dead| (dead.id, dead)).collect();
    let dead_letters: Vec<&DeadLettered> = last.into_values().collect();
    if !dead_letters.is_empty() {
        statements.push(
            include_str!("sql/insert_dead_letters.sql"),
            values![
                column(&dead_letters, |dead| dead.id),
                column(&dead_letters, |dead| dead.step.clone()),
                column(&dead_letters, |dead| dead.message_id),
                column(&dead_letters, |dead| dead.saga),
                column(&dead_letters, |dead| dead.origin.as_str()),
                dead_letters.iter().map(json).collect::<Result<Vec<_>, _>>()?,
                column(&dead_letters, |dead| micros(dead.last_failed_at)),
            ],
            Returned::Nothing,
        );
    }
    let last: BTreeMap<Uuid, &StoredDeadLetter> =
        writes.changed_dead_letters.iter().map(|stored| (stored.dead_letter.id, stored)).collect();
    let changed: Vec<&StoredDeadLetter> = last.into_values().collect();
    if !changed.is_empty() {
        statements.push(
            include_str!("sql/update_dead_letters.sql"),
            values![
                column(&changed, |stored| stored.dead_letter.id),
                changed.iter().map(|stored| json(&stored.dead_letter)).collect::<Result<Vec<_>, _>>()?,
                column(&changed, |stored| stored.status.as_str()),
                column(&changed, |stored| i64::try_from(stored.revision).unwrap_or(i64::MAX)),
                column(&changed, |stored| micros(stored.dead_letter.last_failed_at)),
                column(&changed, |stored| stored.dead_letter.saga),
            ],
            Returned::Nothing,
        );
    }
    Ok(())
}

fn json(value: &impl serde::Serialize) -> Result<String, StoreFault> {
    serde_json::to_string(value)
        .map_err(|error| StoreFault::Rejected { context: "writing JSON", source: Box::new(error) })
}

pub(super) fn write_tasks(statements: &mut Statements, writes: &Writes) {
    // First: the same task may be created again in the same batch.
    if !writes.tasks_done.is_empty() {
        let done = "DELETE FROM task WHERE id = ANY ($1)";
        statements.push(done, values![writes.tasks_done.clone()], Returned::Nothing);
    }
    insert_tasks(statements, &writes.tasks, writes.claim.as_ref(), "");
    insert_tasks(statements, &writes.tasks_again, None, "ON CONFLICT (id) DO NOTHING");
    let last: BTreeMap<Uuid, _> = writes.task_retries.iter().map(|retry| (retry.id, retry)).collect();
    let retries: Vec<_> = last.into_values().collect();
    if !retries.is_empty() {
        statements.push(
            include_str!("sql/retry_tasks.sql"),
            values![
                column(&retries, |retry| retry.id),
                column(&retries, |retry| i64::from(retry.attempts)),
                column(&retries, |retry| micros(retry.next_attempt)),
                column(&retries, |retry| without_nul(&retry.last_error)),
                column(&retries, |retry| retry.trace.map(|trace| trace.to_bytes().to_vec())),
            ],
            Returned::Nothing,
        );
    }
}

fn insert_tasks(
    statements: &mut Statements,
    tasks: &[Task],
    claim: Option<&(String, jiff::Timestamp)>,
    conflict: &str,
) {
    if tasks.is_empty() {
        return;
    }
    let (owner, until) = (claim.map(|(owner, _)| owner.clone()), claim.map(|(_, until)| micros(*until)));
    let sql = format!("{}{conflict}", include_str!("sql/insert_tasks.sql"));
    statements.push(
        sql,
        values![
            column(tasks, |task| task.id),
            column(tasks, |task| task.kind.clone()),
            column(tasks, |task| task.correlation_id),
            column(tasks, |task| task.payload.clone()),
            column(tasks, |task| i64::from(task.attempts)),
            column(tasks, |task| task.claim),
            column(tasks, |task| micros(task.created_at)),
            column(tasks, |task| task.dead_letter),
            column(tasks, |task| task.trace.map(|trace| trace.to_bytes().to_vec())),
            owner,
            until,
        ],
        Returned::Nothing,
    );
}
