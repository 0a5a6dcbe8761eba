//! What leaves the tables when it is old, and what must not be told apart afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decision::{Reads, Writes};
use saga_engine::store::{Departures, Leaving, Part, Store, StoreFault};

use crate::support::{ShelfEvent, at, commit, dead, load, put, recorded, shelf, state};

type Promise = Result<(), StoreFault>;

/// Events before this second.
fn events_before(second: i64) -> Departures {
    Departures { history: at(second), began: at(second), dead_letters: Timestamp::MIN }
}

/// Dead letters before this second.
fn letters_before(second: i64) -> Departures {
    Departures { history: Timestamp::MIN, began: Timestamp::MIN, dead_letters: at(second) }
}

/// Records the next events of a shelf, at this second.
async fn record(
    store: &Arc<dyn Store>,
    label: &str,
    before: &mut Vec<ShelfEvent>,
    new: &[ShelfEvent],
    second: i64,
) -> Promise {
    let writes = Writes { decided_at: at(second), ..recorded(label, before, new) };
    before.extend_from_slice(new);
    commit(store.as_ref(), writes).await
}

/// Has everything leave that may, and answers what has left.
async fn all_leave(
    store: &Arc<dyn Store>,
    before: Departures,
    limit: usize,
) -> Result<Vec<Leaving>, StoreFault> {
    let mut left = Vec::new();
    for _ in 0..1_000 {
        let leaving = store.departures(before, limit).await?;
        if leaving.is_over() {
            return Ok(left);
        }
        let count = store.depart(leaving.clone()).await?;
        assert_eq!(count, (leaving.events.len() + leaving.dead_letters.len()) as u64);
        left.push(leaving);
    }
    panic!("it never ends")
}

pub async fn old_events_leave_and_a_snapshot_stands_for_them(store: &Arc<dyn Store>) -> Promise {
    let mut tea = Vec::new();
    for second in 1..=9 {
        record(store, "tea", &mut tea, &[put(1)], second).await?;
    }
    let before = (state(store.as_ref(), "tea").await?, store.verify().await?);
    let left = all_leave(store, events_before(6), 100).await?;
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
    assert_eq!(state(store.as_ref(), "tea").await?.map(|tea| tea.pieces), Some(14));
    Ok(())
}

