//! Shell: the archive: files of purged events and dead letters, one for each period, as JSON Lines.
//!
//! Rows are written and synced here before they are deleted from the database. After a crash between the two they are
//! written twice, and a reader takes each once. A line that a crash has cut off was never deleted from the database; it
//! is cut off here too before the next line.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::row::StoredEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::{PurgeBatch, PurgedEvent, RetentionCutoffs, Store, StoreFault};

/// Pause between two small chunks, in which the engine's batches run.
pub(super) const PAUSE_BETWEEN_CHUNKS: Duration = Duration::from_millis(20);

/// Period that one file of the archive covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// Day of the event's time, in UTC.
    Day,
    /// Month of the event's time, in UTC.
    Month,
}

/// Archive of one service. Only the process that owns the database writes it.
#[derive(Debug, Clone)]
pub struct Archive {
    folder: PathBuf,
    service: &'static str,
    period: Period,
    /// Suffix of file names for databases that several processes share; else empty.
    instance: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Event(Box<EventLine>),
    DeadLetter(Box<DeadLetterLine>),
}

/// Archived event with all its fields.
#[derive(Debug, Serialize, Deserialize)]
struct EventLine {
    kind: String,
    row: String,
    version: i64,
    name: String,
    /// Event as JSON, byte for byte as stored.
    data: String,
    causation_id: Uuid,
    recorded_at: Timestamp,
    is_published: bool,
}

/// Archived dead letter with its last status.
#[derive(Debug, Serialize, Deserialize)]
struct DeadLetterLine {
    status: String,
    inbox_id: Uuid,
    dead_letter: saga_core::dead_letter::DeadLettered,
}

impl Archive {
    /// Opens the archive of `service` in a folder, and creates the folder if needed.
    ///
    /// # Errors
    /// When the folder cannot be created or written.
    pub fn open(folder: &Path, service: &'static str, period: Period) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        // Fails at the start rather than at the first purge.
        let probe = folder.join(format!(".{service}.{}", std::process::id()));
        File::create(&probe)?;
        fs::remove_file(probe)?;
        Ok(Self { folder: folder.to_owned(), service, period, instance: String::new() })
    }

    /// Adapts the archive to a database that other processes may share: each process writes files of its own, because
    /// two writers of one file would overwrite each other.
    #[must_use]
    pub fn for_store(self, store: &dyn Store, instance: &str) -> Self {
        if store.is_shared() { self.for_instance(instance) } else { self }
    }

    /// Adapts the archive to files of this process alone.
    #[must_use]
    pub fn for_instance(self, instance: &str) -> Self {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
        Self { instance: format!(".{}", instance.chars().map(plain).collect::<String>()), ..self }
    }

