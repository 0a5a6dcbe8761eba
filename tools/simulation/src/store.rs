//! Shell: the database of one process: slow, sometimes failing, and interrupted at any point of a
//! transaction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::decision::{Decide, Loaded, Reads, Writes};
use saga_core::query::{FoundRow, Group, Join, Joined, Query};
use saga_core::row::{RowKey, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};
use saga_engine::store::postgres::MIN_SETTLE_INTERVAL;
use saga_engine::store::roles::{
    DueWork, History, Leases, Monitoring, Outbox, Overrides, Queries, Replicas, Retention, Transactions,
    Verification,
};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{
    Answer, Changes, DatabasePosition, Due, DueQuery, FailingTask, Lease, OutboxEntry, OutboxItem,
    PublishOutcome, PublishedRun, PurgeBatch, PurgedEvent, PurgedRows, ReplicaSignal, RepublishPage,
    RetentionCutoffs, RowAt, StoreFault, StoredDeadLetters, StoredOverrides, TrimCutoffs, VerificationPart,
    VerificationReport, VerifiedPage, VerifiedRows,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::bus::SharedBroker;
use crate::coverage::CoveragePoint;
use crate::invariants;
use crate::journal::{BatchEffects, BatchInputs, Journal};
use crate::notifications::{Notifications, notifications_of};
use crate::planted_fault::PlantedFault;
use crate::process::Process;
use crate::store_faults::StoreFaults;

/// Effects, inputs and notifications of a batch.
type Decided = (BatchEffects, BatchInputs, Vec<ReplicaSignal>);

/// The database as one life of a process reaches it.
pub struct SimStore {
    inner: Arc<SqliteStore>,
    process: Process,
    broker: SharedBroker,
    journal: Arc<Mutex<Journal>>,
    /// Inputs of the current batch so far.
    batch: Arc<Mutex<BatchInputs>>,
    store_faults: StoreFaults,
    /// Notifications to other instances, if there are any.
    notifications: Option<Notifications>,
    /// True if the process's clock is seconds off.
    is_clock_off: bool,
}

impl SimStore {
    #[must_use]
    pub const fn new(
        inner: Arc<SqliteStore>,
        process: Process,
        broker: SharedBroker,
        journal: Arc<Mutex<Journal>>,
        batch: Arc<Mutex<BatchInputs>>,
        store_faults: StoreFaults,
        is_clock_off: bool,
    ) -> Self {
        Self { inner, process, broker, journal, batch, store_faults, notifications: None, is_clock_off }
    }

    /// Adds notifications if the database is shared.
    #[must_use]
    pub fn with_notifications(self, notifications: Notifications) -> Self {
        let notifications = (self.process.sim().profile().instances > 1).then_some(notifications);
        Self { notifications, ..self }
    }

    /// Starts a request. Nothing happens if the process crashes or the database fails here.
    async fn begin(&self, what: &'static str) -> Result<(), StoreFault> {
        self.process.crash_point(what).await;
        self.take_time().await;
        let sim = self.process.sim();
        if sim.chance_of(sim.profile().store_fails) {
            sim.note(|| format!("{}'s store fails {what}", self.process.name()));
            sim.count(CoveragePoint::StoreFaultSurvived);
            return Err(StoreFault::Database { context: what, source: "injected: the disk is full".into() });
        }
        Ok(())
    }

    /// Ends a request. The outcome is unknown if the process crashes here.
    async fn end(&self, what: &'static str) {
        self.take_time().await;
        self.process.crash_point(what).await;
    }

    async fn take_time(&self) {
        let sim = self.process.sim();
        sleep(if sim.chance(sim.profile().store_delays) { sim.up_to(400) } else { sim.up_to(4) }).await;
    }

    /// Wraps the engine's closure to record what it reads and decides.
    fn watched(&self, reads: &Reads, mut decide: Decide, entry: Arc<Mutex<Decided>>) -> Decide {
        let (reads, batch, store_faults) = (reads.clone(), self.batch.clone(), self.store_faults.clone());
        Box::new(move |mut loaded: Loaded| {
            store_faults.alter_loaded(&mut loaded);
            let mut counts = BatchInputs::default();
            counts.count_messages(&reads, &loaded);
            *batch.lock() = counts;
            let mut writes = decide(loaded);
            *entry.lock() = (BatchEffects::of(&writes), *batch.lock(), notifications_of(&writes));
            store_faults.alter_writes(&mut writes);
            writes
        })
    }

    fn committed(&self, (entry, batch, notifications): Decided) {
        let sim = self.process.sim();
        self.notify(&notifications);
        sim.note(|| format!("{} committed {batch:?} {entry:?}", self.process.name()));
        invariants::record_batch(sim, &batch);
        invariants::check_entry(sim, &entry);
        sim.count_many(CoveragePoint::ClockSkewSurvived, if self.is_clock_off { batch.due } else { 0 });
        let mut journal = self.journal.lock();
        journal.handled.extend(entry.handled);
        let inputs = journal.inputs.entry(self.process.name().to_owned()).or_default();
        *inputs += batch.inputs();
    }

    fn notify(&self, all: &[ReplicaSignal]) {
        if let Some(notifications) = &self.notifications {
            notifications.notify(self.process.sim(), self.process.name(), all);
        }
    }

    /// Commits in two transactions in place of one, to plant a fault.
    async fn commit_in_two(&self, reads: Reads, mut decide: Decide) -> Result<Vec<OutboxEntry>, StoreFault> {
        let slot = Arc::new(Mutex::new(Writes::default()));
        let decided = slot.clone();
        let only_decide = Box::new(move |loaded| {
            let writes = decide(loaded);
            let to_read = writes.to_read.clone();
            *decided.lock() = writes;
            Writes { to_read, ..Writes::default() }
        });
        self.inner.transact(reads, only_decide).await?;
        let writes = slot.lock().clone();
        if self.process.sim().has(PlantedFault::PublishBeforeCommit) {
            for entry in &writes.outbox {
                self.broker.store(entry.id, &entry.subject, entry.payload.clone(), false);
            }
        } else {
            let (inbox, decided_at) = (writes.inbox.clone(), writes.decided_at);
            let marks = move |_| Writes { inbox: inbox.clone(), decided_at, ..Writes::default() };
            self.inner.transact(Reads::default(), Box::new(marks)).await?;
        }
        self.end("between two transactions").await;
        self.inner.transact(Reads::default(), Box::new(move |_| writes.clone())).await
    }
}

impl Transactions for SimStore {
    fn transact(&self, reads: Reads, decide: Decide) -> Answer<'_, Vec<OutboxEntry>> {
        Box::pin(async move {
            let begun = self.begin("before it commits").await;
            let entry = Arc::default();
            let mut decide = self.watched(&reads, decide, Arc::clone(&entry));
            if let Err(fault) = begun {
                self.journal.lock().has_store_failed = true;
                if !self.process.sim().has(PlantedFault::StoreFaultIgnored) {
                    return Err(fault);
                }
                let only_decide = Box::new(move |loaded| {
                    let to_read = decide(loaded).to_read;
                    Writes { to_read, ..Writes::default() }
                });
                return self.inner.transact(reads, only_decide).await;
            }
            let two = [PlantedFault::PublishBeforeCommit, PlantedFault::InboxBeforeWork];
            let promised = match two.contains(&self.process.sim().planted_fault()) {
                true => self.commit_in_two(reads, decide).await?,
                false => self.inner.transact(reads, decide).await?,
            };
            let entry = std::mem::take(&mut *entry.lock());
            self.committed(entry);
            self.store_faults.publish_replays(&self.broker);
            self.end("before the commit is acknowledged").await;
            Ok(promised)
        })
    }
}

