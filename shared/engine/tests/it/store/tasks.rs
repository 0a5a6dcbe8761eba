//! Conformance: tasks with their claims, and other due work.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use saga_core::decision::{Reads, TaskRetry, Writes};
use saga_core::waiting::Task;
use saga_engine::store::{Due, DueQuery, Store, StoreFault};

use crate::support::{ShelfEvent, at, commit, due_query, id, load, put, recorded, retry, shelf, task, tasks};

type Outcome = Result<(), StoreFault>;

/// Guarantee 4: nobody else makes a call that may be in flight.
pub async fn new_task_belongs_to_writer_until_lease_expires(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), tasks([task(1, at(0))], "depot-1", at(60))).await?;
    assert_eq!(claim(store, "depot-2", 59).await?, []);
    assert_eq!(claim(store, "depot-1", 59).await?, [], "its own calls are under way");

    let taken_over = claim(store, "depot-2", 60).await?;
    assert_eq!(taken_over, [Task { claim: 2, ..task(1, at(0)) }]);
    assert_eq!(claim(store, "depot-1", 60).await?, [], "it is the other's now");
    Ok(())
}

pub async fn restarted_owner_recovers_only_its_own_tasks(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), tasks([task(1, at(0))], "depot-1", at(60))).await?;
    commit(store.as_ref(), tasks([task(2, at(0))], "depot-2", at(60))).await?;
    let recovered = store.claim_due(DueQuery { recover: true, ..at_most(10, 1) }).await?.tasks;
    assert_eq!(recovered, [Task { claim: 2, ..task(1, at(0)) }]);
    Ok(())
}

/// Guarantee 4: tasks beyond the limit are recovered by the next searches, not at the end of their leases.
pub async fn restarted_owner_recovers_tasks_beyond_limit(store: &Arc<dyn Store>) -> Outcome {
    let written = (1..=5).map(|number| task(number, at(0)));
    commit(store.as_ref(), tasks(written, "depot-1", at(3600))).await?;
    let first = store.claim_due(DueQuery { recover: true, ..at_most(2, 1) }).await?.tasks;
    let second = store.claim_due(at_most(2, 1)).await?.tasks;
    let third = store.claim_due(at_most(2, 1)).await?.tasks;
    let recovered: Vec<_> = [first, second, third].into_iter().flatten().map(|task| task.id).collect();
    assert_eq!(recovered.len(), 5, "each once");
    assert_eq!(BTreeSet::from_iter(recovered), (1..=5).map(id).collect());
    Ok(())
}

pub async fn failed_task_waits_for_next_attempt(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), tasks([task(1, at(0))], "depot-1", at(60))).await?;
    let (id, last_error) = (id(1), "closed".to_owned());
    let failed = TaskRetry { id, attempts: 1, next_attempt: at(20), last_error, trace: None };
    commit(store.as_ref(), Writes { task_retries: vec![failed], ..Writes::default() }).await?;

    let failing = store.failing_tasks(10).await?;
    let found: Vec<_> =
        failing.iter().map(|one| (one.task.id, one.next_attempt, one.last_error.as_str())).collect();
    assert_eq!(found, [(crate::support::id(1), at(20), "closed")]);
    let early = due_of(store, "depot-1", 19).await?;
    assert_eq!((early.tasks, early.next), (vec![], Some(at(20))));
    assert_eq!(claim(store, "depot-2", 20).await?, [Task { attempts: 1, claim: 2, ..task(1, at(0)) }]);
    Ok(())
}

pub async fn open_task_is_loaded_with_claim(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), tasks([task(1, at(0)), task(2, at(0))], "depot-1", at(60))).await?;
    let done = Writes { tasks_done: vec![id(2)], ..Writes::default() };
    commit(store.as_ref(), done).await?;
    let reads = || Reads { tasks: [id(1), id(2)].into(), ..Reads::default() };
    assert_eq!(load(store.as_ref(), reads()).await?.tasks, [(id(1), 1)].into());
    claim(store, "depot-2", 60).await?;
    assert_eq!(load(store.as_ref(), reads()).await?.tasks, [(id(1), 2)].into());
    Ok(())
}

pub async fn finished_task_is_deleted(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), tasks([task(1, at(0))], "depot-1", at(60))).await?;
    assert_eq!(store.stats().await?.tasks, 1);
    commit(store.as_ref(), Writes { tasks_done: vec![id(1)], ..Writes::default() }).await?;
    assert_eq!(store.stats().await?.tasks, 0);
    assert_eq!(claim(store, "depot-1", 9999).await?, []);
    Ok(())
}

