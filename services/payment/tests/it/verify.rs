//! Shell: `payment verify`, and a start on a damaged database.

use std::os::unix::fs::FileExt as _;

use jiff::Timestamp;
use payment::domain::Payment;
use saga_core::decision::{Reads, Writes};
use saga_core::row::RowKind;
use saga_engine::store::roles::Transactions as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::testing::histories::has_history;
use saga_engine::testing::program::{Folder, end_in};
use uuid::Uuid;

const PAYMENT: &str = env!("CARGO_BIN_EXE_payment");

/// Configuration without a reachable broker: `verify` needs none.
const NO_BROKER: &str = "[bus]\nurl = \"nats://127.0.0.1:1\"\n";

#[test]
fn verify_accepts_intact_database() {
    let folder = written(|_| {});
    let (code, said) = verify(&folder);
    assert_eq!((code, &said[..]), (Some(0), ""));
}

#[test]
fn verify_of_missing_database_fails_and_creates_none() {
    let folder = Folder::new();
    let (code, said) = verify(&folder);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is none"), "{said}");
    assert!(!folder.database().exists(), "a look makes nothing");
}

#[test]
fn verify_names_row_that_differs_from_its_events() {
    let folder = written(|writes| {
        let row = writes.rows.last_mut().expect("a row");
        row.projected.state = serde_json::to_string(&Payment::New).expect("JSON");
    });
    let (code, said) = verify(&folder);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("payment/{}", order(2))), "{said}");
    assert!(!said.contains(&order(1).to_string()), "the others are whole: {said}");
}

#[test]
fn damaged_database_file_is_rejected_at_start_and_by_verify() {
    let folder = written(|_| {});
    assert_eq!(verify(&folder).0, Some(0));
    // SQLite would repair the file from these.
    for beside in ["db-wal", "db-shm"] {
        let beside = folder.database().with_extension(beside);
        assert!(!beside.exists() || std::fs::remove_file(&beside).is_ok(), "{}", beside.display());
    }
    let file = std::fs::OpenOptions::new().write(true).open(folder.database()).expect("a database");
    // Behind the header that marks it as a SQLite file.
    file.write_all_at(&[0xff; 64 * 1024], 100).expect("a disk that goes bad");
    drop(file);
    for (what, arguments) in [("a start", &[][..]), ("verify", &["verify"][..])] {
        let (code, said) = end_in(&folder, PAYMENT, NO_BROKER, arguments);
        assert_eq!(code, Some(1), "{what}: {said}");
        assert!(said.contains(&folder.database().display().to_string()), "{what} names the file: {said}");
    }
}

/// A folder with a database of three payments.
fn written(change: impl FnOnce(&mut Writes)) -> Folder {
    let folder = Folder::new();
    let mut writes = Writes { decided_at: Timestamp::constant(1_700_000_000, 0), ..Writes::default() };
    for number in 0..3 {
        has_history::<Payment>(&mut writes, order(number), &[r#""Voided""#]);
    }
    change(&mut writes);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let kinds = vec![RowKind::of::<Payment>()];
        let store = SqliteStore::open(&folder.database(), kinds).expect("a database");
        store.transact(Reads::default(), Box::new(move |_| writes.clone())).await.expect("a commit");
    });
    folder
}

fn order(number: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number)
}

fn verify(folder: &Folder) -> (Option<i32>, String) {
    end_in(folder, PAYMENT, NO_BROKER, &["verify"])
}
