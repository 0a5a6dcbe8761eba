//! Queries of routes: pages of histories, lists and ledgers.

use std::ops::Range;

use saga_core::decider::{Decider as _, FieldValue};
use saga_core::decision::Writes;
use saga_core::query::{FoundRow, Query};
use saga_core::row::{PastEvent, StoredEvent, WithHistory};
use saga_core::secrets::Secrets;
use saga_engine::host::http::Problem;
use saga_engine::host::queries::{
    self, HistoryParams, MAX_ENTRIES, entries_page, entries_with_history, for_each_event, history, list_page,
    readable_rows,
};
use saga_engine::store::StoreFault;

use crate::support::{Shelf, ShelfEvent, at, commit, in_memory, put, recorded, shelf};

const PIECES: Secrets = Secrets { members: &["pieces"], prefixes: &[] };
const PUT: Secrets = Secrets { members: &["Put"], prefixes: &[] };

#[tokio::test]
async fn history_is_read_in_pages_to_its_end() -> Result<(), StoreFault> {
    let store = in_memory();
    let puts: Vec<_> = (1..=250).map(put).collect();
    commit(store.as_ref(), recorded("tea", &[], &puts)).await?;
    let page = |limit, cursor| history(store.as_ref(), shelf("tea"), HistoryParams { limit, cursor }, PIECES);
    let (mut sizes, mut cursor, mut versions) = (vec![], None, vec![]);
    loop {
        let page = page(None, cursor).await.expect("a page");
        sizes.push(page.events.len());
        versions.extend(page.events.iter().map(|event| event.version));
        assert!(page.events.iter().all(|event| event.data["Put"]["pieces"] == "***"), "no secrets");
        let Some(next) = page.next else { break };
        cursor = Some(next.parse().expect("a cursor"));
    }
    assert_eq!((sizes, versions), (vec![100, 100, 50], (1..=250).collect()));
    assert_eq!(page(Some(3), None).await.expect("a page").events.len(), 3);
    assert!(page(Some(3), Some(250)).await.expect("a page").events.is_empty(), "behind its end");
    for limit in [0, 101] {
        assert_eq!(page(Some(limit), None).await.expect_err("no such limit").status, 422);
    }
    let nowhere = history(store.as_ref(), shelf("milk"), HistoryParams::default(), Secrets::NONE).await;
    assert_eq!(nowhere.expect_err("no such row").status, 404);

    let mut all = vec![];
    let each = |event: StoredEvent| {
        all.push(event.version);
        Ok(())
    };
    for_each_event(store.as_ref(), shelf("tea"), each).await.expect("its events");
    assert_eq!(all, (1..=250).collect::<Vec<_>>());
    Ok(())
}

/// A wrong cursor would hide rows, or never end.
#[tokio::test]
async fn ledger_pages_are_full_and_complete() -> Result<(), StoreFault> {
    let store = in_memory();
    let fill = async |labels: Range<usize>| {
        let all = labels.map(|number| recorded(&format!("{number:06}"), &[], &[put(1), put(2)]));
        let together = all.fold(Writes::default(), |mut all, one| {
            all.rows.extend(one.rows);
            all.events.extend(one.events);
            Writes { decided_at: one.decided_at, ..all }
        });
        commit(store.as_ref(), together).await
    };
    let page = async |after: Option<String>| {
        let range = queries::LedgerQuery { after, ..queries::LedgerQuery::default() };
        let entry = |row: &FoundRow| (!row.id.ends_with("13")).then(|| row.id.clone());
        entries_page(store.as_ref(), Shelf::KIND, range, entry).await.expect("a page")
    };
    fill(0..MAX_ENTRIES - 1).await?;
    let all_but_one = page(None).await;
    assert_eq!((all_but_one.entries.len() + all_but_one.unreadable.len(), all_but_one.next), (1_999, None));
    fill(MAX_ENTRIES - 1..MAX_ENTRIES + 1).await?;
    let first = page(None).await;
    assert_eq!(
        (first.entries.len() + first.unreadable.len(), first.next.as_deref()),
        (2_000, Some("001999"))
    );
    assert_eq!(
        (&first.unreadable[..2], first.unreadable.len()),
        (&["shelf/000013".to_owned(), "shelf/000113".to_owned()][..], 20)
    );
    let rest = page(first.next).await;
    assert_eq!((rest.entries, rest.next, rest.unreadable), (vec!["002000".to_owned()], None, vec![]));

    // With their histories, of which each is of its own row.
    let range = queries::LedgerQuery { after: Some("001998".to_owned()), ..queries::LedgerQuery::default() };
    let entry = |id: &str, past: WithHistory<Shelf>| Some((id.to_owned(), past.events));
    let found = entries_with_history(store.as_ref(), range, entry).await.expect("a page");
    let put = |number| PastEvent { event: put(number), at: at(0), is_published: false };
    assert_eq!(found.entries, ["001999", "002000"].map(|id| (id.to_owned(), vec![put(1), put(2)])));
    Ok(())
}

