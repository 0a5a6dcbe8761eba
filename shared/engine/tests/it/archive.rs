//! Archive: purge of events and dead letters, and their restore.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use saga_core::dead_letter::{DeadLetterStatus, StoredDeadLetter};
use saga_core::decision::Writes;
use saga_core::row::StoredEvent;
use saga_core::service::Service as _;
use saga_engine::host::archive::{Archive, Period, PurgeError, RestoreError, purge};
use saga_engine::store::roles::{Monitoring as _, Queries as _, Retention as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{PurgeBatch, PurgedEvent, RetentionCutoffs, StoreFault};
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::{Depot, ShelfEvent, at, commit, dead, put, recorded, shelf};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const DAY: i64 = 24 * 60 * 60;

struct Archived {
    folder: TempDir,
    store: Arc<SqliteStore>,
    archive: Archive,
}

impl Archived {
    /// Depot whose shelf of tea gets one event a day for ten days.
    async fn for_ten_days(by: Period) -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let store = Arc::new(SqliteStore::open(&folder.path().join("depot.db"), Depot::rows())?);
        let archive = Archive::open(&folder.path().join("archive"), "depot", by)?;
        for day in 0..10 {
            let before: Vec<ShelfEvent> = (1..=day).map(put).collect();
            let writes = recorded("tea", &before, &[put(day + 1)]);
            commit(store.as_ref(), Writes { decided_at: at(i64::from(day) * DAY), ..writes }).await?;
        }
        commit(store.as_ref(), Writes { decided_at: at(99 * DAY), ..recorded("milk", &[], &[put(1)]) })
            .await?;
        Ok(Self { folder, store, archive })
    }

    /// Names of the archive's files.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("archive")).expect("the archive");
        let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }

    fn text(&self) -> String {
        self.files().iter().map(|file| fs::read_to_string(file).expect("text")).collect()
    }
}

fn until_day(day: i64) -> RetentionCutoffs {
    RetentionCutoffs { history: at(day * DAY), began: at(day * DAY), dead_letters: at(day * DAY) }
}

#[tokio::test]
async fn archived_events_are_restored_unchanged() -> Outcome {
    let archived = Archived::for_ten_days(Period::Month).await?;
    let (before, history) =
        (archived.store.verify().await?, archived.store.events(shelf("tea"), 0, 99).await?);
    purge(archived.store.as_ref(), Some(&archived.archive), until_day(99), 3).await?;
    assert_eq!(archived.store.events(shelf("tea"), 0, 99).await?, history[9..]);
    assert_eq!(archived.store.rebuild("shelf").await?, 2, "from the snapshot");
    assert_eq!(archived.store.verify().await?.digest, before.digest);

    assert_eq!(archived.archive.restore(archived.store.as_ref(), "shelf").await?, 9);
    assert_eq!(archived.store.rebuild("shelf").await?, 2);
    let after = archived.store.verify().await?;
    assert_eq!(
        (after.differing, after.digest, after.events),
        (vec![], before.digest, 11),
        "from all of them"
    );
    assert_eq!(archived.store.events(shelf("tea"), 0, 99).await?, history);
    assert_eq!(
        archived.archive.restore(archived.store.as_ref(), "shelf").await?,
        0,
        "a second time there is nothing"
    );
    Ok(())
}

/// The row's table and snapshot may be lost.
#[tokio::test]
async fn row_is_rebuilt_from_archived_and_remaining_events() -> Outcome {
    let archived = Archived::for_ten_days(Period::Month).await?;
    let before = archived.store.verify().await?;
    purge(archived.store.as_ref(), Some(&archived.archive), until_day(5), 100).await?;
    let path = archived.folder.path().join("depot.db");
    let Archived { folder: _folder, store, archive } = archived;
    drop(store);
    rusqlite::Connection::open(&path)?.execute_batch("DELETE FROM snapshot; DELETE FROM row_shelf")?;
    let store = SqliteStore::open(&path, Depot::rows())?;
    assert!(!store.verify().await?.differing.is_empty());
    archive.restore(&store, "shelf").await?;
    store.rebuild("shelf").await?;
    let after = store.verify().await?;
    assert_eq!((after.differing, after.digest), (vec![], before.digest));
    Ok(())
}

