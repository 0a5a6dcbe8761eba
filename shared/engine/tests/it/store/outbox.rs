//! Promises to publish, and who may keep them.

use std::sync::Arc;

use saga_core::decision::{OutboxWrite, Writes};
use saga_engine::store::{Cutoffs, Lease, Published, RELAY, Store, StoreFault};

use crate::support::{at, commit, id, promise, promises};

type Promise = Result<(), StoreFault>;

pub async fn entries_are_published_in_the_order_of_decision(store: &Arc<dyn Store>) -> Promise {
    // Ids that would sort the other way round.
    commit(store.as_ref(), promises([30, 20])).await?;
    commit(store.as_ref(), promises([10, 5])).await?;
    assert_eq!(pending(store).await?, [30, 20, 10, 5]);
    let oldest = store.pending(3).await?;
    assert_eq!(oldest.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(30), id(20), id(10)]);
    assert_eq!((&oldest[0].subject[..], &oldest[0].payload[..]), ("depot.stored", &b"payload 30"[..]));
    Ok(())
}

pub async fn a_settled_entry_is_out_of_the_way_and_counted(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    publish(store, 2, 5).await?;
    assert_eq!(pending(store).await?, [3]);
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 2)].into());
    assert_eq!(store.outbox(9).await?.len(), 1);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (1, 0, Some(at(0))));
    Ok(())
}

/// Only what stands before the first entry that was not published is settled: nothing is passed over.
pub async fn nothing_is_settled_past_an_entry_that_was_not_published(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let all = seqs(store).await?;
    let published = Published { done: vec![all[2], all[0]], ..Published::default() };
    assert!(store.settle(&lease, published, at(5)).await?);
    assert_eq!(pending(store).await?, [2, 3]);
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 1)].into());
    Ok(())
}

/// Within one saga nothing overtakes what failed: it waits with it, and follows it.
pub async fn what_a_saga_promised_after_a_failed_entry_waits_for_it(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), of_sagas([(1, 7), (2, 8), (3, 7), (4, 8)])).await?;
    refuse(store, 1).await?;
    assert_eq!(pending(store).await?, [2, 4]);
    publish(store, 2, 5).await?;
    commit(store.as_ref(), of_sagas([(5, 7), (6, 8)])).await?;
    assert_eq!(pending(store).await?, [6]);
    publish(store, 1, 6).await?;
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (0, 3, None));
    let seen: Vec<_> = store.outbox(9).await?.iter().map(|item| (item.id, item.status.clone())).collect();
    let (failed, held) = ("FAILED".to_owned(), "BLOCKED".to_owned());
    assert_eq!(seen, [(id(1), failed), (id(3), held.clone()), (id(5), held)]);

    commit(store.as_ref(), of_sagas([(7, 7), (8, 8)])).await?;
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 3, 5, 7, 8], "what was held, then the line");
    assert_eq!(store.stats().await?.outbox_oldest, Some(at(0)));
    publish(store, 5, 7).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new());
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 8)].into(), "each once");
    Ok(())
}

pub async fn an_entry_held_behind_two_failed_ones_waits_for_both(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), of_sagas([(1, 7), (2, 7), (3, 7)])).await?;
    let first = seqs(store).await?[0];
    refuse(store, 1).await?;
    refuse(store, 2).await?;
    commit(store.as_ref(), of_sagas([(4, 8)])).await?;
    publish(store, 1, 5).await?;
    assert_eq!(store.retry_failed(Some(first)).await?, 1);
    publish(store, 1, 6).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new(), "the third stands behind the second");
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(pending(store).await?, [2, 3]);
    Ok(())
}

