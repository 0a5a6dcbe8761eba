//! Shell: roles of the store on SQLite, each on the connection that suits it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::Connection;
use saga_core::decision::{Decide, Reads};
use saga_core::query::{FoundRow, Group, Join, Joined, Query};
use saga_core::row::{RowKey, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};

use super::log_scan::LogScans;
use super::readers::Lane;
use super::writer::Urgency;
use super::{
    SqliteStore, due_work, history_at, leases, load, monitoring, outbox, overrides, queries, run, trim, write,
};
use crate::store::roles::{
    DueWork, History, Leases, Monitoring, Outbox, Overrides, Queries, Replicas, Retention, Transactions,
    Verification,
};
use crate::store::{
    Answer, Changes, DatabasePosition, Due, DueQuery, FailingTask, Lease, OutboxEntry, OutboxItem,
    PublishOutcome, PublishedRun, PurgeBatch, PurgedEvent, PurgedRows, RepublishPage, RetentionCutoffs,
    RowAt, StoredDeadLetters, StoredOverrides, TrimCutoffs, VerificationPart, VerificationReport,
    VerifiedPage, VerifiedRows, fold, retention, verification,
};

impl Transactions for SqliteStore {
    fn transact(&self, reads: Reads, mut decide: Decide) -> Answer<'_, Vec<OutboxEntry>> {
        let kinds = self.kinds.clone();
        self.write(move |conn| {
            let writes = load::load_and_decide(conn, &kinds.sql, &reads, &mut decide)?;
            write::write(conn, &kinds.sql, &writes)
        })
    }
}

impl Replicas for SqliteStore {}

impl Leases for SqliteStore {
    fn acquire_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        let (held, owner) = (held.cloned(), owner.to_owned());
        self.write(move |conn| leases::acquire(conn, name, held.as_ref(), &owner, now, until))
    }
}

impl Outbox for SqliteStore {
    fn pending_entries(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>> {
        self.read(Lane::Relay, move |conn| outbox::pending_entries(conn, limit))
    }

    fn entries_after(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>> {
        self.read(Lane::Relay, move |conn| outbox::entries_after(conn, position, limit))
    }

    fn sequence_end(&self) -> Answer<'_, Option<i64>> {
        self.read(Lane::Relay, outbox::sequence_end)
    }

    fn settle(&self, lease: &Lease, outcome: PublishOutcome, now: Timestamp) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.write(move |conn| outbox::settle(conn, &lease, &outcome, now))
    }

    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.writer.write(Urgency::Deferrable, move |conn| outbox::settle_run(conn, &lease, &run))
    }

    fn retry_failed_entries(&self, seq: Option<i64>) -> Answer<'_, u64> {
        self.write(move |conn| outbox::retry_failed_entries(conn, seq))
    }

    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, RepublishPage> {
        self.write(move |conn| outbox::republish(conn, since, after, limit))
    }

    fn kept_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(Lane::Health, outbox::kept_since)
    }
}

impl DueWork for SqliteStore {
    fn claim_due(&self, query: DueQuery) -> Answer<'_, Due> {
        let kinds = self.kinds.clone();
        self.write(move |conn| due_work::claim_due(conn, &kinds.declared, &query))
    }
}

impl Queries for SqliteStore {
    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>> {
        self.read(Lane::Row, move |conn| queries::row(conn, &key))
    }

    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>> {
        let lane = if query.is_for_one() { Lane::Row } else { Lane::Scan };
        self.read(lane, move |conn| queries::find(conn, kind, &query))
    }

    fn counts(
        &self,
        kind: &'static str,
        by: &'static str,
        query: Query,
    ) -> Answer<'_, BTreeMap<String, u64>> {
        self.read(Lane::Scan, move |conn| queries::counts(conn, kind, by, &query))
    }

    fn groups(
        &self,
        kind: &'static str,
        by: &'static str,
        times: &'static str,
        query: Query,
    ) -> Answer<'_, Vec<Group>> {
        self.read(Lane::Scan, move |conn| queries::groups(conn, kind, by, times, &query))
    }

    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>> {
        self.read(Lane::Scan, move |conn| queries::joined(conn, kind, &join, &query))
    }

    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.read(Lane::Row, move |conn| queries::history(conn, key.kind, &key.id, after, limit))
    }

    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>> {
        self.read(Lane::Scan, move |conn| {
            ids.iter().map(|id| queries::history(conn, kind, id, 0, usize::MAX)).collect()
        })
    }
}

