//! Conformance: queries.

use saga_core::decider::FieldValue;
use saga_core::decision::{Loaded, Reads, Writes};
use saga_core::query::{Group, Join, Joined, Order, Query};
use saga_engine::store::{Store, StoreFault};

use crate::support::{Shelf, ShelfEvent, at, commit, id, put, recorded, shelf};

type Outcome = Result<(), StoreFault>;

pub async fn rows_are_found_by_their_fields(store: &dyn Store) -> Outcome {
    fill(store).await?;
    let listed = ("status", FieldValue::from("LISTED"));
    assert_eq!(find(store, Query { equals: vec![listed.clone()], ..all() }).await?, ["a", "c"]);
    let few = ("pieces", FieldValue::from(20));
    assert_eq!(find(store, Query { below: vec![few.clone()], ..all() }).await?, ["a", "b"]);
    let both = Query { equals: vec![listed], below: vec![few], ..all() };
    assert_eq!(find(store, both).await?, ["a"]);
    let some = |pieces: &[i64]| vec![("pieces", pieces.iter().map(|n| FieldValue::from(*n)).collect())];
    assert_eq!(find(store, Query { one_of: some(&[10, 30, 99]), ..all() }).await?, ["b", "d"]);
    assert_eq!(find(store, Query { one_of: some(&[]), ..all() }).await?, [""; 0]);
    let by_id = ("id", FieldValue::from("b"));
    assert_eq!(find(store, Query { equals: vec![by_id], ..all() }).await?, ["b"]);

    // Fields follow their row.
    commit(store, recorded("d", &[put(30)], &[ShelfEvent::Listed])).await?;
    let listed = vec![("status", FieldValue::from("LISTED"))];
    assert_eq!(find(store, Query { equals: listed, ..all() }).await?, ["a", "c", "d"]);
    Ok(())
}

pub async fn rows_are_found_by_text_in_any_case(store: &dyn Store) -> Outcome {
    fill(store).await?;
    let text = |text: &str| Query { texts: vec![text.to_owned()], ..all() };
    assert_eq!(find(store, text("LISTED\":TRUE")).await?, ["a", "c"]);
    assert_eq!(find(store, text("\"pieces\":30")).await?, ["d"]);
    let both = |texts: [&str; 2]| Query { texts: texts.map(str::to_owned).to_vec(), ..all() };
    assert_eq!(find(store, both(["pieces\":30", "LISTED"])).await?, ["d"]);
    assert_eq!(find(store, both(["pieces\":30", "listed\":true"])).await?, [""; 0]);
    for harmless in ["%", "_", "' OR 1=1 --", "\\"] {
        assert_eq!(find(store, text(harmless)).await?.len(), usize::from(harmless == "_") * 4, "{harmless}");
    }
    let status = |text: &str| Query { contains: vec![("status", text.to_owned())], ..all() };
    assert_eq!(find(store, status("isteD")).await?, ["a", "c"]);
    assert_eq!(find(store, status("ne")).await?, ["b", "d"]);
    assert_eq!(find(store, status("pieces")).await?, [""; 0], "not by another field");
    Ok(())
}

/// A foreign message has any type, for example, which an index cannot hold.
pub async fn rows_with_long_texts_are_stored_and_found_by_them(store: &dyn Store) -> Outcome {
    // Hardly compressible.
    let digits = |number: u128| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)).to_string();
    let of = |end: u128| (1..200).chain([end]).map(digits).collect::<String>();
    let long = [of(1_000), of(1_001)];
    for (label, text) in ["a", "b"].into_iter().zip(&long) {
        let mut writes = recorded(label, &[], &[put(1)]);
        writes.rows[0].projected.fields[0] = FieldValue::Text(text.clone());
        commit(store, writes).await?;
    }
    let by = |text: &str| vec![("status", FieldValue::from(text))];
    assert_eq!(find(store, Query { equals: by(&long[0]), ..all() }).await?, ["a"]);
    assert_eq!(find(store, Query { equals: by(&long[1]), ..all() }).await?, ["b"], "not by its beginning");
    let one_of = vec![("status", vec![FieldValue::from(long[1].as_str())])];
    assert_eq!(find(store, Query { one_of, ..all() }).await?, ["b"]);
    let counts = store.counts("shelf", "status", all()).await?;
    assert!(
        counts.keys().all(|shown| shown.len() <= 500 && long[0].starts_with(&shown[..400])),
        "{counts:?}"
    );
    // What a group is called finds its rows.
    let shown = counts.keys().next().expect("a group");
    assert_eq!(find(store, Query { equals: by(shown), ..all() }).await?.len(), 1);
    Ok(())
}