impl Replicas for SimStore {
    fn is_shared(&self) -> bool {
        self.notifications.is_some()
    }

    fn signals(&self) -> Option<mpsc::Receiver<ReplicaSignal>> {
        self.notifications.as_ref().map(|notifications| notifications.listen(self.process.name()))
    }
}

impl Leases for SimStore {
    fn acquire_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        Box::pin(async move {
            self.begin("before it takes the lease").await?;
            self.inner.acquire_lease(name, held, owner, now, until).await
        })
    }
}

impl Outbox for SimStore {
    fn pending_entries(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>> {
        Box::pin(async move {
            self.begin("before it reads the outbox").await?;
            self.inner.pending_entries(limit).await
        })
    }

    fn entries_after(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>> {
        Box::pin(async move {
            self.begin("before it reads later outbox entries").await?;
            self.inner.entries_after(position, limit).await
        })
    }

    fn sequence_end(&self) -> Answer<'_, Option<i64>> {
        self.inner.sequence_end()
    }

    fn settle(&self, lease: &Lease, published: PublishOutcome, now: Timestamp) -> Answer<'_, bool> {
        let lease = lease.clone();
        Box::pin(async move {
            self.begin("before it settles").await?;
            let settled = self.inner.settle(&lease, published, now).await?;
            if !settled {
                self.process.sim().count(CoveragePoint::FencedOff);
            }
            self.end("after it settled").await;
            Ok(settled)
        })
    }

    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool> {
        let lease = lease.clone();
        Box::pin(async move {
            self.begin("before it settles a run").await?;
            let settled = self.inner.settle_run(&lease, run).await?;
            if !settled {
                self.process.sim().count(CoveragePoint::FencedOff);
            }
            self.end("after it settled a run").await;
            Ok(settled)
        })
    }