    /// Writes rows to the archive, and syncs them to disk.
    ///
    /// # Errors
    /// When the archive cannot be written. The rows must then not be deleted.
    pub fn write(&self, batch: &PurgeBatch) -> io::Result<()> {
        let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        let mut line = |at: Timestamp, line: &Line| -> io::Result<()> {
            let text = files.entry(self.file_of(at)).or_default();
            serde_json::to_writer(&mut *text, line)?;
            text.push(b'\n');
            Ok(())
        };
        for PurgedEvent { kind, row, event } in &batch.events {
            let StoredEvent { version, name, data, causation_id, recorded_at, is_published } = event.clone();
            let (kind, row) = ((*kind).to_owned(), row.clone());
            let event = EventLine { kind, row, version, name, data, causation_id, recorded_at, is_published };
            line(recorded_at, &Line::Event(Box::new(event)))?;
        }
        for StoredDeadLetter { dead_letter, status, inbox_id, .. } in batch.dead_letters.clone() {
            let (at, status) = (dead_letter.last_failed_at, status.as_str().to_owned());
            let archived = DeadLetterLine { status, inbox_id, dead_letter };
            line(at, &Line::DeadLetter(Box::new(archived)))?;
        }
        let is_new = files.keys().any(|path| !path.exists());
        for (path, text) in files {
            append(&path, &text)?;
        }
        if is_new {
            // A new file is durable only after its folder is synced.
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    fn file_of(&self, at: Timestamp) -> PathBuf {
        let day = at.to_string();
        let name = match self.period {
            Period::Day => &day[..10],
            Period::Month => &day[..7],
        };
        self.folder.join(format!("{}-{name}{}.jsonl", self.service, self.instance))
    }

    /// Restores all archived events of a kind into the database, and returns their number. The rows must be rebuilt
    /// afterwards.
    ///
    /// # Errors
    /// When a file cannot be read, a line is damaged, or the database fails. Restoring again continues.
    pub async fn restore(&self, store: &dyn Store, kind: &'static str) -> Result<u64, RestoreError> {
        /// Events that are handed over at once.
        const AT_ONCE: usize = 1_000;
        let (mut events, mut count) = (Vec::new(), 0);
        for path in self.files()? {
            let mut lines = Lines::of(&path)?;
            while let Some(line) = lines.next_line()? {
                match line {
                    Line::Event(event) if event.kind == kind => events.push(event.into_event(kind)),
                    Line::Event(_) | Line::DeadLetter(_) => {}
                }
                if events.len() >= AT_ONCE {
                    count += store.restore_events(kind, std::mem::take(&mut events)).await?;
                }
            }
        }
        Ok(count + store.restore_events(kind, events).await?)
    }

    /// Lists the files of this service, oldest period first.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let period = name.strip_prefix(self.service).and_then(|rest| rest.strip_prefix('-'));
            if period.is_some_and(|period| period.starts_with(|c: char| c.is_ascii_digit()))
                && name.ends_with(".jsonl")
            {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

impl EventLine {
    fn into_event(self, kind: &'static str) -> PurgedEvent {
        let Self { row, version, name, data, causation_id, recorded_at, is_published, .. } = self;
        PurgedEvent {
            kind,
            row,
            event: StoredEvent { version, name, data, causation_id, recorded_at, is_published },
        }
    }
}

/// Failure of a purge, after which all remaining rows stay.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The database failed, or was closed.
    #[error("the database")]
    Store(#[from] StoreFault),
    /// The archive cannot be written.
    #[error("retention.archive")]
    Archive(#[source] io::Error),
}

/// Failure of a restore from the archive.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The archive cannot be read, or a line of it is damaged.
    #[error("retention.archive")]
    Archive(#[from] io::Error),
    /// The database failed, or was closed.
    #[error("the database")]
    Store(#[from] StoreFault),
}

/// Purges all rows that are old enough, chunk by chunk. Archives each chunk, if there is an archive, before it is
/// deleted.
///
/// # Errors
/// When a chunk cannot be archived or deleted. The remaining rows stay.
pub async fn purge(
    store: &dyn Store,
    archive: Option<&Archive>,
    before: RetentionCutoffs,
    chunk: usize,
) -> Result<(), PurgeError> {
    loop {
        let batch = store.find_purgeable(before, chunk).await?;
        if batch.is_over() {
            return Ok(());
        }
        let batch = match archive.cloned() {
            Some(archive) => archive_chunk(archive, batch).await.map_err(PurgeError::Archive)?,
            None => batch,
        };
        let has_moved = batch.from != batch.up_to;
        if store.purge(batch).await? == 0 && !has_moved {
            // All rows have changed since they were read: the next purge tries again.
            return Ok(());
        }
        tokio::time::sleep(PAUSE_BETWEEN_CHUNKS).await;
    }
}

async fn archive_chunk(archive: Archive, batch: PurgeBatch) -> io::Result<PurgeBatch> {
    let writing = tokio::task::spawn_blocking(move || archive.write(&batch).map(|()| batch));
    writing.await.map_err(io::Error::other)?
}

/// Appends lines after the last complete line of a file.
fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    // Other users of this machine must not read orders.
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    let end = end_of_lines(&mut file)?;
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    file.write_all(text)?;
    file.sync_data()
}

/// Finds the end of the last complete line.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or_default()];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut bytes)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + last as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Reader of the lines of one file.
struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    number: u64,
}

impl Lines {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: BufReader::new(File::open(path)?), number: 0 })
    }

    fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut text = Vec::new();
        self.file.read_until(b'\n', &mut text)?;
        self.number += 1;
        // A line that a crash has cut off is still in the database.
        if !text.ends_with(b"\n") {
            return Ok(None);
        }
        let damaged =
            |error| io::Error::other(format!("{}, line {}: {error}", self.path.display(), self.number));
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }
}
