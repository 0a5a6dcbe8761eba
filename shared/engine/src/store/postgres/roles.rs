//! Shell: roles of the store on PostgreSQL, each on the connection, and in the transaction, that suits it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use saga_core::decision::{Decide, Reads};
use saga_core::query::{FoundRow, Group, Join, Joined, Query};
use saga_core::row::{RowKey, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::notify::Announcement;
use super::pool::Lane;
use super::{
    MIN_SETTLE_INTERVAL, PostgresStore, commit_order, db_open, due_work, history_at, leases, monitoring,
    outbox, overrides, queries, spawned, transact, trim,
};
use crate::store::roles::{
    DueWork, History, Leases, Monitoring, Outbox, Overrides, Queries, Replicas, Retention, Transactions,
    Verification,
};
use crate::store::verification::RowByRow;
use crate::store::{
    Answer, Changes, DatabasePosition, Due, DueQuery, FailingTask, Guard, Lease, OutboxEntry, OutboxItem,
    PublishOutcome, PublishedRun, PurgeBatch, PurgedEvent, PurgedRows, RELAY_LEASE, ReplicaSignal,
    RepublishPage, RetentionCutoffs, RowAt, StoredDeadLetters, StoredOverrides, TrimCutoffs,
    VerificationPart, VerificationReport, VerifiedPage, VerifiedRows, fold, retention, verification,
};

impl Transactions for PostgresStore {
    fn transact(&self, reads: Reads, decide: Decide) -> Answer<'_, Vec<OutboxEntry>> {
        let database = self.database.clone();
        spawned(async move { transact::transact(&database, &reads, decide).await })
    }

    fn wait_for_turn(&self) -> BoxFuture<'_, Option<Guard>> {
        Box::pin(commit_order::wait_for_turn(&self.database))
    }
}

impl Replicas for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn signals(&self) -> Option<mpsc::Receiver<ReplicaSignal>> {
        self.database.notifications.signals()
    }

    fn watch_kind(&self, kind: &'static str) -> Option<Guard> {
        Some(self.database.notifications.watch_kind(kind))
    }

    fn leadership(&self) -> Option<watch::Receiver<bool>> {
        Some(self.database.leadership.subscribe())
    }
}

impl Leases for PostgresStore {
    fn acquire_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        let (held, owner) = (held.cloned(), owner.to_owned());
        let database = self.database.clone();
        let acquiring = self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move {
                leases::acquire(conn, name, held.as_ref(), &owner, (now, until), &database.dead_owners).await
            })
        });
        // Counted from before the request, so that the leadership never outlasts the lease.
        let span = Duration::try_from(until.duration_since(now)).unwrap_or_default();
        let ends = Instant::now() + span;
        Box::pin(async move {
            let acquired = acquiring.await;
            if name == RELAY_LEASE {
                match acquired {
                    Ok(Some(_)) => self.database.leadership.hold_until(ends),
                    // A replica that cannot renew the lease could not store its work either.
                    Ok(None) | Err(_) => self.database.leadership.end(),
                }
            }
            acquired
        })
    }

    fn release_lease<'a>(&'a self, name: &'static str, owner: &'a str) -> Answer<'a, ()> {
        if name == RELAY_LEASE {
            self.database.leadership.end();
        }
        let owner = owner.to_owned();
        self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { leases::release(conn, name, &owner).await })
        })
    }
}

impl Outbox for PostgresStore {
    fn pending_entries(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>> {
        self.snapshot(Lane::Quick, move |conn, _| Box::pin(outbox::pending_entries(conn, limit)))
    }

    fn entries_after(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>> {
        self.snapshot(Lane::Quick, move |conn, _| Box::pin(outbox::entries_after(conn, position, limit)))
    }

    fn sequence_end(&self) -> Answer<'_, Option<i64>> {
        self.read(Lane::Quick, |conn, _| Box::pin(outbox::sequence_end(conn)))
    }

    fn settle(&self, lease: &Lease, outcome: PublishOutcome, now: Timestamp) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { outbox::settle(conn, &lease, &outcome, now).await })
        })
    }

    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { outbox::settle_run(conn, &lease, &run).await })
        })
    }

    fn min_settle_interval(&self) -> Duration {
        MIN_SETTLE_INTERVAL
    }

    fn retry_failed_entries(&self, seq: Option<i64>) -> Answer<'_, u64> {
        let retrying =
            self.write(Lane::Quick, move |conn, _| Box::pin(outbox::retry_failed_entries(conn, seq)));
        self.announcing(Announcement::of_entries(), retrying)
    }

    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, RepublishPage> {
        let marking =
            self.write(Lane::Quick, move |conn, _| Box::pin(outbox::republish(conn, since, after, limit)));
        self.announcing(Announcement::of_entries(), marking)
    }

    fn kept_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(Lane::Quick, |conn, _| Box::pin(outbox::kept_since(conn)))
    }
}

impl DueWork for PostgresStore {
    fn claim_due(&self, query: DueQuery) -> Answer<'_, Due> {
        self.write(Lane::Quick, move |conn, kinds| {
            Box::pin(async move { due_work::claim_due(conn, &kinds.0, &query).await })
        })
    }
}

impl Queries for PostgresStore {
    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>> {
        self.read(Lane::Quick, move |conn, _| Box::pin(async move { queries::row(conn, &key).await }))
    }

    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>> {
        let lane = if query.is_for_one() { Lane::Quick } else { Lane::Scan };
        self.read(lane, move |conn, kinds| {
            Box::pin(async move { queries::find(conn, kinds.of_name(kind)?, &query).await })
        })
    }

