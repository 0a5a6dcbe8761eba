//! Conformance: outbox, settlement and leases.

use saga_core::decision::{OutboxWrite, Writes};
use saga_engine::store::{Lease, PublishOutcome, RELAY_LEASE, Store, StoreFault, TrimCutoffs};

use crate::support::{at, commit, id, outbox_write, outbox_writes};

type Outcome = Result<(), StoreFault>;

pub async fn entries_are_pending_in_order_of_decision(store: &dyn Store) -> Outcome {
    // Ids that would sort the other way round.
    commit(store, outbox_writes([30, 20])).await?;
    commit(store, outbox_writes([10, 5])).await?;
    assert_eq!(pending(store).await?, [30, 20, 10, 5]);
    let oldest = store.pending_entries(3).await?;
    assert_eq!(oldest.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(30), id(20), id(10)]);
    assert_eq!((&oldest[0].subject[..], &oldest[0].payload[..]), ("depot.stored", &b"payload 30"[..]));
    Ok(())
}

pub async fn settled_entry_is_not_pending_and_counted(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1, 2, 3])).await?;
    publish(store, 2, 5).await?;
    assert_eq!(pending(store).await?, [3]);
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 2)].into());
    assert_eq!(store.outbox_items(9).await?.len(), 1);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (1, 0, Some(at(0))));
    Ok(())
}

/// Settles only entries before the first one that was not published.
pub async fn settlement_stops_before_unpublished_entry(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1, 2, 3])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let all = seqs(store).await?;
    let published = PublishOutcome { done: vec![all[2], all[0]], ..PublishOutcome::default() };
    assert!(store.settle(&lease, published, at(5)).await?);
    assert_eq!(pending(store).await?, [2, 3]);
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 1)].into());
    Ok(())
}

/// Entries of one saga never overtake a failed one: they wait for it and follow it.
pub async fn later_entries_of_saga_are_blocked_by_failed_entry(store: &dyn Store) -> Outcome {
    commit(store, entries_of_sagas([(1, 7), (2, 8), (3, 7), (4, 8)])).await?;
    reject(store, 1).await?;
    assert_eq!(pending(store).await?, [2, 4]);
    publish(store, 2, 5).await?;
    commit(store, entries_of_sagas([(5, 7), (6, 8)])).await?;
    assert_eq!(pending(store).await?, [6]);
    publish(store, 1, 6).await?;
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (0, 3, None));
    let seen: Vec<_> =
        store.outbox_items(9).await?.iter().map(|item| (item.id, item.status.clone())).collect();
    let (failed, blocked) = ("FAILED".to_owned(), "BLOCKED".to_owned());
    assert_eq!(seen, [(id(1), failed), (id(3), blocked.clone()), (id(5), blocked)]);

    commit(store, entries_of_sagas([(7, 7), (8, 8)])).await?;
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 3, 5, 7, 8], "blocked entries precede the sequence");
    assert_eq!(store.stats().await?.outbox_oldest, Some(at(0)));
    publish(store, 5, 7).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new());
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 8)].into(), "each once");
    Ok(())
}

pub async fn entry_behind_two_failed_entries_waits_for_both(store: &dyn Store) -> Outcome {
    commit(store, entries_of_sagas([(1, 7), (2, 7), (3, 7)])).await?;
    let first = seqs(store).await?[0];
    reject(store, 1).await?;
    reject(store, 2).await?;
    commit(store, entries_of_sagas([(4, 8)])).await?;
    publish(store, 1, 5).await?;
    assert_eq!(store.retry_failed_entries(Some(first)).await?, 1);
    publish(store, 1, 6).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new(), "the third stands behind the second");
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    assert_eq!(pending(store).await?, [2, 3]);
    Ok(())
}

