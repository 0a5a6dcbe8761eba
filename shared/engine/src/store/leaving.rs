//! Shell: what leaves the tables when it is old, and what of a row does, whatever store has read it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use saga_core::dead_letter::StoredDeadLetter;
use saga_core::decider::Sums;
use saga_core::retry::error_chain;
use saga_core::row::{RowKey, RowKind, StoredEvent};
use tracing::error;
use uuid::Uuid;

/// What may leave the tables for good, and go to an archive.
#[derive(Debug, Clone, Copy)]
pub struct Departures {
    /// Events older than this, and finished rows whose last event is ([`saga_core::decider::RetentionPolicy`]).
    pub history: Timestamp,
    /// Rows of sagas that began later stay, whatever the time of their events. Later than `history`, by what clocks differ.
    pub began: Timestamp,
    /// Dead letters that were resolved, or given up, before this.
    pub dead_letters: Timestamp,
}

/// An event that leaves the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavingEvent {
    /// Kind of its row.
    pub kind: &'static str,
    /// Id of its row.
    pub row: String,
    /// The event.
    pub event: StoredEvent,
}

/// What a row's fold begins from once the events up to there have left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The row.
    pub key: RowKey,
    /// Its version after the last event that leaves.
    pub version: i64,
    /// Its state then, as JSON.
    pub state: String,
    /// When its first event was.
    pub created_at: Timestamp,
}

/// A finished row that leaves, with all its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeavingRow {
    /// The row.
    pub key: RowKey,
    /// Its version: if it has another by then, it stays.
    pub version: i64,
    /// What counts for ever of it.
    pub carried: Sums,
}

/// What of a kind of rows has left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Finished rows of sagas with lower ids may have left; none of others has.
    pub before: Option<Uuid>,
    /// What counts for ever of them, by name.
    pub carried: BTreeMap<String, i64>,
}

/// What one look has found that is to leave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Leaving {
    /// All of the events, oldest first of each row.
    pub events: Vec<LeavingEvent>,
    /// What stands for them afterwards: with each, all events of its row up to its version leave.
    pub snapshots: Vec<Snapshot>,
    /// Finished rows: their events are among those.
    pub rows: Vec<LeavingRow>,
    /// No row of a saga with this id or a higher one leaves.
    pub before: Option<Uuid>,
    /// Dead letters that are over.
    pub dead_letters: Vec<StoredDeadLetter>,
    /// Where the look began in the history.
    pub from: i64,
    /// Where it ended.
    pub up_to: i64,
}

impl Leaving {
    /// Whether there is nothing more to look through, and nothing left.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.events.is_empty() && self.dead_letters.is_empty() && self.from == self.up_to
    }
}

/// Bytes of events in one look, about: each may carry a whole message.
const LOOK_BYTES: i64 = 4 * 1024 * 1024;

/// Events of a row that were looked at: where the first stands, and which version of the row the newest made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looked {
    pub(super) first_seq: i64,
    pub(super) newest: i64,
}

/// An event of the history, as a look comes past it.
pub(super) struct Passed {
    pub(super) seq: i64,
    pub(super) row: (String, String),
    pub(super) version: i64,
    /// When it was decided, in microseconds.
    pub(super) at: i64,
    pub(super) bytes: i64,
}

/// One look through the history, from its oldest event on.
#[derive(Default)]
pub(super) struct Look {
    pub(super) rows: BTreeMap<(String, String), Looked>,
    bytes: i64,
}

impl Look {
    /// Comes past the next event. `false` when it is too young, or there is enough: the look has ended before it.
    pub(super) fn pass(&mut self, leaving: &mut Leaving, cutoff: i64, event: Passed) -> bool {
        let Passed { seq, row, version, at, bytes } = event;
        self.bytes += bytes;
        if at >= cutoff || (self.bytes > LOOK_BYTES && !self.rows.is_empty()) {
            return false;
        }
        let looked = self.rows.entry(row).or_insert(Looked { first_seq: seq, newest: version });
        looked.newest = looked.newest.max(version);
        leaving.up_to = seq;
        true
    }
}

/// Ids from this one on are of sagas that began later.
pub(super) fn first_that_stays(began: Timestamp) -> Option<Uuid> {
    let began = u128::try_from(began.as_millisecond()).ok()?;
    (began < 1 << 48).then(|| Uuid::from_u128(began << 80))
}

/// What stands already for events of a row that have left.
pub(super) struct Before {
    pub(super) version: i64,
    /// As JSON.
    pub(super) state: String,
    pub(super) created_at: Timestamp,
}

impl Leaving {
    /// These events leave of a row that lives on, unless one is missing; `limit` of them are no more than were to be read.
    pub(super) fn take_part(
        &mut self,
        (kind, id): (&RowKind, &str),
        before: Option<&Before>,
        events: Vec<StoredEvent>,
        (at, limit): (Looked, i64),
    ) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        if i64::try_from(events.len()).is_ok_and(|count| count >= limit) {
            // There are more: it is looked at again.
            self.up_to = self.up_to.min(at.first_seq - 1);
        }
        let begins_after = before.map_or(0, |before| before.version);
        let version = last.version.max(begins_after);
        let created_at = before.map_or(first.recorded_at, |before| before.created_at);
        let folded: Vec<&StoredEvent> = events.iter().filter(|event| event.version > begins_after).collect();
        let is_whole = (begins_after + 1..).zip(&folded).all(|(version, event)| event.version == version);
        let data = folded.iter().map(|event| &event.data);
        let state = before.map(|before| before.state.as_str());
        match kind.fold(id, state, data) {
            Ok(folded) if is_whole => {
                let key = RowKey { kind: kind.name, id: id.to_owned() };
                self.snapshots.push(Snapshot { key, version, state: folded.state, created_at });
                self.take_events(kind, id, events);
            }
            // A snapshot would hide it.
            Ok(_) => error!(row = id, kind = kind.name, "a history has a gap: it stays"),
            Err(why) => error!(row = id, kind = kind.name, "a history stays: {}", error_chain(&why)),
        }
    }

    /// A finished row leaves with all its events, unless one is missing.
    pub(super) fn take_whole(
        &mut self,
        (kind, id): (&RowKind, &str),
        (version, carried): (i64, Sums),
        events: Vec<StoredEvent>,
    ) {
        if !(1..=version).eq(events.iter().map(|event| event.version)) {
            // Whoever looks for damage must find it.
            error!(row = id, kind = kind.name, "a history has a gap: it stays");
            return;
        }
        let key = RowKey { kind: kind.name, id: id.to_owned() };
        self.rows.push(LeavingRow { key, version, carried });
        self.take_events(kind, id, events);
    }

    fn take_events(&mut self, kind: &RowKind, id: &str, events: Vec<StoredEvent>) {
        let of_row = |event| LeavingEvent { kind: kind.name, row: id.to_owned(), event };
        self.events.extend(events.into_iter().map(of_row));
    }
}

/// What of a row in this state counts for ever; `None` while it is not finished, or cannot be read.
pub(super) fn carried_of(kind: &RowKind, id: &str, state: &str) -> Option<Sums> {
    (kind.finished)(state).unwrap_or_else(|why| {
        error!(row = id, kind = kind.name, "a row stays: {}", error_chain(&why));
        None
    })
}
