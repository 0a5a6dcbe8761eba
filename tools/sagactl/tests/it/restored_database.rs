//! Shell: an older copy of a database is restored while its service runs.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use crate::system::{System, text, wait_until};

#[tokio::test]
async fn service_does_not_use_database_restored_while_it_runs() {
    let system = System::start(&[]);
    system.list("pen", 9).await;
    system.order(&[("pen", 1)], "tok_ok").await;
    system.assert_reconciled().await;
    for service in ["order", "bank"] {
        copy(&database(&system, service), &system.path().join(format!("{service}.copy")));
    }
    let order = system.order(&[("pen", 1)], "tok_ok").await;
    let order = format!("/api/orders/{}", order["id"].as_str().expect("an id"));
    system.assert_reconciled().await;

    for (service, path) in [("order", order.as_str()), ("bank", "/v1/charges")] {
        copy(&system.path().join(format!("{service}.copy")), &database(&system, service));
        let check = async || {
            let ready = system.http.get(system.url(service, "/readyz")).send().await.expect("an answer");
            let body: serde_json::Value = ready.json().await.expect("JSON");
            body["checks"]["database"].clone()
        };
        wait_until("the loss is found", async || check().await["state"] == "failed").await;
        let why = check().await["text"].as_str().expect("a text").to_owned();
        assert!(why.contains("it has lost data: it had come to"), "{why}");
        let asked = system.http.get(system.url(service, path)).send().await.expect("an answer");
        assert_eq!(asked.status(), 503, "{service} {path}: not 404, nor the old state");
        wait_until("it is a finding", async || {
            let status = system.try_sagactl(&["status"]);
            status.status.code() == Some(5) && text(&status.stdout).contains("lost data")
        })
        .await;
        system.sagactl(&["stop", service]);
        let rejected = system.try_sagactl(&["start", service]);
        let errors = text(&rejected.stderr);
        assert!(!rejected.status.success() && errors.contains("accept_loss="), "{errors}");
    }
}

fn database(system: &System, service: &str) -> std::path::PathBuf {
    system.path().join(service).join(format!("{service}.db"))
}

/// Copies a database as `.backup` and `.restore` of the SQLite shell do.
fn copy(from: &Path, to: &Path) {
    let (from, mut to) = (Connection::open(from).expect("a file"), Connection::open(to).expect("a file"));
    to.busy_timeout(Duration::from_secs(9)).expect("patience");
    let backup = Backup::new(&from, &mut to).expect("a backup");
    backup.run_to_completion(1_000, Duration::from_millis(5), None).expect("all pages");
}
