//! Shell: history to purge, and the cutoffs of retention.

use jiff::Timestamp;
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::decider::Sums;
use saga_core::retry::error_chain;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tracing::error;
use uuid::Uuid;

use super::encoding::timestamp;
use super::stored_rows::Snapshot;

/// Ages from which history may be purged.
#[derive(Debug, Clone, Copy)]
pub struct RetentionCutoffs {
    /// Purges events older than this, and finished rows whose last event is.
    pub history: Timestamp,
    /// Keeps rows of sagas that began later, whatever the times of their events. Later than `history` by the clock skew
    /// between machines.
    pub began: Timestamp,
    /// Purges dead letters that were resolved or discarded before this.
    pub dead_letters: Timestamp,
}

/// Ages from which finished entries are deleted.
#[derive(Debug, Clone, Copy)]
pub struct TrimCutoffs {
    /// Deletes inbox ids older than this.
    pub inbox: Timestamp,
    /// Deletes idempotency keys older than this.
    pub keys: Timestamp,
    /// Deletes outbox entries that were published before this.
    pub published: Timestamp,
}

/// Event to purge, or to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgedEvent {
    /// Kind of the row that the event belongs to.
    pub kind: &'static str,
    /// Id of the row that the event belongs to.
    pub row: String,
    /// The event itself, as it is stored.
    pub event: StoredEvent,
}

/// Snapshot that replaces purged events of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSnapshot {
    /// Row whose events are replaced.
    pub key: RowKey,
    /// Version of the row after the last purged event.
    pub version: i64,
    /// State at that version, as JSON.
    pub state: String,
    /// Time of the first event.
    pub created_at: Timestamp,
}

/// Finished row to purge, with all its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgedRow {
    /// Row to delete, with its events.
    pub key: RowKey,
    /// Version that was found. A row that has another version by then is kept.
    pub version: i64,
    /// Numbers of the row to add to the sums over purged rows.
    pub sums: Sums,
}

/// History that may be purged, found by one scan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PurgeBatch {
    /// All events to purge, oldest first for each row.
    pub events: Vec<PurgedEvent>,
    /// Snapshots to store. Each replaces all events of its row up to its version.
    pub snapshots: Vec<RowSnapshot>,
    /// Finished rows to purge. Their events are among `events`.
    pub rows: Vec<PurgedRow>,
    /// Closed rows to purge, see [`PurgeClosedRows`](saga_core::decider::RetentionPolicy::PurgeClosedRows). Their events are among `events`.
    pub closed_rows: Vec<PurgedRow>,
    /// Finished rows to purge later, because work of their saga is open.
    pub held: Vec<RowKey>,
    /// Lowest saga id whose rows are kept.
    pub before: Option<Uuid>,
    /// Closed dead letters to purge.
    pub dead_letters: Vec<StoredDeadLetter>,
    /// Position of the log after which the scan began.
    pub from: i64,
    /// Position of the log where the scan ended.
    pub up_to: i64,
}

impl PurgeBatch {
    /// True if there is nothing to purge, and nothing more to scan.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.events.is_empty() && self.dead_letters.is_empty() && self.from == self.up_to
    }
}

/// Events of one row in a scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanned {
    /// Position of the first event.
    pub(super) first_seq: i64,
    /// Highest version of the events.
    pub(super) newest: i64,
}

impl PurgeBatch {
    /// Adds events of a row that lives on, unless one is missing. With as many as `limit` there may be more.
    pub(super) fn add_events_of_row(
        &mut self,
        (kind, id): (&RowKind, &str),
        snapshot: Option<&Snapshot>,
        events: Vec<StoredEvent>,
        (scanned, limit): (Scanned, i64),
    ) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        if i64::try_from(events.len()).is_ok_and(|count| count >= limit) {
            // The next scan reads the row again.
            self.up_to = self.up_to.min(scanned.first_seq - 1);
        }
        let start = snapshot.map_or(0, |snapshot| snapshot.version);
        let version = last.version.max(start);
        let created_at = snapshot.map_or(first.recorded_at, |snapshot| timestamp(snapshot.created_at));
        let folded: Vec<&StoredEvent> = events.iter().filter(|event| event.version > start).collect();
        let is_complete = (start + 1..).zip(&folded).all(|(version, event)| event.version == version);
        let data = folded.iter().map(|event| &event.data);
        let state = snapshot.map(|snapshot| snapshot.state.as_str());
        match kind.fold(id, state, data) {
            Ok(folded) if is_complete => {
                let key = RowKey { kind: kind.name, id: id.to_owned() };
                self.snapshots.push(RowSnapshot { key, version, state: folded.state, created_at });
                self.add_events(kind, id, events);
            }
            // A snapshot would hide the gap.
            Ok(_) => error!(row = id, kind = kind.name, "the history has a gap and is not purged"),
            Err(why) => {
                error!(row = id, kind = kind.name, "the history is not purged: {}", error_chain(&why));
            }
        }
    }

    /// Adds a finished row with all its events, unless one is missing.
    pub(super) fn add_row(
        &mut self,
        (kind, id): (&RowKind, &str),
        (version, sums): (i64, Sums),
        events: Vec<StoredEvent>,
    ) {
        if is_whole((kind, id), version, &events) {
            let key = RowKey { kind: kind.name, id: id.to_owned() };
            self.rows.push(PurgedRow { key, version, sums });
            self.add_events(kind, id, events);
        }
    }

    /// Adds a closed row with all its events, unless one is missing.
    pub(super) fn add_closed_row(
        &mut self,
        (kind, id): (&RowKind, &str),
        version: i64,
        events: Vec<StoredEvent>,
    ) {
        if is_whole((kind, id), version, &events) {
            let key = RowKey { kind: kind.name, id: id.to_owned() };
            self.closed_rows.push(PurgedRow { key, version, sums: vec![] });
            self.add_events(kind, id, events);
        }
    }

    fn add_events(&mut self, kind: &RowKind, id: &str, events: Vec<StoredEvent>) {
        let of_row = |event| PurgedEvent { kind: kind.name, row: id.to_owned(), event };
        self.events.extend(events.into_iter().map(of_row));
    }
}

/// True if no event of the row is missing. Damage must stay for verification to find.
fn is_whole((kind, id): (&RowKind, &str), version: i64, events: &[StoredEvent]) -> bool {
    let is_whole = (1..=version).eq(events.iter().map(|event| event.version));
    if !is_whole {
        error!(row = id, kind = kind.name, "the history has a gap and is not purged");
    }
    is_whole
}