#[tokio::test]
async fn list_page_has_requested_length_and_next_cursor() -> Result<(), StoreFault> {
    let store = in_memory();
    for number in 0..21 {
        commit(store.as_ref(), recorded(&format!("{number:02}"), &[], &[put(1)])).await?;
    }
    let page = async |limit, after: Option<&str>| {
        let query = Query { after: after.map(str::to_owned), ..Query::default() };
        let (rows, next) = list_page(store.as_ref(), Shelf::KIND, limit, query).await?;
        Ok::<_, Problem>((rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), next))
    };
    let (rows, next) = page(None, None).await.expect("a page");
    assert_eq!((rows.len(), next.as_deref()), (20, Some("19")));
    assert_eq!(page(None, Some("19")).await.expect("a page"), (vec!["20".to_owned()], None));
    assert_eq!(
        page(Some(2), Some("17")).await.expect("a page"),
        (vec!["18".to_owned(), "19".to_owned()], next)
    );
    assert_eq!(page(Some(21), None).await.expect("a page").1, None, "exactly as many as there are");
    assert_eq!(page(Some(100), None).await.expect("a page").0.len(), 21);
    for limit in [0, 101] {
        assert_eq!(page(Some(limit), None).await.expect_err("no such limit").status, 422);
    }
    Ok(())
}

/// Secrets are blanked out at any depth, and nothing else is.
#[tokio::test]
async fn last_history_page_has_no_cursor_and_no_secrets() -> Result<(), StoreFault> {
    let store = in_memory();
    commit(store.as_ref(), recorded("tea", &[], &[put(1), put(2), ShelfEvent::Listed])).await?;
    let page = |limit, cursor, secret| {
        history(store.as_ref(), shelf("tea"), HistoryParams { limit: Some(limit), cursor }, secret)
    };
    let (whole, two) = (page(3, None, PUT).await, page(2, None, Secrets::NONE).await);
    let (whole, two) = (whole.expect("a page"), two.expect("a page"));
    assert_eq!((whole.events.len(), whole.next), (3, None), "exactly as many as there are");
    assert_eq!((two.events.len(), two.next.as_deref()), (2, Some("2")));
    assert_eq!(whole.events[0].data["Put"], "***");
    assert_eq!((&two.events[0].data["Put"]["pieces"], &whole.events[2].data), (&1.into(), &"Listed".into()));
    assert_eq!((two.events[1].version, &two.events[1].event[..]), (2, "Put"));
    Ok(())
}

/// A row whose state is no JSON hides no other row of its page.
#[test]
fn damaged_row_hides_no_other_in_list() {
    let row = |id: &str, state: &str| {
        let (id, state) = (id.to_owned(), state.to_owned());
        FoundRow { id, state, version: 1, created_at: at(0), updated_at: at(0), ordered_by: FieldValue::Null }
    };
    let parse =
        |row: &FoundRow| serde_json::from_str::<u32>(&row.state).map_err(|error| Problem::internal(&error));
    let rows = [row("coffee", "1"), row("milk", "{\"lis"), row("tea", "3")];
    assert_eq!(readable_rows(&rows, parse), (vec![1, 3], vec!["milk".to_owned()]));
}
