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
use saga_engine::store::postgres::commit::{Attempt, Attempts, commit};
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
use uuid::Uuid;

use crate::bus::SharedBroker;
use crate::coverage::CoveragePoint;
use crate::invariants;
use crate::journal::{BatchEffects, BatchInputs, Journal};
use crate::notifications::{Notifications, notifications_of};
use crate::planted_fault::PlantedFault;
use crate::process::Process;
use crate::store_faults::StoreFaults;

/// Context of the fault of a lost reply.
const REPLY_LOST: &str = "ending a batch";

/// Effects, inputs and signals of a batch.
type Decided = (BatchEffects, BatchInputs, Vec<ReplicaSignal>);

/// The database as one life of a process reaches it.
pub struct SimStore {
    pub inner: Arc<SqliteStore>,
    pub process: Process,
    pub broker: SharedBroker,
    pub journal: Arc<Mutex<Journal>>,
    /// Inputs of the current batch so far.
    pub batch: Arc<Mutex<BatchInputs>>,
    pub store_faults: StoreFaults,
    /// Signals to other instances, if there are any.
    pub notifications: Option<Notifications>,
    /// True if the process's clock is seconds off.
    pub is_clock_off: bool,
}

impl SimStore {
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

    /// Selects the end of a commit.
    fn commit_end(&self) -> CommitEnd {
        let sim = self.process.sim();
        match sim.chance_of(sim.profile().replies_lost) {
            true => sim.one_of(&[CommitEnd::DoneUnknown, CommitEnd::FailedUnknown]),
            false => CommitEnd::Replied,
        }
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

    fn record(&self, (entry, batch, signals): Decided) {
        let sim = self.process.sim();
        self.notify(&signals);
        sim.note(|| format!("{} committed {batch:?} {entry:?}", self.process.name()));
        invariants::record_batch(sim, &batch);
        invariants::check_entry(sim, &entry);
        sim.count_many(CoveragePoint::ClockSkewSurvived, if self.is_clock_off { batch.due } else { 0 });
        let mut journal = self.journal.lock();
        invariants::check_deadlines(sim, &mut journal, &entry);
        journal.handled.extend(entry.handled);
        let inputs = journal.inputs.entry(self.process.name().to_owned()).or_default();
        *inputs += batch.inputs();
    }

    fn notify(&self, signals: &[ReplicaSignal]) {
        if let Some(notifications) = &self.notifications {
            notifications.notify(self.process.sim(), self.process.name(), signals);
        }
    }

    /// Settles outbox entries, unless another relay has taken the lease meanwhile.
    fn settled<'a>(
        &'a self,
        settling: impl Future<Output = Result<bool, StoreFault>> + Send + 'a,
    ) -> Answer<'a, bool> {
        Box::pin(async move {
            self.begin("before it settles").await?;
            let is_settled = settling.await?;
            self.process.sim().count_if(CoveragePoint::FencedOff, !is_settled);
            self.end("after it settled").await;
            Ok(is_settled)
        })
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
        let decided = Arc::default();
        let decide = Arc::new(Mutex::new(self.watched(&reads, decide, Arc::clone(&decided))));
        let mut attempts = BatchAttempts { store: self, reads, decide, decided };
        Box::pin(async move {
            // A server tells whether a batch was committed. A file does not, and the engine learns of the fault.
            if self.is_shared() || self.store_faults.misjudges_lost_replies() {
                return commit(attempts).await;
            }
            match attempts.attempt(Uuid::nil()).await {
                Attempt::Committed(entries) => Ok(entries),
                Attempt::Failed(fault) | Attempt::Unclear(_, fault) => Err(fault),
            }
        })
    }
}

struct BatchAttempts<'a> {
    store: &'a SimStore,
    reads: Reads,
    decide: Arc<Mutex<Decide>>,
    decided: Arc<Mutex<Decided>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitEnd {
    Replied,
    /// Done, and the reply is lost.
    DoneUnknown,
    /// Not done, which is unknown.
    FailedUnknown,
}

impl BatchAttempts<'_> {
    fn decide(&self) -> Decide {
        let decide = self.decide.clone();
        Box::new(move |loaded| (decide.lock())(loaded))
    }

    /// Decides the batch without a write.
    async fn only_decide(&self) -> Result<Vec<OutboxEntry>, StoreFault> {
        let mut decide = self.decide();
        let only_decide = Box::new(move |loaded| {
            let to_read = decide(loaded).to_read;
            Writes { to_read, ..Writes::default() }
        });
        self.store.inner.transact(self.reads.clone(), only_decide).await
    }

    async fn commit(&self, token: Uuid) -> Result<(Vec<OutboxEntry>, CommitEnd), StoreFault> {
        let (store, sim) = (self.store, self.store.process.sim());
        if let Err(fault) = store.begin("before it commits").await {
            store.journal.lock().has_store_failed = true;
            return match sim.has(PlantedFault::StoreFaultIgnored) {
                true => self.only_decide().await.map(|entries| (entries, CommitEnd::Replied)),
                false => Err(fault),
            };
        }
        let end = store.commit_end();
        if end == CommitEnd::FailedUnknown {
            return self.only_decide().await.map(|entries| (entries, end));
        }
        let two = [PlantedFault::PublishBeforeCommit, PlantedFault::InboxBeforeWork];
        let entries = match two.contains(&sim.planted_fault()) {
            true => store.commit_in_two(self.reads.clone(), self.decide()).await?,
            false => store.inner.transact(self.reads.clone(), self.decide()).await?,
        };
        let decided = std::mem::take(&mut *self.decided.lock());
        store.record(decided);
        store.journal.lock().tokens.insert(token);
        store.store_faults.publish_replays(&store.broker);
        Ok((entries, end))
    }
}