impl History for SqliteStore {
    fn rows_at(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAt>> {
        let kinds = self.kinds.clone();
        self.read(Lane::Scan, move |conn| {
            let kind = kinds.of_name(kind)?;
            ids.iter().filter_map(|id| history_at::row_as_of(conn, kind, id, seq).transpose()).collect()
        })
    }

    fn changed_rows(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes> {
        self.read(Lane::Scan, move |conn| Ok(history_at::changed(conn, after, limit)?.of_kind(kind)))
    }

    fn event_fingerprint(&self, seq: i64) -> Answer<'_, Option<String>> {
        self.read(Lane::Health, move |conn| history_at::event_fingerprint(conn, seq))
    }

    fn position(&self) -> Answer<'_, DatabasePosition> {
        self.read(Lane::Health, DatabasePosition::read)
    }
}

impl Verification for SqliteStore {
    fn verify(&self) -> Answer<'_, VerificationReport> {
        let kinds = self.kinds.clone();
        self.read(Lane::Verification, move |conn| run(verification::verify(conn, &kinds.declared)))
    }

    fn verify_part(&self, part: VerificationPart) -> Answer<'_, VerificationReport> {
        let (kinds, scan) = (self.kinds.clone(), self.scan.clone());
        self.read(Lane::Verification, move |conn: &Connection| {
            let mut scan = scan.lock();
            run(verification::verify_part(conn, &kinds.declared, &part, &mut LogScans(&mut scan)))
        })
    }

    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, VerificationReport> {
        let kinds = self.kinds.clone();
        self.read(Lane::Verification, move |conn| {
            run(verification::verify_changed(conn, &kinds.declared, after, events))
        })
    }

    fn verified_rows(&self, kind: &'static str, page: VerifiedPage) -> Answer<'_, VerifiedRows> {
        let kinds = self.kinds.clone();
        self.read(Lane::Verification, move |conn| {
            run(verification::verified_rows(conn, kinds.of_name(kind)?, &page))
        })
    }

    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64> {
        let kinds = self.kinds.clone();
        self.write(move |conn| run(fold::rebuild(conn, kinds.of_name(kind)?)))
    }
}

impl Retention for SqliteStore {
    fn find_purgeable(&self, before: RetentionCutoffs, limit: usize) -> Answer<'_, PurgeBatch> {
        let kinds = self.kinds.clone();
        self.read(Lane::Verification, move |conn| run(retention::find(conn, &kinds.declared, before, limit)))
    }

    fn purge(&self, batch: PurgeBatch) -> Answer<'_, u64> {
        self.writer.write(Urgency::Deferrable, move |conn| run(retention::purge(conn, &batch)))
    }

    fn purged_rows(&self, kind: &'static str) -> Answer<'_, PurgedRows> {
        self.read(Lane::Row, move |conn| super::retention::purged_rows(conn, kind))
    }

    fn restore_events(&self, kind: &'static str, events: Vec<PurgedEvent>) -> Answer<'_, u64> {
        self.write(move |conn| run(retention::restore(conn, kind, &events)))
    }

    fn trim(&self, cutoffs: TrimCutoffs, limit: usize) -> Answer<'_, u64> {
        self.write(move |conn| trim::trim(conn, cutoffs, limit))
    }
}

impl Monitoring for SqliteStore {
    fn stats(&self) -> Answer<'_, StoreStats> {
        let location = self.location.clone();
        self.read(Lane::Health, move |conn| {
            location.map_or(Ok(()), |location| location.check())?;
            monitoring::stats(conn)
        })
    }

    fn message_counts(&self) -> Answer<'_, MessageCounts> {
        self.read(Lane::Scan, monitoring::message_counts)
    }

    fn outbox_items(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>> {
        self.read(Lane::Scan, move |conn| outbox::items(conn, limit))
    }

    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>> {
        self.read(Lane::Scan, move |conn| monitoring::failing_tasks(conn, limit))
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters> {
        self.read(Lane::Scan, move |conn| monitoring::dead_letters(conn, limit))
    }
}

impl Overrides for SqliteStore {
    fn overrides(&self) -> Answer<'_, StoredOverrides> {
        self.read(Lane::Row, overrides::overrides)
    }

    fn replace_overrides(&self, revision: i64, text: String) -> Answer<'_, bool> {
        self.write(move |conn| overrides::replace_overrides(conn, revision, &text))
    }
}