/// The entry waits for an operator, not for the broker, though nothing else is published meanwhile.
pub async fn new_entry_behind_failed_one_is_blocked_not_pending(store: &dyn Store) -> Outcome {
    commit(store, entries_of_sagas([(1, 7)])).await?;
    reject(store, 1).await?;
    commit(store, entries_of_sagas([(2, 7)])).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new());
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (0, 2, None));

    commit(store, entries_of_sagas([(3, 8)])).await?;
    assert_eq!(pending(store).await?, [3]);
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 2, 3], "in sequence");
    publish(store, 3, 9).await?;
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 3)].into());
    Ok(())
}

pub async fn entry_that_fails_again_blocks_later_entries_again(store: &dyn Store) -> Outcome {
    commit(store, entries_of_sagas([(1, 7), (2, 7), (3, 8), (4, 7)])).await?;
    reject(store, 1).await?;
    publish(store, 1, 5).await?;
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 2, 4]);
    reject(store, 1).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new(), "nothing overtakes it");
    assert_eq!(store.stats().await?.outbox_failed, 3);
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 2, 4]);
    Ok(())
}

/// As for a broker that lost its disk: exactly the messages since then are published once more.
pub async fn entries_published_since_time_are_republished(store: &dyn Store) -> Outcome {
    for (number, second) in [(1, 10), (2, 20), (3, 30)] {
        commit(store, outbox_writes([number])).await?;
        publish(store, 1, second).await?;
    }
    commit(store, outbox_writes([4])).await?;
    assert_eq!(republish_all(store, 31, 9).await?, 0);
    assert_eq!(republish_all(store, 20, 9).await?, 2);
    assert_eq!(pending(store).await?, [4, 2, 3], "new entries do not wait");
    let repeated: Vec<_> = store.pending_entries(9).await?.iter().map(|entry| entry.is_repetition).collect();
    assert_eq!(repeated, [false, true, true]);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_republishing, stats.outbox_failed), (1, 2, 0));
    publish(store, 3, 40).await?;
    assert_eq!(store.stats().await?.outbox_republishing, 0);
    assert_eq!(
        store.message_counts().await?.published,
        [("depot.stored".to_owned(), 4)].into(),
        "each counts once"
    );

    assert_eq!(republish_all(store, 0, 1).await?, 4, "one after the other");
    assert_eq!(republish_all(store, 0, 9).await?, 0, "they are being republished");
    assert_eq!(store.pending_entries(4).await?.len(), 1, "a share of a batch");
    Ok(())
}

/// Counts the time of the late or repeated publication, not that of its neighbours.
pub async fn entry_published_out_of_sequence_is_republished_by_its_own_time(store: &dyn Store) -> Outcome {
    commit(store, entries_of_sagas([(1, 1), (2, 2), (3, 3), (4, 4)])).await?;
    reject(store, 1).await?;
    publish(store, 2, 10).await?;
    publish(store, 1, 20).await?;
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    publish(store, 1, 50).await?;
    assert_eq!(republish_all(store, 40, 9).await?, 1, "the first was published in the second 50");
    assert_eq!(pending(store).await?, [1]);
    publish(store, 1, 60).await?;
    assert_eq!(
        (republish_all(store, 55, 9).await?, republish_all(store, 61, 9).await?),
        (1, 0),
        "and in the second 60"
    );
    publish(store, 1, 70).await?;

    trim_published(store, 65).await?;
    assert_eq!(republish_all(store, 0, 9).await?, 2, "it is kept by that time too, beside the last one");
    publish(store, 2, 80).await?;
    trim_published(store, 90).await?;
    assert_eq!(republish_all(store, 0, 9).await?, 1);
    Ok(())
}

/// The broker has the original.
pub async fn rejected_republication_does_not_fail_entry(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1])).await?;
    publish(store, 1, 10).await?;
    assert_eq!(republish_all(store, 0, 9).await?, 1);
    reject(store, 1).await?;
    assert_eq!(store.outbox_items(9).await?.len(), 0);
    assert_eq!(store.stats().await?.outbox_failed, 0);
    Ok(())
}

