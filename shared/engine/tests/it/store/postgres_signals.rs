//! PostgreSQL: signals between replicas, as two stores with connections of their own.

use std::collections::BTreeSet;
use std::time::Duration;

use saga_core::decision::Writes;
use saga_engine::store::postgres::PostgresStore;
use saga_engine::store::roles::{Leases as _, Overrides as _, Replicas as _};
use saga_engine::store::{RELAY_LEASE, ReplicaSignal, StoredOverrides};
use tokio::sync::mpsc::Receiver;

use super::postgres_shared::{Outcome, two_replicas};
use crate::support::{at, commit, in_time, outbox_writes, put, recorded, retry, shelf};

/// A commit wakes the other replica's relay, timers and watchers of rows.
#[tokio::test(flavor = "multi_thread")]
async fn commit_is_signalled_to_other_replica() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let mut signals = other.signals().expect("they may share it");
    assert!(other.signals().is_none(), "to one who listens");
    let mut own = one.signals().expect("they may share it");
    until_signalled(&one, &mut signals).await?;
    let writes = Writes {
        retries: vec![retry("filling", 8, at(30)), retry("filling", 9, at(32))],
        outbox: outbox_writes([1]).outbox,
        decided_at: at(29),
        ..recorded("tea", &[], &[put(1)])
    };
    commit(one.as_ref(), writes).await?;
    let wanted = [
        ReplicaSignal::EntriesStored,
        ReplicaSignal::Due(at(30)),
        ReplicaSignal::RowsChanged(vec![shelf("tea")]),
    ];
    let mut all = vec![];
    while all.last() != Some(&wanted[2]) {
        all.push(next(&mut signals).await);
    }
    assert!(all.ends_with(&wanted), "{all:?}");
    commit(other.as_ref(), outbox_writes([2])).await?;
    assert_eq!(next(&mut own).await, ReplicaSignal::EntriesStored, "and nothing of its own before");
    Ok(())
}

/// Polling finds work that is due later.
#[tokio::test(flavor = "multi_thread")]
async fn distant_due_time_is_not_signalled() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let mut signals = other.signals().expect("they may share it");
    until_signalled(&one, &mut signals).await?;
    let later =
        Writes { retries: vec![retry("filling", 9, at(31))], decided_at: at(29), ..Writes::default() };
    commit(one.as_ref(), later).await?;
    commit(one.as_ref(), recorded("tea", &[], &[put(1)])).await?;
    let mut all = vec![];
    while all.last() != Some(&ReplicaSignal::RowsChanged(vec![shelf("tea")])) {
        all.push(next(&mut signals).await);
    }
    assert!(!all.contains(&ReplicaSignal::Due(at(31))), "{all:?}");
    Ok(())
}

/// The leader publishes its own entries, so that no other relay need wake up.
#[tokio::test(flavor = "multi_thread")]
async fn leader_does_not_signal_its_own_entries() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let leads = |store: &PostgresStore| *store.leadership().expect("they may share it").borrow();
    assert!(!leads(&one) && !leads(&other), "nobody yet");
    let held = one.acquire_lease(RELAY_LEASE, None, "depot-1", at(0), at(10)).await?.expect("nobody has it");
    assert_eq!(other.acquire_lease(RELAY_LEASE, None, "depot-2", at(1), at(11)).await?, None);
    one.acquire_lease("audit", None, "depot-1", at(0), at(10)).await?;
    assert!(leads(&one) && !leads(&other));

    let mut signals = other.signals().expect("they may share it");
    commit(one.as_ref(), outbox_writes([1])).await?;
    commit(one.as_ref(), recorded("tea", &[], &[put(1)])).await?;
    let mut all = vec![];
    while all.last() != Some(&ReplicaSignal::RowsChanged(vec![shelf("tea")])) {
        all.push(next(&mut signals).await);
    }
    assert!(!all.contains(&ReplicaSignal::EntriesStored), "{all:?}");

    other.acquire_lease(RELAY_LEASE, None, "depot-2", at(11), at(21)).await?.expect("it has lapsed");
    assert!(leads(&one) && leads(&other), "one has not looked yet");
    assert_eq!(one.acquire_lease(RELAY_LEASE, Some(&held), "depot-1", at(12), at(22)).await?, None);
    assert!(!leads(&one) && leads(&other));
    other.release_lease(RELAY_LEASE, "depot-2").await?;
    assert!(!leads(&other));
    Ok(())
}