/// Otherwise nobody would make the call until the time that the clock showed.
pub async fn claim_by_clock_ahead_is_taken_over_and_fenced(store: &Arc<dyn Store>) -> Outcome {
    let hour = 3600;
    commit(store.as_ref(), tasks([task(1, at(hour))], "depot-1", at(hour + 60))).await?;
    let taken_over = bounded(store, "depot-1", 0).await?;
    assert_eq!(taken_over, [Task { claim: 2, ..task(1, at(hour)) }]);
    assert_eq!(bounded(store, "depot-2", 59).await?, [], "it is claimed like any other now");
    assert_eq!(bounded(store, "depot-2", 60).await?, [Task { claim: 3, ..task(1, at(hour)) }]);

    // Clocks of replicas that differ by less than a lease believe each other.
    commit(store.as_ref(), tasks([task(2, at(60))], "depot-1", at(119))).await?;
    assert_eq!(bounded(store, "depot-2", 61).await?, []);
    Ok(())
}

pub async fn delay_by_clock_ahead_is_over_at_once(store: &Arc<dyn Store>) -> Outcome {
    let look = |second| DueQuery { longest_delay: SignedDuration::from_secs(30), ..at_most(9, second) };
    let retries = vec![retry("filling", 1, at(3600)), retry("filling", 2, at(40))];
    let last_error = "closed".to_owned();
    let failed = TaskRetry { id: id(1), attempts: 1, next_attempt: at(3600), last_error, trace: None };
    commit(store.as_ref(), tasks([task(1, at(0))], "depot-1", at(60))).await?;
    let writes = Writes { retries, task_retries: vec![failed], ..Writes::default() };
    commit(store.as_ref(), writes).await?;
    let due = store.claim_due(look(0)).await?;
    assert_eq!(due.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [id(1)]);
    assert_eq!(due.retries.iter().map(|retry| retry.message_id).collect::<Vec<_>>(), [id(1)]);
    assert_eq!(due.next, Some(at(40)), "what may be right is waited for");
    Ok(())
}

/// Guarantee 4, with several replicas.
pub async fn task_is_claimed_by_one_owner(store: &Arc<dyn Store>) -> Outcome {
    let written = (1..=60).map(|number| task(number, at(0)));
    commit(store.as_ref(), tasks(written, "depot-0", at(1))).await?;
    let claims = (1..=6).map(|owner| {
        let store = store.clone();
        tokio::spawn(
            async move { store.claim_due(due_query(at(2), 15, &format!("depot-{owner}"), at(99))).await },
        )
    });
    let mut claimed = Vec::new();
    for due in futures::future::join_all(claims).await {
        claimed.extend(due.expect("no panic")?.tasks.into_iter().map(|task| task.id));
    }
    assert_eq!(claimed.len(), 60);
    assert_eq!(BTreeSet::from_iter(claimed).len(), 60);
    Ok(())
}

pub async fn due_rows_are_ordered_by_time(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), recorded("never", &[], &[put(1)])).await?;
    for (label, second) in [("milk", 30), ("zest", 10), ("apple", 20)] {
        commit(store.as_ref(), recorded(label, &[], &[planned(second)])).await?;
    }
    let due = due_of(store, "depot-1", 20).await?;
    assert_eq!(due.rows, [(shelf("zest"), at(10)), (shelf("apple"), at(20))]);
    assert_eq!(due.next, Some(at(30)));
    assert_eq!(store.claim_due(at_most(1, 99)).await?.rows, [(shelf("zest"), at(10))]);

    // A row whose time is over wants nothing any more.
    commit(store.as_ref(), recorded("zest", &[planned(10)], &[ShelfEvent::Checked])).await?;
    assert_eq!(due_of(store, "depot-1", 20).await?.rows, [(shelf("apple"), at(20))]);
    Ok(())
}

pub async fn due_retries_carry_payload(store: &Arc<dyn Store>) -> Outcome {
    let (early, late) = (retry("filling", 1, at(10)), retry("filling", 2, at(20)));
    commit(store.as_ref(), Writes { retries: vec![late.clone(), early.clone()], ..Writes::default() })
        .await?;
    let due = due_of(store, "depot-1", 10).await?;
    assert_eq!((due.retries, due.next), (vec![early.clone()], Some(at(20))));
    assert_eq!(due_of(store, "depot-1", 20).await?.retries, [early.clone(), late]);
    assert_eq!(store.claim_due(at_most(1, 20)).await?.retries, [early]);
    Ok(())
}

