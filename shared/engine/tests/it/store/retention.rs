//! Conformance: purging of old events and dead dead_letters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decision::{Reads, Writes};
use saga_engine::store::{PurgeBatch, RetentionCutoffs, Store, StoreFault, VerificationPart};

use crate::support::{ShelfEvent, at, commit, dead, load, put, recorded, shelf, state};

type Outcome = Result<(), StoreFault>;

/// Cutoffs that purge events before this second.
fn events_before(second: i64) -> RetentionCutoffs {
    RetentionCutoffs { history: at(second), began: at(second), dead_letters: Timestamp::MIN }
}

/// Cutoffs that purge dead dead_letters before this second.
fn dead_letters_before(second: i64) -> RetentionCutoffs {
    RetentionCutoffs { history: Timestamp::MIN, began: Timestamp::MIN, dead_letters: at(second) }
}

/// Commits the next events of a shelf at this second.
async fn record(
    store: &dyn Store,
    label: &str,
    before: &mut Vec<ShelfEvent>,
    new: &[ShelfEvent],
    second: i64,
) -> Outcome {
    let writes = Writes { decided_at: at(second), ..recorded(label, before, new) };
    before.extend_from_slice(new);
    commit(store, writes).await
}

/// Purges everything that may be purged. Returns all batches as one.
async fn purge_all(
    store: &dyn Store,
    before: RetentionCutoffs,
    limit: usize,
) -> Result<Vec<PurgeBatch>, StoreFault> {
    let mut left = Vec::new();
    for _ in 0..1_000 {
        let batch = store.find_purgeable(before, limit).await?;
        if batch.is_over() {
            return Ok(left);
        }
        let count = store.purge(batch.clone()).await?;
        assert_eq!(count, (batch.events.len() + batch.dead_letters.len()) as u64);
        left.push(batch);
    }
    panic!("it never ends")
}

pub async fn old_events_are_purged_behind_snapshot(store: &dyn Store) -> Outcome {
    let mut tea = Vec::new();
    for second in 1..=9 {
        record(store, "tea", &mut tea, &[put(1)], second).await?;
    }
    let before = (state(store, "tea").await?, store.verify().await?);
    let left = purge_all(store, events_before(6), 100).await?;
    let versions: Vec<_> = left.iter().flat_map(|left| &left.events).map(|left| left.event.version).collect();
    assert_eq!(versions, [1, 2, 3, 4], "the last of the old ones stays");
    let kept: Vec<_> = store.events(shelf("tea"), 0, 99).await?.iter().map(|event| event.version).collect();
    assert_eq!(kept, [5, 6, 7, 8, 9]);

    let after = store.verify().await?;
    assert_eq!((after.differing, &after.digest), (vec![], &before.1.digest));
    assert_eq!((after.rows, after.events), (1, 5));
    assert_eq!(store.rebuild("shelf").await?, 1);
    assert_eq!(store.verify().await?.digest, before.1.digest, "the same, in every column");
    record(store, "tea", &mut tea, &[put(5)], 10).await?;
    assert_eq!(store.verify().await?.differing, [""; 0]);
    assert_eq!(state(store, "tea").await?.map(|tea| tea.pieces), Some(14));
    Ok(())
}

/// Histories grow and are purged in turn, by scans of any size.
pub async fn rows_equal_their_folds_after_any_purge(store: &dyn Store) -> Outcome {
    let mut random = fastrand::Rng::with_seed(9);
    let mut histories: BTreeMap<String, Vec<ShelfEvent>> = BTreeMap::new();
    for second in 1..=120 {
        for _ in 0..random.usize(0..4) {
            let label = format!("shelf {}", random.u8(0..5));
            let new: Vec<_> = (0..random.usize(1..4)).map(|_| put(random.u32(1..9))).collect();
            record(store, &label.clone(), histories.entry(label).or_default(), &new, second).await?;
        }
        if random.u8(0..3) == 0 {
            let before = store.verify().await?;
            purge_all(store, events_before(second - random.i64(0..20)), random.usize(1..30)).await?;
            let after = store.verify().await?;
            assert_eq!((after.differing, after.digest), (vec![], before.digest.clone()), "second {second}");
            store.rebuild("shelf").await?;
            assert_eq!(store.verify().await?.digest, before.digest, "second {second}");
        }
    }
    for (label, history) in &histories {
        let version = store.row(shelf(label)).await?.map(|row| row.version);
        assert_eq!(version, i64::try_from(history.len()).ok(), "{label}");
    }
    Ok(())
}