/// After a crash between archive and purge, events are archived twice.
#[tokio::test]
async fn event_archived_twice_is_restored_once() -> Outcome {
    let archived = Archived::for_ten_days(Period::Month).await?;
    let history = archived.store.events(shelf("tea"), 0, 99).await?;
    let purged = archived.store.find_purgeable(until_day(5), 100).await?;
    assert_eq!(purged.events.len(), 4);
    archived.archive.write(&purged)?;
    assert_eq!(archived.store.events(shelf("tea"), 0, 99).await?, history, "nothing has left yet");
    purge(archived.store.as_ref(), Some(&archived.archive), until_day(99), 100).await?;
    assert_eq!(archived.text().lines().count(), 4 + 9);
    assert_eq!(archived.archive.restore(archived.store.as_ref(), "shelf").await?, 9);
    assert_eq!(archived.store.events(shelf("tea"), 0, 99).await?, history);
    Ok(())
}

/// Crash while a line is written.
#[tokio::test]
async fn line_cut_off_by_crash_is_rewritten() -> Outcome {
    let archived = Archived::for_ten_days(Period::Month).await?;
    purge(archived.store.as_ref(), Some(&archived.archive), until_day(3), 100).await?;
    let file = archived.files().remove(0);
    for torn in ["{\"event\":{\"kind\":\"torn".to_owned(), "x".repeat(200_000)] {
        let whole = fs::read_to_string(&file)?;
        fs::write(&file, format!("{whole}{torn}"))?;
        assert_eq!(archived.archive.restore(archived.store.as_ref(), "box").await?, 0, "it can be read");
        let purged = archived.store.find_purgeable(until_day(5), 100).await?;
        archived.archive.write(&purged)?;
        let text = fs::read_to_string(&file)?;
        assert!(text.starts_with(&whole) && !text.contains(&torn), "{torn}");
    }
    purge(archived.store.as_ref(), Some(&archived.archive), until_day(99), 100).await?;
    assert_eq!(archived.archive.restore(archived.store.as_ref(), "shelf").await?, 9);
    Ok(())
}

