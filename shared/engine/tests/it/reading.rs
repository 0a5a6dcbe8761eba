//! What routes read: pages of a history.

use saga_core::query::FoundRow;
use saga_engine::host::http::Problem;
use saga_engine::host::reading::{HistoryParams, for_each_event, history, readable};
use saga_engine::store::StoreFault;

use crate::support::{at, commit, in_memory, put, recorded, shelf};

#[tokio::test]
async fn a_history_is_read_page_by_page_however_long_it_is() -> Result<(), StoreFault> {
    let store = in_memory();
    let puts: Vec<_> = (1..=250).map(put).collect();
    commit(store.as_ref(), recorded("tea", &[], &puts)).await?;
    let page =
        |limit, cursor| history(store.as_ref(), shelf("tea"), HistoryParams { limit, cursor }, &["pieces"]);
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
    let nowhere = history(store.as_ref(), shelf("milk"), HistoryParams::default(), &[]).await;
    assert_eq!(nowhere.expect_err("no such row").status, 404);

    let mut all = vec![];
    let each = |event: saga_core::row::StoredEvent| {
        all.push(event.version);
        Ok(())
    };
    for_each_event(store.as_ref(), shelf("tea"), each).await.expect("its events");
    assert_eq!(all, (1..=250).collect::<Vec<_>>());
    Ok(())
}

/// A row whose state is no JSON is one bad row: the others of its page are shown.
#[test]
fn a_damaged_row_is_one_damaged_row_in_a_list() {
    let row = |id: &str, state: &str| {
        let (id, state) = (id.to_owned(), state.to_owned());
        FoundRow { id, state, version: 1, created_at: at(0), updated_at: at(0) }
    };
    let parse =
        |row: &FoundRow| serde_json::from_str::<u32>(&row.state).map_err(|error| Problem::internal(&error));
    let rows = [row("coffee", "1"), row("milk", "{\"lis"), row("tea", "3")];
    assert_eq!(readable(&rows, parse), (vec![1, 3], vec!["milk".to_owned()]));
}