/// What a saga promises while an earlier promise of it waits for an operator waits with it, though nothing else moves
/// the line: it is not said to wait for the broker.
pub async fn what_is_promised_behind_a_failed_entry_does_not_wait_for_the_broker(
    store: &Arc<dyn Store>,
) -> Promise {
    commit(store.as_ref(), of_sagas([(1, 7)])).await?;
    refuse(store, 1).await?;
    commit(store.as_ref(), of_sagas([(2, 7)])).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new());
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed, stats.outbox_oldest), (0, 2, None));

    commit(store.as_ref(), of_sagas([(3, 8)])).await?;
    assert_eq!(pending(store).await?, [3]);
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 2, 3], "each in its place");
    publish(store, 3, 9).await?;
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 3)].into());
    Ok(())
}

/// What was let go with a failed entry is held again when that fails once more.
pub async fn an_entry_that_fails_again_holds_what_follows_it_again(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), of_sagas([(1, 7), (2, 7), (3, 8), (4, 7)])).await?;
    refuse(store, 1).await?;
    publish(store, 1, 5).await?;
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 2, 4]);
    refuse(store, 1).await?;
    assert_eq!(pending(store).await?, Vec::<u128>::new(), "nothing overtakes it");
    assert_eq!(store.stats().await?.outbox_failed, 3);
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 2, 4]);
    Ok(())
}

/// A broker that has lost its disk is told again what it was told: that, once more, and nothing else.
pub async fn what_was_published_since_a_time_is_published_again(store: &Arc<dyn Store>) -> Promise {
    for (number, second) in [(1, 10), (2, 20), (3, 30)] {
        commit(store.as_ref(), promises([number])).await?;
        publish(store, 1, second).await?;
    }
    commit(store.as_ref(), promises([4])).await?;
    assert_eq!(again(store, 31, 9).await?, 0);
    assert_eq!(again(store, 20, 9).await?, 2);
    assert_eq!(pending(store).await?, [4, 2, 3], "what is new does not wait for it");
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_republishing, stats.outbox_failed), (1, 2, 0));
    publish(store, 3, 40).await?;
    assert_eq!(store.stats().await?.outbox_republishing, 0);
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 4)].into(), "each counts once");

    assert_eq!(again(store, 0, 1).await?, 4, "one after the other");
    assert_eq!(again(store, 0, 9).await?, 0, "it is under way");
    assert_eq!(store.pending(4).await?.len(), 1, "a share of a batch");
    Ok(())
}

/// What was published late, or again, was published then: a broker that loses what it was told since is told that too.
pub async fn what_was_published_out_of_line_is_published_again_by_the_time_of_that(
    store: &Arc<dyn Store>,
) -> Promise {
    commit(store.as_ref(), of_sagas([(1, 1), (2, 2), (3, 3), (4, 4)])).await?;
    refuse(store, 1).await?;
    publish(store, 2, 10).await?;
    publish(store, 1, 20).await?;
    assert_eq!(store.retry_failed(None).await?, 1);
    publish(store, 1, 50).await?;
    assert_eq!(again(store, 40, 9).await?, 1, "the first was published in the second 50");
    assert_eq!(pending(store).await?, [1]);
    publish(store, 1, 60).await?;
    assert_eq!((again(store, 55, 9).await?, again(store, 61, 9).await?), (1, 0), "and in the second 60");
    publish(store, 1, 70).await?;

    trimmed(store, 65).await?;
    assert_eq!(again(store, 0, 9).await?, 2, "it is kept by that time too, beside the last one");
    publish(store, 2, 80).await?;
    trimmed(store, 90).await?;
    assert_eq!(again(store, 0, 9).await?, 1);
    Ok(())
}

/// One that was published before is not missing when the broker does not take it again.
pub async fn a_repetition_that_is_refused_is_only_not_repeated(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1])).await?;
    publish(store, 1, 10).await?;
    assert_eq!(again(store, 0, 9).await?, 1);
    refuse(store, 1).await?;
    assert_eq!(store.outbox(9).await?.len(), 0);
    assert_eq!(store.stats().await?.outbox_failed, 0);
    Ok(())
}

