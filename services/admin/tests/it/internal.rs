//! Shell: the list of dead letters at a service.

use saga_core::decision::{Reads, Writes};
use serde_json::Value;

use crate::harness::{AdminHarness, answered};
use crate::routes::numbered;

#[tokio::test]
async fn truncated_list_of_dead_letters_is_marked() {
    for (dead_lettered, more) in [(1_000, false), (1_001, true)] {
        let admin = AdminHarness::new().await;
        let writes =
            Writes { new_dead_letters: (0..dead_lettered).map(numbered).collect(), ..Writes::default() };
        admin
            .app
            .store
            .transact(Reads::default(), Box::new(move |_| writes.clone()))
            .await
            .expect("a commit");
        let list = answered(admin.http.get(format!("{}/internal/dead-letters", admin.base)), 200).await;
        let entries = list["entries"].as_array().map(Vec::len);
        assert_eq!((entries, &list["more"]), (Some(1_000), &Value::Bool(more)));
    }
}