#[tokio::test]
async fn events_that_cannot_be_archived_are_not_purged() -> Outcome {
    let archived = Archived::for_ten_days(Period::Month).await?;
    fs::remove_dir_all(archived.folder.path().join("archive"))?;
    let fault = purge(archived.store.as_ref(), Some(&archived.archive), until_day(99), 100)
        .await
        .expect_err("no folder");
    assert!(matches!(fault, PurgeError::Archive(_)), "{fault:?}");
    assert_eq!(archived.store.events(shelf("tea"), 0, 99).await?.len(), 10);
    // Without one, it is deleted.
    purge(archived.store.as_ref(), None, until_day(99), 100).await?;
    assert_eq!(archived.store.events(shelf("tea"), 0, 99).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn restore_names_damaged_line() -> Outcome {
    let archived = Archived::for_ten_days(Period::Month).await?;
    purge(archived.store.as_ref(), Some(&archived.archive), until_day(9), 100).await?;
    let file = archived.files().remove(0);
    let mut lines: Vec<_> = fs::read_to_string(&file)?.lines().map(str::to_owned).collect();
    lines[1].truncate(20);
    fs::write(&file, format!("{}\n", lines.join("\n")))?;
    let RestoreError::Archive(why) =
        archived.archive.restore(archived.store.as_ref(), "shelf").await.expect_err("damaged")
    else {
        panic!("the archive is damaged, not the database");
    };
    assert!(why.to_string().contains("depot-2001-09.jsonl, line 2"), "{why}");
    Ok(())
}

#[tokio::test]
async fn archive_has_one_file_per_period() -> Outcome {
    let archived = Archived::for_ten_days(Period::Day).await?;
    fs::write(archived.folder.path().join("archive/depot-again-2001.jsonl"), "of another service\n")?;
    purge(archived.store.as_ref(), Some(&archived.archive), until_day(3), 100).await?;
    let names: Vec<_> =
        archived.files().iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect();
    assert_eq!(names, ["depot-2001-09-09.jsonl", "depot-2001-09-10.jsonl", "depot-again-2001.jsonl"]);
    assert_eq!(archived.archive.restore(archived.store.as_ref(), "shelf").await?, 2);
    Ok(())
}

#[tokio::test]
async fn archived_dead_letters_are_complete() -> Result<(), Box<dyn std::error::Error>> {
    let archived = Archived::for_ten_days(Period::Month).await?;
    let dead_letter = dead("filling", 7, at(1));
    commit(
        archived.store.as_ref(),
        Writes { new_dead_letters: vec![dead_letter.clone()], ..Writes::default() },
    )
    .await?;
    let inbox_id = dead_letter.message_id;
    let (status, revision) = (DeadLetterStatus::Discarded, 1);
    let stored = StoredDeadLetter { dead_letter: dead_letter.clone(), status, revision, inbox_id };
    commit(archived.store.as_ref(), Writes { changed_dead_letters: vec![stored], ..Writes::default() })
        .await?;
    let before = RetentionCutoffs { history: Timestamp::MIN, began: Timestamp::MIN, dead_letters: at(DAY) };
    purge(archived.store.as_ref(), Some(&archived.archive), before, 100).await?;
    let line: serde_json::Value = serde_json::from_str(&archived.text())?;
    let line = &line["dead_letter"];
    assert_eq!(
        (&line["status"], &line["dead_letter"]),
        (&"DISCARDED".into(), &serde_json::to_value(&dead_letter)?)
    );
    assert!(archived.store.dead_letters(9).await?.readable.is_empty());
    Ok(())
}

/// The purge must not change or delay the engine's batches.
#[tokio::test]
async fn batches_commit_during_purge() -> Outcome {
    let archived = Archived::for_ten_days(Period::Month).await?;
    let purged = {
        let (store, archive) = (archived.store.clone(), archived.archive.clone());
        tokio::spawn(async move { purge(store.as_ref(), Some(&archive), until_day(99), 1).await })
    };
    let mut before: Vec<ShelfEvent> = (1..=10).map(put).collect();
    while !purged.is_finished() {
        let writes = Writes { decided_at: at(100 * DAY), ..recorded("tea", &before, &[put(1)]) };
        commit(archived.store.as_ref(), writes).await?;
        before.push(put(1));
    }
    purged.await??;
    assert_eq!(archived.store.verify().await?.differing, [""; 0]);
    let version = archived.store.row(shelf("tea")).await?.map(|row| row.version);
    assert_eq!(version, i64::try_from(before.len()).ok());
    assert_eq!(archived.archive.restore(archived.store.as_ref(), "shelf").await?, 9);
    archived.store.rebuild("shelf").await.map(drop).map_err(|fault: StoreFault| fault.into())
}

/// Two processes that share a database may share the archive folder.
#[tokio::test]
async fn processes_sharing_a_folder_write_own_files_and_restore_all() -> Outcome {
    let folder = tempfile::tempdir()?;
    let open = || Archive::open(&folder.path().join("archive"), "depot", Period::Month);
    let event = |row: &str| PurgedEvent {
        kind: "shelf",
        row: row.to_owned(),
        event: StoredEvent {
            version: 1,
            name: "Put".to_owned(),
            data: serde_json::to_string(&put(1)).expect("JSON"),
            causation_id: Uuid::nil(),
            recorded_at: at(0),
            is_published: false,
        },
    };
    let purged = |rows: &[&str]| PurgeBatch {
        events: rows.iter().map(|row| event(row)).collect(),
        ..PurgeBatch::default()
    };
    open()?.for_instance("depot-1").write(&purged(&["tea", "both"]))?;
    open()?.for_instance("depot/2").write(&purged(&["ink", "both"]))?;
    let store = SqliteStore::open(&folder.path().join("depot.db"), Depot::rows())?;
    assert_eq!(open()?.restore(&store, "shelf").await?, 3);
    Ok(())
}