/// PostgreSQL stores no NUL character, but callers may search for one.
pub async fn text_with_nul_character_matches_nothing(store: &dyn Store) -> Outcome {
    fill(store).await?;
    let zero = || "a\0".to_owned();
    for field in ["id", "status"] {
        let value = || FieldValue::from(zero().as_str());
        assert_eq!(find(store, Query { equals: vec![(field, value())], ..all() }).await?, [""; 0]);
        assert_eq!(find(store, Query { one_of: vec![(field, vec![value()])], ..all() }).await?, [""; 0]);
    }
    assert_eq!(find(store, Query { texts: vec![zero()], ..all() }).await?, [""; 0]);
    assert_eq!(find(store, Query { after: Some(zero()), ..all() }).await?, ["b", "c", "d"]);
    assert_eq!(find(store, Query { after: Some(zero()), descending: true, ..all() }).await?, ["a"]);
    let nothing = |loaded: Loaded| {
        assert!(loaded.rows.is_empty());
        Writes::default()
    };
    let reads = Reads { rows: [shelf("a\0")].into(), ..Reads::default() };
    store.transact(reads, Box::new(nothing)).await?;
    assert!(store.row(shelf("a\0")).await?.is_none());
    assert_eq!(store.events(shelf("a\0"), 0, 9).await?, []);
    Ok(())
}

pub async fn rows_are_found_in_the_order_of_their_ids(store: &dyn Store) -> Outcome {
    fill(store).await?;
    assert_eq!(find(store, all()).await?, ["a", "b", "c", "d"]);
    assert_eq!(find(store, Query { descending: true, ..all() }).await?, ["d", "c", "b", "a"]);
    Ok(())
}

pub async fn pages_are_contiguous_in_both_directions(store: &dyn Store) -> Outcome {
    fill(store).await?;
    for (descending, wanted) in [(false, [["a", "b"], ["c", "d"]]), (true, [["d", "c"], ["b", "a"]])] {
        let mut after: Option<String> = None;
        for page in wanted {
            let found = find(store, Query { after, descending, limit: 2, ..Query::default() }).await?;
            assert_eq!(found, page);
            after = found.last().cloned();
        }
        assert!(find(store, Query { after, descending, limit: 2, ..Query::default() }).await?.is_empty());
    }
    Ok(())
}

pub async fn rows_are_found_from_a_value_on(store: &dyn Store) -> Outcome {
    fill(store).await?;
    let from = |pieces: i64| vec![("pieces", FieldValue::from(pieces))];
    assert_eq!(find(store, Query { from: from(20), ..all() }).await?, ["c", "d"]);
    assert_eq!(find(store, Query { from: from(21), ..all() }).await?, ["d"]);
    let between = Query { from: from(10), below: vec![("pieces", FieldValue::from(30))], ..all() };
    assert_eq!(find(store, between).await?, ["b", "c"], "the lower end is in, the upper is not");
    Ok(())
}

pub async fn rows_are_sorted_by_a_field_and_then_by_their_id(store: &dyn Store) -> Outcome {
    fill(store).await?;
    for label in ["z", "f"] {
        commit(store, recorded(label, &[], &[put(20)])).await?;
    }
    let sorted = |descending| Query { order: Some(BY_PIECES), descending, ..all() };
    assert_eq!(find(store, sorted(false)).await?, ["a", "b", "c", "f", "z", "d"]);
    assert_eq!(find(store, sorted(true)).await?, ["d", "z", "f", "c", "b", "a"]);
    Ok(())
}

pub async fn pages_of_sorted_rows_are_contiguous_in_both_directions(store: &dyn Store) -> Outcome {
    fill(store).await?;
    for label in ["z", "f"] {
        commit(store, recorded(label, &[], &[put(20)])).await?;
    }
    for descending in [false, true] {
        let whole = find(store, Query { order: Some(BY_PIECES), descending, ..all() }).await?;
        for limit in 1..=6 {
            let mut found: Vec<String> = Vec::new();
            let mut after: Option<(String, i64)> = None;
            loop {
                let order = Order { after: after.as_ref().map(|(_, pieces)| *pieces), ..BY_PIECES };
                let after_id = after.map(|(id, _)| id);
                let query =
                    Query { order: Some(order), after: after_id, descending, limit, ..Query::default() };
                let page = store.find("shelf", query).await?;
                let Some(last) = page.last() else { break };
                let shelf: Shelf = serde_json::from_str(&last.state).expect("the state of a shelf");
                after = Some((last.id.clone(), shelf.pieces));
                found.extend(page.into_iter().map(|row| row.id));
            }
            assert_eq!(found, whole, "pages of {limit}: each row once, in order");
        }
    }
    Ok(())
}