/// What was published goes when its time has come; what was not stays, whatever its age; and no place is given twice.
pub async fn published_entries_are_trimmed_by_the_time_of_their_publication(
    store: &Arc<dyn Store>,
) -> Promise {
    commit(store.as_ref(), of_sagas([(1, 1), (2, 2), (3, 3), (4, 4)])).await?;
    refuse(store, 1).await?;
    publish(store, 1, 10).await?;
    publish(store, 1, 20).await?;
    publish(store, 1, 30).await?;
    assert_eq!(trimmed(store, 20).await?, 1);
    assert_eq!(again(store, 0, 9).await?, 2, "those of the seconds 20 and 30 are kept");
    publish(store, 2, 40).await?;
    assert!(trimmed(store, 99).await? >= 1);
    assert_eq!(again(store, 0, 9).await?, 1, "the last one stays");
    publish(store, 1, 41).await?;
    commit(store.as_ref(), promises([5])).await?;
    assert_eq!(pending(store).await?, [5]);
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(pending(store).await?, [1, 5]);
    Ok(())
}

/// How far the line is published is known as long as there is a line, whatever of it is still kept.
pub async fn what_is_trimmed_does_not_move_the_line(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), of_sagas([(1, 1), (2, 2), (3, 2)])).await?;
    publish(store, 1, 10).await?;
    refuse(store, 2).await?;
    trimmed(store, 99).await?;
    commit(store.as_ref(), of_sagas([(4, 4)])).await?;
    for _ in 0..2 {
        let stats = store.stats().await?;
        assert_eq!((stats.outbox_pending, stats.outbox_failed), (1, 2), "the fourth, and two behind it");
        trimmed(store, 99).await?;
    }
    Ok(())
}

/// Whoever knows when a stream was made knows by it whether the stream is younger than what was published to it.
pub async fn what_is_kept_says_since_when(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    assert_eq!(store.kept_since().await?, None, "nothing is published");
    for second in [10, 20, 30] {
        publish(store, 1, second).await?;
        assert_eq!(store.kept_since().await?, Some(at(10)), "after {second} s");
    }
    assert_eq!(again(store, 0, 9).await?, 3);
    assert_eq!(store.kept_since().await?, None, "all of it is to be published again");
    publish(store, 3, 40).await?;
    assert_eq!(store.kept_since().await?, None, "whatever stream has it now");
    commit(store.as_ref(), promises([4])).await?;
    publish(store, 1, 50).await?;
    assert_eq!(store.kept_since().await?, Some(at(50)));
    trimmed(store, 45).await?;
    assert_eq!(store.kept_since().await?, Some(at(50)));
    Ok(())
}

pub async fn a_settlement_repeated_counts_nothing(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let published = Published { done: seqs(store).await?, ..Published::default() };
    assert!(store.settle(&lease, published.clone(), at(5)).await?);
    assert!(store.settle(&lease, published, at(6)).await?);
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 1)].into());
    Ok(())
}

/// Law 2: what the broker will never take waits visibly for an operator, and holds up nothing.
pub async fn a_refused_entry_fails_and_the_others_go_on(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    refuse(store, 2).await?;
    assert_eq!(pending(store).await?, [1, 3]);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (2, 1));

    let items = store.outbox(10).await?;
    let seen: Vec<_> = items
        .iter()
        .map(|item| (item.id, &item.status[..], item.attempts, item.last_error.as_deref()))
        .collect();
    let failed = (id(2), "FAILED", 1, Some("too large"));
    assert_eq!(seen, [(id(1), "PENDING", 0, None), failed, (id(3), "PENDING", 0, None)]);
    assert_eq!(items[1].created_at, at(0));
    assert_eq!(store.outbox(2).await?.len(), 2);
    Ok(())
}