/// Pending entries are kept whatever their age, and no position is assigned twice.
pub async fn published_entries_are_trimmed_by_the_time_of_their_publication(store: &dyn Store) -> Outcome {
    commit(store, entries_of_sagas([(1, 1), (2, 2), (3, 3), (4, 4)])).await?;
    reject(store, 1).await?;
    publish(store, 1, 10).await?;
    publish(store, 1, 20).await?;
    publish(store, 1, 30).await?;
    assert_eq!(trim_published(store, 20).await?, 1);
    assert_eq!(republish_all(store, 0, 9).await?, 2, "those of the seconds 20 and 30 are kept");
    publish(store, 2, 40).await?;
    assert!(trim_published(store, 99).await? >= 1);
    assert_eq!(republish_all(store, 0, 9).await?, 1, "the last one stays");
    publish(store, 1, 41).await?;
    commit(store, outbox_writes([5])).await?;
    assert_eq!(pending(store).await?, [5]);
    assert_eq!(store.retry_failed_entries(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 5]);
    Ok(())
}

/// The published position does not depend on kept entries.
pub async fn trimming_keeps_published_position(store: &dyn Store) -> Outcome {
    commit(store, entries_of_sagas([(1, 1), (2, 2), (3, 2)])).await?;
    publish(store, 1, 10).await?;
    reject(store, 2).await?;
    trim_published(store, 99).await?;
    commit(store, entries_of_sagas([(4, 4)])).await?;
    for _ in 0..2 {
        let stats = store.stats().await?;
        assert_eq!((stats.outbox_pending, stats.outbox_failed), (1, 2), "the fourth, and two behind it");
        trim_published(store, 99).await?;
    }
    Ok(())
}

/// Compared with the creation time of a stream, this tells if the stream lost messages.
pub async fn kept_since_is_time_of_oldest_kept_publication(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1, 2, 3])).await?;
    assert_eq!(store.kept_since().await?, None, "nothing is published");
    for second in [10, 20, 30] {
        publish(store, 1, second).await?;
        assert_eq!(store.kept_since().await?, Some(at(10)), "after {second} s");
    }
    assert_eq!(republish_all(store, 0, 9).await?, 3);
    assert_eq!(store.kept_since().await?, None, "all of it is to be published again");
    publish(store, 3, 40).await?;
    assert_eq!(store.kept_since().await?, None, "whatever stream has it now");
    commit(store, outbox_writes([4])).await?;
    publish(store, 1, 50).await?;
    assert_eq!(store.kept_since().await?, Some(at(50)));
    trim_published(store, 45).await?;
    assert_eq!(store.kept_since().await?, Some(at(50)));
    Ok(())
}

pub async fn repeated_settlement_counts_once(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let published = PublishOutcome { done: seqs(store).await?, ..PublishOutcome::default() };
    assert!(store.settle(&lease, published.clone(), at(5)).await?);
    assert!(store.settle(&lease, published, at(6)).await?);
    assert_eq!(store.message_counts().await?.published, [("depot.stored".to_owned(), 1)].into());
    Ok(())
}

/// Guarantee 2: an entry that the broker rejects for good waits visibly for an operator and blocks no other saga.
pub async fn rejected_entry_fails_without_blocking_other_sagas(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1, 2, 3])).await?;
    reject(store, 2).await?;
    assert_eq!(pending(store).await?, [1, 3]);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (2, 1));

    let items = store.outbox_items(10).await?;
    let seen: Vec<_> = items
        .iter()
        .map(|item| (item.id, &item.status[..], item.attempts, item.last_error.as_deref()))
        .collect();
    let failed = (id(2), "FAILED", 1, Some("too large"));
    assert_eq!(seen, [(id(1), "PENDING", 0, None), failed, (id(3), "PENDING", 0, None)]);
    assert_eq!(items[1].created_at, at(0));
    assert_eq!(store.outbox_items(2).await?.len(), 2);
    Ok(())
}