/// Each shelf is related to itself, or to none, by its status.
pub async fn rows_are_counted_with_related_rows(store: &dyn Store) -> Outcome {
    fill(store).await?;
    let join = Join {
        by: "status",
        and: "id",
        through: "id",
        kind: "shelf",
        their: "status",
        range: "pieces",
        after: 20,
    };
    let joined = |by: &str, and: &str, their: Option<&str>, past, range| Joined {
        by: by.to_owned(),
        and: and.to_owned(),
        their: their.map(ToOwned::to_owned),
        count: 1,
        past,
        range,
    };
    let counted = async |join, query| store.joined("shelf", join, query).await;
    let (a, c) =
        (joined("LISTED", "a", Some("LISTED"), 1, None), joined("LISTED", "c", Some("LISTED"), 1, None));
    let (b, d) =
        (joined("NEW", "b", Some("NEW"), 1, None), joined("NEW", "d", Some("NEW"), 0, Some((30, 30))));
    assert_eq!(counted(join, all()).await?, [a, c.clone(), b, d.clone()]);
    let many = Query { from: vec![("pieces", FieldValue::from(20))], ..all() };
    assert_eq!(counted(join, many).await?, [c, d]);

    let together = Join { and: "status", through: "status", ..join };
    let alone = |status: &str| Joined { count: 2, ..joined(status, status, None, 0, None) };
    assert_eq!(counted(together, all()).await?, [alone("LISTED"), alone("NEW")]);
    let itself = Join { through: "id", ..together };
    let listed = Joined { count: 2, past: 2, ..joined("LISTED", "LISTED", Some("LISTED"), 0, None) };
    let new = Joined { count: 2, past: 1, ..joined("NEW", "NEW", Some("NEW"), 0, Some((30, 30))) };
    assert_eq!(counted(itself, all()).await?, [listed, new]);
    Ok(())
}

pub async fn rows_are_counted_by_the_value_of_a_field_largest_group_first(store: &dyn Store) -> Outcome {
    fill(store).await?;
    for (label, pieces) in [("z", 99), ("f", 5)] {
        commit(store, recorded(label, &[], &[put(pieces)])).await?;
    }
    let group = |value: &str, count, first, last, latest: &str| Group {
        value: value.to_owned(),
        count,
        first,
        last,
        latest: latest.to_owned(),
    };
    let groups = async |query| store.groups("shelf", "status", "pieces", query).await;
    let (new, listed) = (group("NEW", 4, 5, 99, "z"), group("LISTED", 2, 0, 20, "c"));
    let counted = store.counts("shelf", "status", all()).await?;
    let wanted = [&new, &listed].map(|group| (group.value.clone(), group.count));
    assert_eq!(counted, wanted.into());
    assert_eq!(groups(all()).await?, [new.clone(), listed.clone()]);
    assert_eq!(groups(Query { limit: 1, ..all() }).await?, [new]);
    let few = Query { below: vec![("pieces", FieldValue::from(31))], ..all() };
    assert_eq!(groups(few).await?, [group("NEW", 3, 5, 30, "d"), listed]);
    let none = Query { equals: vec![("pieces", FieldValue::from(-1))], ..all() };
    assert_eq!(groups(none).await?, []);
    Ok(())
}

const BY_PIECES: Order = Order { field: "pieces", after: None };

pub async fn history_is_read_oldest_first(store: &dyn Store) -> Outcome {
    commit(store, recorded("tea", &[], &[ShelfEvent::Listed, put(1)])).await?;
    commit(store, recorded("coffee", &[], &[put(9)])).await?;
    let mut later =
        Writes { decided_at: at(60), ..recorded("tea", &[ShelfEvent::Listed, put(1)], &[put(2)]) };
    later.events[0].causation_id = id(77);
    commit(store, later).await?;

    let history = store.events(shelf("tea"), 0, usize::MAX).await?;
    let found: Vec<_> =
        history.iter().map(|event| (event.version, &event.name[..], &event.data[..])).collect();
    let wanted = [
        (1, "Listed", r#""Listed""#),
        (2, "Put", r#"{"Put":{"pieces":1}}"#),
        (3, "Put", r#"{"Put":{"pieces":2}}"#),
    ];
    assert_eq!(found, wanted);
    let last = &history[2];
    assert_eq!((last.causation_id, last.recorded_at, last.is_published), (id(77), at(60), false));
    assert_eq!(history[0].recorded_at, at(0));
    Ok(())
}

pub async fn pages_of_history_are_contiguous(store: &dyn Store) -> Outcome {
    let puts: Vec<_> = (1..=5).map(put).collect();
    commit(store, recorded("tea", &[], &puts)).await?;
    commit(store, recorded("coffee", &[], &puts[..2])).await?;
    let mut pages = Vec::new();
    let mut after = 0;
    loop {
        let page: Vec<_> =
            store.events(shelf("tea"), after, 2).await?.iter().map(|event| event.version).collect();
        let Some(last) = page.last() else { break };
        after = *last;
        pages.push(page);
    }
    assert_eq!(pages, [vec![1, 2], vec![3, 4], vec![5]]);
    Ok(())
}

/// a: listed, 0 pieces; b: 10; c: listed, 20; d: 30.
async fn fill(store: &dyn Store) -> Outcome {
    for (label, history) in [
        ("c", vec![ShelfEvent::Listed, put(20)]),
        ("a", vec![ShelfEvent::Listed]),
        ("d", vec![put(30)]),
        ("b", vec![put(10)]),
    ] {
        commit(store, recorded(label, &[], &history)).await?;
    }
    Ok(())
}

fn all() -> Query {
    Query { limit: 100, ..Query::default() }
}

async fn find(store: &dyn Store, query: Query) -> Result<Vec<String>, StoreFault> {
    Ok(store.find("shelf", query).await?.into_iter().map(|row| row.id).collect())
}
