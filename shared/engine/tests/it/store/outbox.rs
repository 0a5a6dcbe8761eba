//! Promises to publish, and who may keep them.

use std::sync::Arc;

use jiff::Timestamp;
use saga_core::decision::Writes;
use saga_engine::store::{Lease, Published, Store, StoreFault};

use crate::support::{at, commit, id, promise, promises, put, recorded, shelf};

type Promise = Result<(), StoreFault>;

pub async fn entries_are_published_in_the_order_of_decision(store: &Arc<dyn Store>) -> Promise {
    // Ids that would sort the other way round.
    commit(store.as_ref(), promises([30, 20])).await?;
    commit(store.as_ref(), promises([10, 5])).await?;
    assert_eq!(pending(store, at(1)).await?, [30, 20, 10, 5]);
    let oldest = store.pending(at(1), 3).await?;
    assert_eq!(oldest.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(30), id(20), id(10)]);
    assert_eq!((&oldest[0].subject[..], &oldest[0].payload[..]), ("depot.stored", &b"payload 30"[..]));
    Ok(())
}

pub async fn a_settled_entry_is_gone_counted_and_its_event_stamped(store: &Arc<dyn Store>) -> Promise {
    let told = vec![promise(1, Some(1)), promise(2, None)];
    commit(store.as_ref(), Writes { outbox: told, ..recorded("tea", &[], &[put(1), put(2)]) }).await?;
    commit(store.as_ref(), promises([3])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let done = seqs(store).await?;
    let published = Published { done: done[..2].to_vec(), ..Published::default() };
    assert!(store.settle(&lease, published, at(5)).await?);

    assert_eq!(pending(store, at(5)).await?, [3]);
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 2)].into());
    let stamps: Vec<_> =
        store.events(shelf("tea"), 0, usize::MAX).await?.iter().map(|event| event.published_at).collect();
    assert_eq!(stamps, [None, Some(at(5))]);
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
    assert_eq!(pending(store, at(1)).await?, [1, 3]);
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
    assert_eq!(pending(store, at(1)).await?, [3]);
    assert_eq!(store.retry_failed(Some(all[1])).await?, 1);
    assert_eq!(pending(store, at(1)).await?, [2, 3], "in its old place");
    assert_eq!(store.retry_failed(Some(all[2])).await?, 0, "it has not failed");
    assert_eq!(store.retry_failed(None).await?, 2);
    assert_eq!(pending(store, at(1)).await?, [1, 2, 3, 4]);
    Ok(())
}

/// Facts about one thing never overtake each other, not even while the broker cannot take the first.
pub async fn a_delayed_entry_holds_up_what_is_behind_it(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let seqs = seqs(store).await?;
    let (done, delayed) = (vec![seqs[0]], Some((seqs[1], "no answer".to_owned())));
    store.settle(&lease, Published { done, delayed, ..Published::default() }, at(5)).await?;
    assert_eq!(pending(store, at(5)).await?, Vec::<u128>::new());
    assert_eq!(pending(store, at(65)).await?, [2, 3], "an outage ends nothing, however long");
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
    assert_eq!(pending(store, at(11)).await?, [1, 2, 3]);
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

pub async fn an_entry_that_a_clock_that_was_ahead_put_off_is_not_held_up(store: &Arc<dyn Store>) -> Promise {
    commit(store.as_ref(), promises(1..=2)).await?;
    let lease = lease(store, None, "depot-1", 0).await?.expect("nobody holds it");
    let first = seqs(store).await?[0];
    let published = Published { delayed: Some((first, "away".to_owned())), ..Published::default() };
    assert!(store.settle(&lease, published, at(3600)).await?);
    assert_eq!(pending(store, at(0)).await?, [1, 2]);
    assert_eq!(pending(store, at(3600)).await?, [] as [u128; 0], "its own time is believed");
    Ok(())
}

/// Takes or renews the lease for ten seconds.
async fn lease(
    store: &Arc<dyn Store>,
    held: Option<&Lease>,
    owner: &str,
    second: i64,
) -> Result<Option<Lease>, StoreFault> {
    store.take_lease(held, owner, at(second), at(second + 10)).await
}

/// The numbers of the messages that may be published at `now`.
async fn pending(store: &Arc<dyn Store>, now: Timestamp) -> Result<Vec<u128>, StoreFault> {
    Ok(store.pending(now, 100).await?.iter().map(|entry| entry.id.as_u128()).collect())
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