/// Signals of rows that no replica watches would be wasted.
#[tokio::test(flavor = "multi_thread")]
async fn changed_rows_are_signalled_only_for_watched_kinds() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let mut signals = other.signals().expect("they may share it");
    let mut count = 0;
    // A change of a shelf is signalled right after the entries of its batch, if at all.
    let mut is_signalled = async || {
        let before = vec![put(1); count];
        count += 1;
        let writes = Writes {
            outbox: outbox_writes([5_000 + count as u128]).outbox,
            ..recorded("tea", &before, &[put(1)])
        };
        commit(one.as_ref(), writes).await.expect("a batch");
        while next(&mut signals).await != ReplicaSignal::EntriesStored {}
        let changed = tokio::time::timeout(Duration::from_millis(50), signals.recv()).await;
        matches!(changed, Ok(Some(ReplicaSignal::RowsChanged(_))))
    };
    // Right after a start it is not known who waits for what.
    assert!(is_signalled().await);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while is_signalled().await {
        assert!(tokio::time::Instant::now() < until, "signalled although no replica waits");
    }
    let waits = other.watch_kind("shelf");
    while !is_signalled().await {
        assert!(tokio::time::Instant::now() < until, "not signalled although a replica waits");
    }
    drop(waits);
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while is_signalled().await {
        assert!(tokio::time::Instant::now() < until, "signalled although no replica waits any more");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_overrides_are_signalled() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let mut signals = other.signals().expect("they may share it");
    until_signalled(&one, &mut signals).await?;
    assert!(one.replace_overrides(0, "one".to_owned()).await?);
    while next(&mut signals).await != ReplicaSignal::OverridesChanged {}
    assert_eq!(other.overrides().await?, StoredOverrides { revision: 1, text: "one".to_owned() });
    Ok(())
}

/// The rows do not fit into one notification.
#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_large_batch_is_signalled() -> Outcome {
    let (_server, [one, other]) = two_replicas().await;
    let mut signals = other.signals().expect("they may share it");
    until_signalled(&one, &mut signals).await?;
    let labels: Vec<String> =
        (0..256).map(|number| format!("a label of some length, as ids are, {number:03}")).collect();
    let mut all = Writes { decided_at: at(0), ..Writes::default() };
    for label in &labels {
        let Writes { rows, events, .. } = recorded(label, &[], &[put(1)]);
        all.rows.extend(rows);
        all.events.extend(events);
    }
    commit(one.as_ref(), all).await?;
    let mut changed = BTreeSet::new();
    while changed.len() < labels.len() {
        if let ReplicaSignal::RowsChanged(rows) = next(&mut signals).await {
            changed.extend(rows.into_iter().map(|key| key.id));
        }
    }
    assert_eq!(changed, labels.into_iter().collect());
    Ok(())
}

/// Waits until each replica has received a signal of the other: before that, they send nothing.
async fn until_signalled(one: &PostgresStore, signals: &mut Receiver<ReplicaSignal>) -> Outcome {
    for number in 1_000.. {
        commit(one, outbox_writes([number])).await?;
        if tokio::time::timeout(Duration::from_millis(50), signals.recv()).await.is_ok() {
            break;
        }
    }
    Ok(())
}

async fn next(signals: &mut Receiver<ReplicaSignal>) -> ReplicaSignal {
    in_time("a signal arrives", signals.recv()).await.expect("it goes on")
}