/// Histories that grow and leave in turns, in looks of any size.
pub async fn whatever_has_left_every_row_is_the_fold_of_its_events(store: &Arc<dyn Store>) -> Promise {
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
            all_leave(store, events_before(second - random.i64(0..20)), random.usize(1..30)).await?;
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

/// Rows change and events leave between its parts: each row is looked at once.
pub async fn a_check_in_parts_tells_of_no_row_that_is_right(store: &Arc<dyn Store>) -> Promise {
    let mut random = fastrand::Rng::with_seed(11);
    let mut histories: BTreeMap<String, Vec<ShelfEvent>> = BTreeMap::new();
    let (mut after, mut whole, mut rows, mut along, mut at_first) = (None, 0, 0, 0, 0);
    for second in 1..=150 {
        for _ in 0..random.usize(0..3) {
            let label = format!("shelf {}@{}", random.u8(0..5), random.u8(0..2));
            record(store, &label.clone(), histories.entry(label).or_default(), &[put(1)], second).await?;
        }
        if random.u8(0..4) == 0 {
            all_leave(store, events_before(second - random.i64(0..20)), random.usize(1..30)).await?;
        }
        if after.is_none() {
            at_first = histories.len() as u64;
        }
        let events = random.u64(1..30);
        let part = store.verify_part(Part { after, events, ..Part::default() }).await?;
        assert_eq!(part.differing, [""; 0], "second {second}");
        rows += part.rows;
        along += u32::from(part.next.as_ref().is_some_and(|next| next.starts_with("shelf@")));
        after = part.next;
        if after.is_none() {
            assert!((at_first..=histories.len() as u64).contains(&rows), "each once: {rows}");
            (whole, rows) = (whole + 1, 0);
        }
    }
    // What several processes may share is folded row by row.
    let is_along = along > 30 || store.is_shared();
    assert!(whole > 5 && is_along, "{whole} checks, {along} parts along the log");
    Ok(())
}

/// What has left and what has stayed are the whole history, nothing twice.
pub async fn what_leaves_is_all_that_there_was(store: &Arc<dyn Store>) -> Promise {
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
        for left in all_leave(store, events_before(second.min(20)), limit).await? {
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

pub async fn the_last_event_of_a_row_stays_and_how_far_it_had_come_is_known(
    store: &Arc<dyn Store>,
) -> Promise {
    let (mut tea, mut coffee) = (Vec::new(), Vec::new());
    record(store, "tea", &mut tea, &[put(1), put(2)], 1).await?;
    record(store, "coffee", &mut coffee, &[put(1), put(2), put(3)], 2).await?;
    let mark = store.mark().await?;
    all_leave(store, events_before(99), 10).await?;
    assert_eq!(store.mark().await?, mark);
    assert_eq!(store.events(shelf("tea"), 0, 99).await?.len(), 1);
    // The very last one is not looked at before another follows it.
    assert_eq!(store.events(shelf("coffee"), 0, 99).await?.len(), 2);
    record(store, "tea", &mut tea, &[put(3)], 3).await?;
    all_leave(store, events_before(99), 10).await?;
    assert_eq!(store.events(shelf("coffee"), 0, 99).await?.len(), 1);
    assert_eq!(store.mark().await?.events, mark.events + 1);
    Ok(())
}

pub async fn what_somebody_else_looked_through_leaves_once(store: &Arc<dyn Store>) -> Promise {
    let mut tea = Vec::new();
    for second in 1..=5 {
        record(store, "tea", &mut tea, &[put(1)], second).await?;
    }
    let (first, second) =
        (store.departures(events_before(3), 9).await?, store.departures(events_before(5), 9).await?);
    assert_eq!((store.depart(second).await?, store.depart(first).await?), (3, 0));
    assert_eq!(store.verify().await?.differing, [""; 0]);
    Ok(())
}

/// A snapshot would hide that something is missing.
pub async fn a_history_with_a_gap_stays(store: &Arc<dyn Store>) -> Promise {
    let (mut tea, mut coffee) = (Vec::new(), Vec::new());
    record(store, "tea", &mut tea, &[put(1)], 1).await?;
    let mut lost = recorded("tea", &tea, &[put(2), put(3)]);
    lost.events.remove(0);
    commit(store.as_ref(), Writes { decided_at: at(2), ..lost }).await?;
    record(store, "coffee", &mut coffee, &[put(1), put(2)], 3).await?;
    record(store, "coffee", &mut coffee, &[put(3), put(4)], 4).await?;
    let before = store.verify().await?;
    assert_eq!(before.differing, ["shelf/tea"]);
    let mut whole = recorded("tea", &[put(1), put(2), put(3)], &[put(4), put(5)]);
    whole.decided_at = at(5);
    commit(store.as_ref(), whole).await?;
    all_leave(store, events_before(9), 10).await?;
    assert_eq!(store.verify().await?.differing, ["shelf/tea"], "it is told as long as it is so");
    assert_eq!(store.events(shelf("tea"), 0, 99).await?.len(), 4);
    assert_eq!(store.events(shelf("coffee"), 0, 99).await?.len(), 1);
    Ok(())
}

/// Parks dead letters, each failed at the second of its number, and has become of each what is said.
async fn parked(store: &Arc<dyn Store>, letters: &[(u128, DeadLetterStatus)]) -> Promise {
    let letter = |number: u128| dead("filling", number, at(i64::try_from(number).expect("small")));
    let parked = letters.iter().map(|(number, _)| letter(*number)).collect();
    commit(store.as_ref(), Writes { parked, ..Writes::default() }).await?;
    let stored = |(number, status): &(u128, DeadLetterStatus)| {
        let dead_letter = letter(*number);
        StoredDeadLetter { status: *status, revision: 1, known_as: dead_letter.message_id, dead_letter }
    };
    let dead_letters = letters.iter().map(stored).collect();
    commit(store.as_ref(), Writes { dead_letters, ..Writes::default() }).await
}

pub async fn dead_letters_that_are_over_leave_and_are_counted_for_ever(store: &Arc<dyn Store>) -> Promise {
    use DeadLetterStatus::{Discarded, Pending, Replaying, Resolved};
    let letters =
        [(1, Pending), (2, Replaying), (3, Resolved), (4, Discarded), (5, Discarded), (60, Resolved)];
    parked(store, &letters).await?;
    let before = store.tallies().await?.dead;
    assert_eq!(before, [("filling".to_owned(), 3)].into());
    let left = all_leave(store, letters_before(50), 2).await?;
    assert_eq!(left.len(), 2, "two at a time");
    let left: Vec<_> = left.iter().flat_map(|left| &left.dead_letters).map(|left| left.status).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    let stayed: Vec<_> = store.dead_letters(9).await?.readable.iter().map(|stored| stored.status).collect();
    assert_eq!(stayed, [Resolved, Replaying, Pending], "newest first");
    assert_eq!(store.tallies().await?.dead, before);
    Ok(())
}

pub async fn a_dead_letter_that_is_taken_up_again_stays(store: &Arc<dyn Store>) -> Promise {
    parked(store, &[(1, DeadLetterStatus::Discarded)]).await?;
    let leaving = store.departures(letters_before(9), 9).await?;
    assert_eq!(leaving.dead_letters.len(), 1);
    // Somebody restores it before it has left; and something given up only now is young, whenever it failed.
    let mut restored = leaving.dead_letters[0].clone();
    (restored.status, restored.revision) = (DeadLetterStatus::Pending, 2);
    let dead_letters = vec![restored.clone()];
    commit(store.as_ref(), Writes { dead_letters, ..Writes::default() }).await?;
    assert_eq!(store.depart(leaving).await?, 0);
    restored.status = DeadLetterStatus::Discarded;
    restored.revision = u64::try_from(at(20).as_microsecond()).expect("a time after 1970");
    let (id, dead_letters) = (restored.dead_letter.id, vec![restored]);
    commit(store.as_ref(), Writes { dead_letters, ..Writes::default() }).await?;
    assert!(store.departures(letters_before(15), 9).await?.is_over());
    let reads = Reads { dead_letters: [id].into(), ..Reads::default() };
    assert_eq!(load(store.as_ref(), reads).await?.dead_letters.len(), 1);
    assert_eq!(all_leave(store, letters_before(25), 9).await?.len(), 1);
    Ok(())
}