pub async fn failed_entries_are_put_back_in_line(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3, 4])).await?;
    let all = seqs(store).await?;
    for number in [1, 2, 4] {
        refuse(store, number).await?;
    }
    assert_eq!(pending(store).await?, [3]);
    assert_eq!(store.retry_failed(Some(all[1])).await?, 1);
    assert_eq!(pending(store).await?, [2, 3], "in its old place");
    assert_eq!(store.retry_failed(Some(all[2])).await?, 0, "it has not failed");
    assert_eq!(store.retry_failed(None).await?, 2);
    assert_eq!(pending(store).await?, [1, 2, 3, 4]);
    Ok(())
}

/// Facts about one thing never overtake each other, not even while the broker cannot take the first.
pub async fn a_delayed_entry_holds_up_what_is_behind_it(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let seqs = seqs(store).await?;
    let (done, delayed) = (vec![seqs[0]], Some((seqs[1], "no answer".to_owned())));
    store.settle(&lease, Published { done, delayed, ..Published::default() }, at(5)).await?;
    assert_eq!(pending(store).await?, [2, 3]);
    let item = &store.outbox(1).await?[0];
    assert_eq!((item.attempts, item.last_error.as_deref()), (1, Some("no answer")));
    assert_eq!(store.stats().await?.outbox_oldest, Some(at(0)));
    Ok(())
}

pub async fn one_owner_at_a_time_holds_the_lease(store: &Arc<dyn Store>) -> Promise {
    let first = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    assert_eq!(lease(store, None, "depot-2", 9).await?, None);
    let second = lease(store, None, "depot-2", 10).await?.expect("it has lapsed");
    assert!(second.fence > first.fence);
    assert_eq!((&first.owner[..], &second.owner[..]), ("depot-1", "depot-2"));
    assert_eq!(lease(store, None, "depot-1", 19).await?, None);
    Ok(())
}

pub async fn a_renewal_keeps_its_fence(store: &Arc<dyn Store>) -> Promise {
    let taken = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let renewed = lease(store, Some(&taken), "depot-1", 5).await?.expect("it is the holder");
    assert_eq!(renewed, taken);
    assert_eq!(lease(store, None, "depot-2", 14).await?, None, "it lasts from the renewal");
    assert!(lease(store, None, "depot-2", 15).await?.is_some());
    Ok(())
}

pub async fn a_restarted_owner_gets_a_higher_fence_at_once(store: &Arc<dyn Store>) -> Promise {
    let before = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let after = lease(store, None, "depot-1", 1).await?.expect("its earlier life is over");
    assert!(after.fence > before.fence);
    commit(store.as_ref(), promises([1])).await?;
    let published = Published { done: seqs(store).await?, ..Published::default() };
    assert!(!store.settle(&before, published.clone(), at(2)).await?, "the earlier life is over");
    assert!(store.settle(&after, published, at(2)).await?);
    Ok(())
}

pub async fn a_lapsed_owner_cannot_settle(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    let first = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let second = lease(store, None, "depot-2", 10).await?.expect("it has lapsed");
    let seqs = seqs(store).await?;
    let settlement = Published {
        done: vec![seqs[0]],
        refused: vec![(seqs[1], "too large".to_owned())],
        delayed: Some((seqs[2], "no answer".to_owned())),
    };
    assert!(!store.settle(&first, settlement.clone(), at(11)).await?);
    assert_eq!(pending(store).await?, [1, 2, 3]);
    assert!(store.outbox(10).await?.iter().all(|item| item.attempts == 0));
    assert!(store.tallies().await?.published.is_empty());

    assert!(store.settle(&second, settlement, at(11)).await?);
    assert_eq!(store.stats().await?.outbox_pending, 1);
    Ok(())
}

pub async fn a_lapsed_owner_cannot_renew(store: &Arc<dyn Store>) -> Promise {
    let first = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let second = lease(store, None, "depot-2", 10).await?.expect("it has lapsed");
    assert_eq!(lease(store, Some(&first), "depot-1", 11).await?, None);
    assert_eq!(lease(store, Some(&second), "depot-2", 12).await?, Some(second));
    Ok(())
}