    fn min_settle_interval(&self) -> Duration {
        // The value of PostgreSQL.
        if self.notifications.is_some() { MIN_SETTLE_INTERVAL } else { self.inner.min_settle_interval() }
    }

    fn retry_failed_entries(&self, seq: Option<i64>) -> Answer<'_, u64> {
        self.inner.retry_failed_entries(seq)
    }

    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, RepublishPage> {
        self.inner.republish(since, after, limit)
    }

    fn kept_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.inner.kept_since()
    }
}

impl DueWork for SimStore {
    fn claim_due(&self, query: DueQuery) -> Answer<'_, Due> {
        Box::pin(async move {
            self.begin("before it reads what is due").await?;
            let mut due = self.inner.claim_due(query.clone()).await?;
            self.store_faults.alter_due(&mut due, &query);
            self.end("with what is due in hand").await;
            Ok(due)
        })
    }
}

impl Queries for SimStore {
    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>> {
        self.inner.row(key)
    }

    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>> {
        self.inner.find(kind, query)
    }

    fn counts(
        &self,
        kind: &'static str,
        by: &'static str,
        query: Query,
    ) -> Answer<'_, BTreeMap<String, u64>> {
        self.inner.counts(kind, by, query)
    }

    fn groups(
        &self,
        kind: &'static str,
        by: &'static str,
        times: &'static str,
        query: Query,
    ) -> Answer<'_, Vec<Group>> {
        self.inner.groups(kind, by, times, query)
    }

    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>> {
        self.inner.joined(kind, join, query)
    }

    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.inner.events(key, after, limit)
    }

    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>> {
        self.inner.histories(kind, ids)
    }
}

impl History for SimStore {
    fn rows_at(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAt>> {
        self.inner.rows_at(kind, ids, seq)
    }

    fn changed_rows(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes> {
        self.inner.changed_rows(kind, after, limit)
    }

    fn event_fingerprint(&self, seq: i64) -> Answer<'_, Option<String>> {
        self.inner.event_fingerprint(seq)
    }

    fn position(&self) -> Answer<'_, DatabasePosition> {
        self.inner.position()
    }
}

impl Verification for SimStore {
    fn verify(&self) -> Answer<'_, VerificationReport> {
        self.inner.verify()
    }

    fn verify_part(&self, part: VerificationPart) -> Answer<'_, VerificationReport> {
        self.inner.verify_part(part)
    }

    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, VerificationReport> {
        self.inner.verify_changed(after, events)
    }

    fn verified_rows(&self, kind: &'static str, page: VerifiedPage) -> Answer<'_, VerifiedRows> {
        self.inner.verified_rows(kind, page)
    }

    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64> {
        self.inner.rebuild(kind)
    }
}

impl Retention for SimStore {
    fn find_purgeable(&self, before: RetentionCutoffs, limit: usize) -> Answer<'_, PurgeBatch> {
        self.inner.find_purgeable(before, limit)
    }

    fn purge(&self, leaving: PurgeBatch) -> Answer<'_, u64> {
        self.inner.purge(leaving)
    }

    fn purged_rows(&self, kind: &'static str) -> Answer<'_, PurgedRows> {
        self.inner.purged_rows(kind)
    }

    fn restore_events(&self, kind: &'static str, events: Vec<PurgedEvent>) -> Answer<'_, u64> {
        self.inner.restore_events(kind, events)
    }

    fn trim(&self, cutoffs: TrimCutoffs, limit: usize) -> Answer<'_, u64> {
        self.inner.trim(cutoffs, limit)
    }
}

impl Monitoring for SimStore {
    fn stats(&self) -> Answer<'_, StoreStats> {
        self.inner.stats()
    }

    fn message_counts(&self) -> Answer<'_, MessageCounts> {
        self.inner.message_counts()
    }

    fn outbox_items(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>> {
        self.inner.outbox_items(limit)
    }

    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>> {
        self.inner.failing_tasks(limit)
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters> {
        self.inner.dead_letters(limit)
    }
}

impl Overrides for SimStore {
    fn overrides(&self) -> Answer<'_, StoredOverrides> {
        self.inner.overrides()
    }

    fn replace_overrides(&self, revision: i64, text: String) -> Answer<'_, bool> {
        Box::pin(async move {
            let is_done = self.inner.replace_overrides(revision, text).await?;
            self.notify(&[ReplicaSignal::OverridesChanged]);
            Ok(is_done)
        })
    }
}