    fn counts(
        &self,
        kind: &'static str,
        by: &'static str,
        query: Query,
    ) -> Answer<'_, BTreeMap<String, u64>> {
        self.read(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { queries::counts(conn, kinds.of_name(kind)?, by, &query).await })
        })
    }

    fn groups(
        &self,
        kind: &'static str,
        by: &'static str,
        times: &'static str,
        query: Query,
    ) -> Answer<'_, Vec<Group>> {
        self.read(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { queries::groups(conn, kinds.of_name(kind)?, by, times, &query).await })
        })
    }

    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>> {
        self.read(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { queries::joined(conn, kinds.of_name(kind)?, &join, &query).await })
        })
    }

    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.read(Lane::Quick, move |conn, _| {
            Box::pin(async move { queries::history(conn, key.kind, &key.id, after, limit).await })
        })
    }

    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>> {
        self.snapshot(Lane::Scan, move |conn, _| {
            Box::pin(async move { queries::histories(conn, kind, &ids).await })
        })
    }
}

impl History for PostgresStore {
    fn rows_at(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAt>> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move {
                let (kind, mut rows) = (kinds.of_name(kind)?, vec![]);
                for id in &ids {
                    rows.extend(history_at::row_as_of(conn, kind, id, seq).await?);
                }
                Ok(rows)
            })
        })
    }

    fn changed_rows(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes> {
        self.read(Lane::Scan, move |conn, _| {
            Box::pin(async move { Ok(history_at::changed(conn, after, limit).await?.of_kind(kind)) })
        })
    }

    fn event_fingerprint(&self, seq: i64) -> Answer<'_, Option<String>> {
        self.read(Lane::Quick, move |conn, _| Box::pin(history_at::event_fingerprint(conn, seq)))
    }

    fn position(&self) -> Answer<'_, DatabasePosition> {
        self.read(Lane::Quick, |conn, _| Box::pin(db_open::position(conn)))
    }
}

impl Verification for PostgresStore {
    fn verify(&self) -> Answer<'_, VerificationReport> {
        self.snapshot(Lane::Scan, |conn, kinds| Box::pin(verification::verify(conn, &kinds.0)))
    }

    fn verify_part(&self, part: VerificationPart) -> Answer<'_, VerificationReport> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { verification::verify_part(conn, &kinds.0, &part, &mut RowByRow).await })
        })
    }

    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, VerificationReport> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(verification::verify_changed(conn, &kinds.0, after, events))
        })
    }

    fn verified_rows(&self, kind: &'static str, page: VerifiedPage) -> Answer<'_, VerifiedRows> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { verification::verified_rows(conn, kinds.of_name(kind)?, &page).await })
        })
    }

    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64> {
        self.write(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { fold::rebuild(conn, kinds.of_name(kind)?).await })
        })
    }
}

impl Retention for PostgresStore {
    fn find_purgeable(&self, before: RetentionCutoffs, limit: usize) -> Answer<'_, PurgeBatch> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { retention::find(conn, &kinds.0, before, limit).await })
        })
    }

    fn purge(&self, batch: PurgeBatch) -> Answer<'_, u64> {
        self.write(Lane::Quick, move |conn, _| Box::pin(async move { retention::purge(conn, &batch).await }))
    }

    fn purged_rows(&self, kind: &'static str) -> Answer<'_, PurgedRows> {
        self.read(Lane::Quick, move |conn, _| Box::pin(super::retention::purged_rows(conn, kind)))
    }

    fn restore_events(&self, kind: &'static str, events: Vec<PurgedEvent>) -> Answer<'_, u64> {
        self.write(Lane::Scan, move |conn, _| {
            Box::pin(async move { retention::restore(conn, kind, &events).await })
        })
    }

    fn trim(&self, cutoffs: TrimCutoffs, limit: usize) -> Answer<'_, u64> {
        self.write(Lane::Quick, move |conn, _| Box::pin(trim::trim(conn, cutoffs, limit)))
    }
}

impl Monitoring for PostgresStore {
    fn stats(&self) -> Answer<'_, StoreStats> {
        self.read(Lane::Quick, |conn, _| Box::pin(monitoring::stats(conn)))
    }

    fn message_counts(&self) -> Answer<'_, MessageCounts> {
        self.snapshot(Lane::Scan, |conn, _| Box::pin(monitoring::message_counts(conn)))
    }

    fn outbox_items(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>> {
        self.read(Lane::Scan, move |conn, _| Box::pin(outbox::items(conn, limit)))
    }

    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>> {
        self.read(Lane::Scan, move |conn, _| Box::pin(monitoring::failing_tasks(conn, limit)))
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters> {
        self.read(Lane::Scan, move |conn, _| Box::pin(monitoring::dead_letters(conn, limit)))
    }
}

impl Overrides for PostgresStore {
    fn overrides(&self) -> Answer<'_, StoredOverrides> {
        self.read(Lane::Quick, |conn, _| Box::pin(overrides::overrides(conn)))
    }

    fn replace_overrides(&self, revision: i64, text: String) -> Answer<'_, bool> {
        let replacing = self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { overrides::replace_overrides(conn, revision, &text).await })
        });
        self.announcing(Announcement::of_overrides(), replacing)
    }
}