/// Rows change and events are purged between the parts. Each row is verified once.
pub async fn verification_in_parts_reports_no_correct_row_during_purge(store: &dyn Store) -> Outcome {
    let mut random = fastrand::Rng::with_seed(11);
    let mut histories: BTreeMap<String, Vec<ShelfEvent>> = BTreeMap::new();
    let (mut after, mut whole, mut rows, mut scans, mut first_rows) = (None, 0, 0, 0, 0);
    for second in 1..=150 {
        for _ in 0..random.usize(0..3) {
            let label = format!("shelf {}@{}", random.u8(0..5), random.u8(0..2));
            record(store, &label.clone(), histories.entry(label).or_default(), &[put(1)], second).await?;
        }
        if random.u8(0..4) == 0 {
            purge_all(store, events_before(second - random.i64(0..20)), random.usize(1..30)).await?;
        }
        if after.is_none() {
            first_rows = histories.len() as u64;
        }
        let events = random.u64(1..30);
        let part =
            store.verify_part(VerificationPart { after, events, ..VerificationPart::default() }).await?;
        assert_eq!(part.differing, [""; 0], "second {second}");
        rows += part.rows;
        scans += u32::from(part.next.as_ref().is_some_and(|next| next.starts_with("shelf@")));
        after = part.next;
        if after.is_none() {
            assert!((first_rows..=histories.len() as u64).contains(&rows), "each once: {rows}");
            (whole, rows) = (whole + 1, 0);
        }
    }
    assert!(whole > 5 && scans > 30, "{whole} verifications, {scans} parts by scans of the log");
    Ok(())
}

/// Purged and kept events together are the whole history, without duplicates.
pub async fn purge_batch_contains_every_purged_event(store: &dyn Store) -> Outcome {
    let labels = ["tea", "coffee"];
    let mut histories = [Vec::new(), Vec::new()];
    for second in 1..=20 {
        for (label, history) in labels.iter().zip(&mut histories) {
            record(store, label, history, &[put(1), ShelfEvent::Listed], second).await?;
        }
    }
    let mut all: BTreeMap<_, _> = BTreeMap::new();
    for label in labels {
        all.insert(label.to_owned(), store.events(shelf(label), 0, 99).await?);
    }
    for limit in [1, 2, 7] {
        let second = 4 + 4 * i64::try_from(limit).expect("small");
        for left in purge_all(store, events_before(second.min(20)), limit).await? {
            for left in left.events {
                let of_row = all.get_mut(&left.row).expect("one of the two");
                assert_eq!(of_row.remove(0), left.event, "oldest first, as it was");
            }
        }
    }
    for (label, rest) in all {
        assert_eq!(store.events(shelf(&label), 0, 99).await?, rest);
        assert!(rest.len() < 10, "{label} has {}", rest.len());
    }
    Ok(())
}

pub async fn last_event_of_row_is_kept_and_position_is_known(store: &dyn Store) -> Outcome {
    let (mut tea, mut coffee) = (Vec::new(), Vec::new());
    record(store, "tea", &mut tea, &[put(1), put(2)], 1).await?;
    record(store, "coffee", &mut coffee, &[put(1), put(2), put(3)], 2).await?;
    let mark = store.position().await?;
    purge_all(store, events_before(99), 10).await?;
    assert_eq!(store.position().await?, mark);
    assert_eq!(store.events(shelf("tea"), 0, 99).await?.len(), 1);
    // The very last one is not looked at before another follows it.
    assert_eq!(store.events(shelf("coffee"), 0, 99).await?.len(), 2);
    record(store, "tea", &mut tea, &[put(3)], 3).await?;
    purge_all(store, events_before(99), 10).await?;
    assert_eq!(store.events(shelf("coffee"), 0, 99).await?.len(), 1);
    assert_eq!(store.position().await?.events, mark.events + 1);
    Ok(())
}

pub async fn same_scan_is_purged_once(store: &dyn Store) -> Outcome {
    let mut tea = Vec::new();
    for second in 1..=5 {
        record(store, "tea", &mut tea, &[put(1)], second).await?;
    }
    let (first, second) =
        (store.find_purgeable(events_before(3), 9).await?, store.find_purgeable(events_before(5), 9).await?);
    assert_eq!((store.purge(second).await?, store.purge(first).await?), (3, 0));
    assert_eq!(store.verify().await?.differing, [""; 0]);
    Ok(())
}