pub async fn failed_entries_become_pending_on_retry(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1, 2, 3, 4])).await?;
    let all = seqs(store).await?;
    for number in [1, 2, 4] {
        reject(store, number).await?;
    }
    assert_eq!(pending(store).await?, [3]);
    assert_eq!(store.retry_failed_entries(Some(all[1])).await?, 1);
    assert_eq!(pending(store).await?, [2, 3], "in sequence");
    assert_eq!(store.retry_failed_entries(Some(all[2])).await?, 0, "it has not failed");
    assert_eq!(store.retry_failed_entries(None).await?, 2);
    assert_eq!(pending(store).await?, [1, 2, 3, 4]);
    Ok(())
}

/// Entries stay in order while the broker cannot take the first one.
pub async fn delayed_entry_delays_later_entries(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1, 2, 3])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let seqs = seqs(store).await?;
    let (done, delayed) = (vec![seqs[0]], Some((seqs[1], "no answer".to_owned())));
    store.settle(&lease, PublishOutcome { done, delayed, ..PublishOutcome::default() }, at(5)).await?;
    assert_eq!(pending(store).await?, [2, 3]);
    let item = &store.outbox_items(1).await?[0];
    assert_eq!((item.attempts, item.last_error.as_deref()), (1, Some("no answer")));
    assert_eq!(store.stats().await?.outbox_oldest, Some(at(0)));
    Ok(())
}

pub async fn lease_has_one_owner_at_a_time(store: &dyn Store) -> Outcome {
    let first = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    assert_eq!(lease(store, None, "depot-2", 9).await?, None);
    let second = lease(store, None, "depot-2", 10).await?.expect("it has lapsed");
    assert!(second.fence > first.fence);
    assert_eq!((&first.owner[..], &second.owner[..]), ("depot-1", "depot-2"));
    assert_eq!(lease(store, None, "depot-1", 19).await?, None);
    Ok(())
}

pub async fn renewal_keeps_fence(store: &dyn Store) -> Outcome {
    let taken = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let renewed = lease(store, Some(&taken), "depot-1", 5).await?.expect("it is the holder");
    assert_eq!(renewed, taken);
    assert_eq!(lease(store, None, "depot-2", 14).await?, None, "it lasts from the renewal");
    assert!(lease(store, None, "depot-2", 15).await?.is_some());
    Ok(())
}

pub async fn restarted_owner_gets_higher_fence_at_once(store: &dyn Store) -> Outcome {
    let before = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let after = lease(store, None, "depot-1", 1).await?.expect("its earlier life is over");
    assert!(after.fence > before.fence);
    commit(store, outbox_writes([1])).await?;
    let published = PublishOutcome { done: seqs(store).await?, ..PublishOutcome::default() };
    assert!(!store.settle(&before, published.clone(), at(2)).await?, "the earlier life is over");
    assert!(store.settle(&after, published, at(2)).await?);
    Ok(())
}

pub async fn owner_of_expired_lease_cannot_settle(store: &dyn Store) -> Outcome {
    commit(store, outbox_writes([1, 2, 3])).await?;
    let first = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let second = lease(store, None, "depot-2", 10).await?.expect("it has lapsed");
    let seqs = seqs(store).await?;
    let settlement = PublishOutcome {
        done: vec![seqs[0]],
        rejected: vec![(seqs[1], "too large".to_owned())],
        delayed: Some((seqs[2], "no answer".to_owned())),
    };
    assert!(!store.settle(&first, settlement.clone(), at(11)).await?);
    assert_eq!(pending(store).await?, [1, 2, 3]);
    assert!(store.outbox_items(10).await?.iter().all(|item| item.attempts == 0));
    assert!(store.message_counts().await?.published.is_empty());

    assert!(store.settle(&second, settlement, at(11)).await?);
    assert_eq!(store.stats().await?.outbox_pending, 1);
    Ok(())
}

pub async fn owner_of_expired_lease_cannot_renew(store: &dyn Store) -> Outcome {
    let first = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let second = lease(store, None, "depot-2", 10).await?.expect("it has lapsed");
    assert_eq!(lease(store, Some(&first), "depot-1", 11).await?, None);
    assert_eq!(lease(store, Some(&second), "depot-2", 12).await?, Some(second));
    Ok(())
}