impl Attempts for BatchAttempts<'_> {
    type Done = Vec<OutboxEntry>;

    async fn attempt(&mut self, token: Uuid) -> Attempt<Self::Done> {
        let committed = self.commit(token).await;
        self.store.store_faults.set_reply_lost(false);
        let (entries, end) = match committed {
            Ok(committed) => committed,
            Err(fault) => return Attempt::Failed(fault),
        };
        self.store.end("before the commit is acknowledged").await;
        if end == CommitEnd::Replied {
            return Attempt::Committed(entries);
        }
        let sim = self.store.process.sim();
        sim.note(|| format!("{}'s store loses the reply to a commit: {end:?}", self.store.process.name()));
        sim.count_if(CoveragePoint::CommitReplyLost, end == CommitEnd::DoneUnknown);
        sim.count_if(CoveragePoint::CommitFailed, end == CommitEnd::FailedUnknown);
        self.store.journal.lock().has_store_failed = true;
        self.store.store_faults.set_reply_lost(true);
        let source = "injected: the connection is lost".into();
        Attempt::Unclear(entries, StoreFault::Database { context: REPLY_LOST, source })
    }

    async fn is_committed(&mut self, token: Uuid) -> Result<bool, StoreFault> {
        self.store.begin("before it checks a commit").await?;
        let is_committed = self.store.journal.lock().tokens.contains(&token);
        Ok(self.store.store_faults.judge_lost_reply(is_committed))
    }

    fn may_succeed(&self, fault: &StoreFault) -> bool {
        matches!(fault, StoreFault::Database { context: REPLY_LOST, .. })
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
        current: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        Box::pin(async move {
            self.begin("before it takes the lease").await?;
            self.inner.acquire_lease(name, current, owner, now, until).await
        })
    }

    fn release_lease<'a>(&'a self, name: &'static str, owner: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            self.begin("before it releases the lease").await?;
            self.inner.release_lease(name, owner).await
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
        self.settled(async move { self.inner.settle(&lease, published, now).await })
    }

    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.settled(async move { self.inner.settle_run(&lease, run).await })
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

/// Implements a role by passing its requests on to the database.
macro_rules! pass_on {
    ($role:ident { $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }) => {
        impl $role for SimStore {
            $(fn $name(&self, $($argument: $type),*) -> Answer<'_, $answer> {
                self.inner.$name($($argument),*)
            })*
        }
    };
}

pass_on!(Queries {
    row(key: RowKey) -> Option<FoundRow>;
    find(kind: &'static str, query: Query) -> Vec<FoundRow>;
    counts(kind: &'static str, by: &'static str, query: Query) -> BTreeMap<String, u64>;
    groups(kind: &'static str, by: &'static str, times: &'static str, query: Query) -> Vec<Group>;
    joined(kind: &'static str, join: Join, query: Query) -> Vec<Joined>;
    events(key: RowKey, after: i64, limit: usize) -> Vec<StoredEvent>;
    histories(kind: &'static str, ids: Vec<String>) -> Vec<Vec<StoredEvent>>;
});
pass_on!(History {
    rows_at(kind: &'static str, ids: Vec<String>, seq: i64) -> Vec<RowAt>;
    changed_rows(kind: &'static str, after: i64, limit: usize) -> Changes;
    event_fingerprint(seq: i64) -> Option<String>;
    position() -> DatabasePosition;
    check_position(recorded: DatabasePosition) -> ();
    accept_loss(name: String, now: Timestamp) -> ();
    lost_before() -> Option<Timestamp>;
});
pass_on!(Verification {
    verify() -> VerificationReport;
    verify_part(part: VerificationPart) -> VerificationReport;
    verify_changed(after: i64, events: u64) -> VerificationReport;
    verified_rows(kind: &'static str, page: VerifiedPage) -> VerifiedRows;
    rebuild(kind: &'static str) -> u64;
});
pass_on!(Retention {
    find_purgeable(before: RetentionCutoffs, limit: usize) -> PurgeBatch;
    purge(batch: PurgeBatch) -> u64;
    purged_rows(kind: &'static str) -> PurgedRows;
    restore_events(kind: &'static str, events: Vec<PurgedEvent>) -> u64;
    trim(cutoffs: TrimCutoffs, limit: usize) -> u64;
});
pass_on!(Monitoring {
    stats() -> StoreStats;
    clock() -> Option<Timestamp>;
    message_counts() -> MessageCounts;
    outbox_items(limit: usize) -> Vec<OutboxItem>;
    failing_tasks(limit: usize) -> Vec<FailingTask>;
    dead_letters(limit: usize) -> StoredDeadLetters;
});

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