/// A snapshot would hide the gap.
pub async fn history_with_gap_is_not_purged(store: &dyn Store) -> Outcome {
    let (mut tea, mut coffee) = (Vec::new(), Vec::new());
    record(store, "tea", &mut tea, &[put(1)], 1).await?;
    let mut lost = recorded("tea", &tea, &[put(2), put(3)]);
    lost.events.remove(0);
    commit(store, Writes { decided_at: at(2), ..lost }).await?;
    record(store, "coffee", &mut coffee, &[put(1), put(2)], 3).await?;
    record(store, "coffee", &mut coffee, &[put(3), put(4)], 4).await?;
    let before = store.verify().await?;
    assert_eq!(before.differing, ["shelf/tea"]);
    let mut whole = recorded("tea", &[put(1), put(2), put(3)], &[put(4), put(5)]);
    whole.decided_at = at(5);
    commit(store, whole).await?;
    purge_all(store, events_before(9), 10).await?;
    assert_eq!(store.verify().await?.differing, ["shelf/tea"], "the gap is still reported");
    assert_eq!(store.events(shelf("tea"), 0, 99).await?.len(), 4);
    assert_eq!(store.events(shelf("coffee"), 0, 99).await?.len(), 1);
    Ok(())
}

/// Stores dead dead_letters that failed at the second of their number, with these statuses.
async fn store_dead_letters(store: &dyn Store, dead_letters: &[(u128, DeadLetterStatus)]) -> Outcome {
    let letter = |number: u128| dead("filling", number, at(i64::try_from(number).expect("small")));
    let new = dead_letters.iter().map(|(number, _)| letter(*number)).collect();
    commit(store, Writes { new_dead_letters: new, ..Writes::default() }).await?;
    let stored = |(number, status): &(u128, DeadLetterStatus)| {
        let dead_letter = letter(*number);
        StoredDeadLetter { status: *status, revision: 1, inbox_id: dead_letter.message_id, dead_letter }
    };
    let dead_letters = dead_letters.iter().map(stored).collect();
    commit(store, Writes { changed_dead_letters: dead_letters, ..Writes::default() }).await
}

pub async fn closed_dead_letters_are_purged_and_stay_counted(store: &dyn Store) -> Outcome {
    use DeadLetterStatus::{Discarded, Pending, Replaying, Resolved};
    let dead_letters =
        [(1, Pending), (2, Replaying), (3, Resolved), (4, Discarded), (5, Discarded), (60, Resolved)];
    store_dead_letters(store, &dead_letters).await?;
    let before = store.message_counts().await?.dead;
    assert_eq!(before, [("filling".to_owned(), 3)].into());
    let left = purge_all(store, dead_letters_before(50), 2).await?;
    assert_eq!(left.len(), 2, "two at a time");
    let left: Vec<_> = left.iter().flat_map(|left| &left.dead_letters).map(|left| left.status).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    let stayed: Vec<_> = store.dead_letters(9).await?.readable.iter().map(|stored| stored.status).collect();
    assert_eq!(stayed, [Resolved, Replaying, Pending], "newest first");
    assert_eq!(store.message_counts().await?.dead, before);
    Ok(())
}

pub async fn reopened_dead_letter_is_not_purged(store: &dyn Store) -> Outcome {
    store_dead_letters(store, &[(1, DeadLetterStatus::Discarded)]).await?;
    let batch = store.find_purgeable(dead_letters_before(9), 9).await?;
    assert_eq!(batch.dead_letters.len(), 1);
    // Somebody restores it before it has left; and something given up only now is young, whenever it failed.
    let mut restored = batch.dead_letters[0].clone();
    (restored.status, restored.revision) = (DeadLetterStatus::Pending, 2);
    let dead_letters = vec![restored.clone()];
    commit(store, Writes { changed_dead_letters: dead_letters, ..Writes::default() }).await?;
    assert_eq!(store.purge(batch).await?, 0);
    restored.status = DeadLetterStatus::Discarded;
    restored.revision = u64::try_from(at(20).as_microsecond()).expect("a time after 1970");
    let (id, dead_letters) = (restored.dead_letter.id, vec![restored]);
    commit(store, Writes { changed_dead_letters: dead_letters, ..Writes::default() }).await?;
    assert!(store.find_purgeable(dead_letters_before(15), 9).await?.is_over());
    let reads = Reads { dead_letters: [id].into(), ..Reads::default() };
    assert_eq!(load(store, reads).await?.dead_letters.len(), 1);
    assert_eq!(purge_all(store, dead_letters_before(25), 9).await?.len(), 1);
    Ok(())
}