/// Guarantee 7: retries behind an open breaker do not take the place of others.
/// Another build may have the other steps. Its retries take no room, and no claim keeps them from it.
pub async fn retries_of_other_steps_are_left_alone_and_do_not_count(store: &Arc<dyn Store>) -> Outcome {
    let waiting = [retry("filling", 1, at(1)), retry("listening", 2, at(2)), retry("filling", 3, at(3))];
    let last = retry("listening", 4, at(4));
    let retries = waiting.iter().cloned().chain([last.clone()]).collect();
    commit(store.as_ref(), Writes { retries, ..Writes::default() }).await?;
    let of = |owner: &str, steps: &[&str]| DueQuery {
        steps: steps.iter().map(|step| (*step).to_owned()).collect(),
        owner: owner.to_owned(),
        ..at_most(2, 9)
    };
    let older = store.claim_due(of("older", &["listening", "it's \"no\" step"])).await?;
    assert_eq!(older.retries, [waiting[1].clone(), last]);
    assert_eq!(older.retry_steps, ["filling", "listening"]);
    assert_eq!(store.claim_due(of("older", &[])).await?.retries, []);
    let newer = store.claim_due(of("newer", &["filling", "listening"])).await?;
    assert_eq!((newer.retries.len(), &newer.retries[0]), (2, &waiting[0]));
    assert_eq!(store.stats().await?.retries, 4);
    Ok(())
}

/// Without room for calls no task is claimed, while other due work is found.
pub async fn limit_of_zero_tasks_claims_none(store: &Arc<dyn Store>) -> Outcome {
    commit(store.as_ref(), tasks([task(1, at(0))], "depot-1", at(1))).await?;
    commit(store.as_ref(), Writes { retries: vec![retry("filling", 1, at(1))], ..Writes::default() }).await?;
    let due = store.claim_due(DueQuery { tasks: 0, ..at_most(9, 2) }).await?;
    assert_eq!((due.tasks, due.retries.len()), (vec![], 1));
    assert_eq!(claim(store, "depot-2", 2).await?, [Task { claim: 2, ..task(1, at(0)) }], "it was nobody's");
    Ok(())
}

pub async fn next_due_time_is_earliest_of_rows_retries_tasks_and_leases(store: &Arc<dyn Store>) -> Outcome {
    assert_eq!(due_of(store, "depot-1", 0).await?.next, None);
    commit(store.as_ref(), tasks([task(1, at(0))], "depot-1", at(50))).await?;
    assert_eq!(due_of(store, "depot-1", 0).await?.next, Some(at(50)), "the lease of a task");
    commit(store.as_ref(), tasks([task(2, at(40))], "depot-1", at(60))).await?;
    let freed =
        TaskRetry { id: id(2), attempts: 1, next_attempt: at(40), last_error: String::new(), trace: None };
    commit(store.as_ref(), Writes { task_retries: vec![freed], ..Writes::default() }).await?;
    assert_eq!(due_of(store, "depot-1", 0).await?.next, Some(at(40)), "the next try of a task");
    commit(store.as_ref(), recorded("tea", &[], &[planned(30)])).await?;
    assert_eq!(due_of(store, "depot-1", 0).await?.next, Some(at(30)), "a row");
    commit(store.as_ref(), Writes { retries: vec![retry("filling", 1, at(20))], ..Writes::default() })
        .await?;
    assert_eq!(due_of(store, "depot-1", 0).await?.next, Some(at(20)), "a retry");
    Ok(())
}

/// Tasks claimed for a minute, where no delay exceeds half a minute.
async fn bounded(store: &Arc<dyn Store>, owner: &str, second: i64) -> Result<Vec<Task>, StoreFault> {
    let query = due_query(at(second), 10, owner, at(second + 60));
    Ok(store.claim_due(DueQuery { longest_delay: SignedDuration::from_secs(30), ..query }).await?.tasks)
}

fn planned(second: i64) -> ShelfEvent {
    ShelfEvent::CheckPlanned { at: at(second) }
}

/// Query of the first depot with a lease of an hour.
fn at_most(limit: usize, second: i64) -> DueQuery {
    due_query(at(second), limit, "depot-1", at(second + 3600))
}

async fn due_of(store: &Arc<dyn Store>, owner: &str, second: i64) -> Result<Due, StoreFault> {
    store.claim_due(due_query(at(second), 10, owner, at(second + 60))).await
}

async fn claim(store: &Arc<dyn Store>, owner: &str, second: i64) -> Result<Vec<Task>, StoreFault> {
    Ok(due_of(store, owner, second).await?.tasks)
}