pub async fn a_lease_of_a_clock_that_was_ahead_is_taken_over(store: &Arc<dyn Store>) -> Promise {
    let ahead = lease(store, None, "depot-1", 3600).await?.expect("nobody holds it");
    let second = lease(store, None, "depot-2", 0).await?.expect("it ends later than any can");
    assert_eq!((second.fence, lease(store, Some(&ahead), "depot-1", 1).await?), (ahead.fence + 1, None));

    // One of a clock that is a little ahead is believed.
    assert_eq!(lease(store, None, "depot-1", -9).await?, None);
    Ok(())
}

pub async fn leases_of_different_names_are_held_by_whoever_took_each(store: &Arc<dyn Store>) -> Promise {
    let take = |name, owner, second| store.take_lease(name, None, owner, at(second), at(second + 10));
    assert!(take(RELAY, "depot-1", 0).await?.is_some());
    assert!(take("inventory", "depot-2", 1).await?.is_some(), "that of the relay is another");
    assert!(take("inventory", "depot-1", 2).await?.is_none());
    assert!(take("inventory", "depot-1", 12).await?.is_some(), "it has lapsed");
    assert!(take(RELAY, "depot-2", 9).await?.is_none(), "nor is that of the relay touched");
    Ok(())
}

/// Takes or renews the lease for ten seconds.
async fn lease(
    store: &Arc<dyn Store>,
    held: Option<&Lease>,
    owner: &str,
    second: i64,
) -> Result<Option<Lease>, StoreFault> {
    store.take_lease(RELAY, held, owner, at(second), at(second + 10)).await
}

/// Messages, each of a saga.
fn of_sagas(numbers: impl IntoIterator<Item = (u128, u128)>) -> Writes {
    let promise = |(number, saga)| OutboxWrite { saga: id(saga), ..promise(number, None) };
    Writes { outbox: numbers.into_iter().map(promise).collect(), decided_at: at(0), ..Writes::default() }
}

/// The broker takes the next so many.
async fn publish(store: &Arc<dyn Store>, count: usize, second: i64) -> Promise {
    let lease = lease(store, None, "depot-1", second).await?.expect("nobody else is there");
    let done = store.pending(100).await?.iter().take(count).map(|entry| entry.seq).collect();
    assert!(store.settle(&lease, Published { done, ..Published::default() }, at(second)).await?);
    Ok(())
}

/// Has everything published again that was published since then; answers how many.
async fn again(store: &Arc<dyn Store>, since: i64, limit: usize) -> Result<usize, StoreFault> {
    let (mut count, mut after) = (0, 0);
    loop {
        let marked = store.republish(at(since), after, limit).await?;
        let Some(last) = marked.last else { return Ok(count) };
        (count, after) = (count + marked.count, last);
    }
}

async fn trimmed(store: &Arc<dyn Store>, published: i64) -> Result<u64, StoreFault> {
    store.trim(Cutoffs { inbox: at(0), keys: at(0), published: at(published) }, 100).await
}

/// The numbers of the messages that may be published.
async fn pending(store: &Arc<dyn Store>) -> Result<Vec<u128>, StoreFault> {
    Ok(store.pending(100).await?.iter().map(|entry| entry.id.as_u128()).collect())
}

/// Where all entries stand.
async fn seqs(store: &Arc<dyn Store>) -> Result<Vec<i64>, StoreFault> {
    Ok(store.outbox(100).await?.iter().map(|item| item.seq).collect())
}

async fn refuse(store: &Arc<dyn Store>, number: u128) -> Promise {
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody else is there");
    let items = store.outbox(100).await?;
    let item = items.iter().find(|item| item.id == id(number)).expect("the entry");
    let published = Published { refused: vec![(item.seq, "too large".to_owned())], ..Published::default() };
    assert!(store.settle(&lease, published, at(0)).await?);
    Ok(())
}