pub async fn lease_by_clock_ahead_is_taken_over(store: &dyn Store) -> Outcome {
    let ahead = lease(store, None, "depot-1", 3600).await?.expect("nobody holds it");
    let second = lease(store, None, "depot-2", 0).await?.expect("it ends later than any can");
    assert_eq!((second.fence, lease(store, Some(&ahead), "depot-1", 1).await?), (ahead.fence + 1, None));

    // One of a clock that is a little ahead is believed.
    assert_eq!(lease(store, None, "depot-1", -9).await?, None);
    Ok(())
}

pub async fn leases_of_different_names_are_independent(store: &dyn Store) -> Outcome {
    let take = |name, owner, second| store.acquire_lease(name, None, owner, at(second), at(second + 10));
    assert!(take(RELAY_LEASE, "depot-1", 0).await?.is_some());
    assert!(take("inventory", "depot-2", 1).await?.is_some(), "that of the relay is another");
    assert!(take("inventory", "depot-1", 2).await?.is_none());
    assert!(take("inventory", "depot-1", 12).await?.is_some(), "it has lapsed");
    assert!(take(RELAY_LEASE, "depot-2", 9).await?.is_none(), "nor is that of the relay touched");
    Ok(())
}

/// Acquires or renews the lease for ten seconds.
async fn lease(
    store: &dyn Store,
    held: Option<&Lease>,
    owner: &str,
    second: i64,
) -> Result<Option<Lease>, StoreFault> {
    store.acquire_lease(RELAY_LEASE, held, owner, at(second), at(second + 10)).await
}

/// Messages, each of a saga of its own.
fn entries_of_sagas(numbers: impl IntoIterator<Item = (u128, u128)>) -> Writes {
    let outbox_write = |(number, saga)| OutboxWrite { saga: id(saga), ..outbox_write(number, None) };
    Writes { outbox: numbers.into_iter().map(outbox_write).collect(), decided_at: at(0), ..Writes::default() }
}

/// Publishes and settles the next so many entries.
async fn publish(store: &dyn Store, count: usize, second: i64) -> Outcome {
    let lease = lease(store, None, "depot-1", second).await?.expect("nobody else is there");
    let done = store.pending_entries(100).await?.iter().take(count).map(|entry| entry.seq).collect();
    assert!(store.settle(&lease, PublishOutcome { done, ..PublishOutcome::default() }, at(second)).await?);
    Ok(())
}

/// Marks everything published since then to be republished. Returns the number of entries.
async fn republish_all(store: &dyn Store, since: i64, limit: usize) -> Result<usize, StoreFault> {
    let (mut count, mut after) = (0, 0);
    loop {
        let marked = store.republish(at(since), after, limit).await?;
        let Some(last) = marked.last else { return Ok(count) };
        (count, after) = (count + marked.count, last);
    }
}

async fn trim_published(store: &dyn Store, published: i64) -> Result<u64, StoreFault> {
    store.trim(TrimCutoffs { inbox: at(0), keys: at(0), published: at(published) }, 100).await
}

/// Numbers of the pending messages.
async fn pending(store: &dyn Store) -> Result<Vec<u128>, StoreFault> {
    Ok(store.pending_entries(100).await?.iter().map(|entry| entry.id.as_u128()).collect())
}

/// Positions of all unpublished entries.
async fn seqs(store: &dyn Store) -> Result<Vec<i64>, StoreFault> {
    Ok(store.outbox_items(100).await?.iter().map(|item| item.seq).collect())
}

async fn reject(store: &dyn Store, number: u128) -> Outcome {
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody else is there");
    let items = store.outbox_items(100).await?;
    let item = items.iter().find(|item| item.id == id(number)).expect("the entry");
    let published =
        PublishOutcome { rejected: vec![(item.seq, "too large".to_owned())], ..PublishOutcome::default() };
    assert!(store.settle(&lease, published, at(0)).await?);
    Ok(())
}
