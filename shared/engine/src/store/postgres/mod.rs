//! Shell: the store on PostgreSQL, which several processes share: how a database is opened, and on which connections what
//! is done.
//!
//! What holds where two of them meet: batches are written one after the other, whoever takes the head of the database first
//! (`write`); a batch that was decided on what somebody else has changed meanwhile is a conflict, and is decided again. Rows,
//! tasks and dead letters are locked from the reading on, in the order of their keys, and before the head. A task that is
//! due goes to one of those who look for it. One of all relays has the lease.

mod connect;
mod departures;
mod due;
mod fold;
mod lead;
mod leases;
mod left;
mod listening;
mod load;
mod names;
mod opening;
mod outbox;
mod overrides;
mod past;
mod pool;
mod read;
mod schema;
mod transact;
mod turns;
mod values;
mod verify;
mod watched;
mod write;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use saga_core::decision::{Decide, Reads};
use saga_core::query::{FoundRow, Group, Join, Joined, Query};
use saga_core::row::{RowKey, RowKind, StoredEvent};
use saga_core::service_stats::{MessageCounts, StoreStats};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::warn;

pub use self::connect::Place;
use self::lead::Lead;
use self::leases::Missing;
use self::listening::{Announced, Listening};
use self::pool::{Connection, Lane, Lanes};
use self::turns::Turns;
use self::values::{is_lost, oops};
use super::{
    Answer, Changes, CheckedPage, CheckedRows, Cutoffs, Departures, Due, DueQuery, FailingTask, FoldReport,
    Guard, Heard, Lease, Leaving, LeavingEvent, Left, Mark, Opening, OutboxEntry, OutboxItem, Overridden,
    Part, Published, PublishedRun, RELAY, Republished, RowAsOf, Store, StoreFault, StoredDeadLetters,
};

/// A settlement is a commit of its own here, with a sync. A commit of SQLite carries one along within the same time.
pub const SETTLES_APART: Duration = Duration::from_millis(100);

/// A server that is away at the start is looked for again after this.
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A database on a server, which other processes of the same service may use too.
pub struct PostgresStore {
    database: Arc<Database>,
}

struct Database {
    lanes: Lanes,
    kinds: Kinds,
    listening: Listening,
    turns: Turns,
    missing: Missing,
    lead: Lead,
}

struct Kinds(Vec<RowKind>);

impl Kinds {
    fn of_name(&self, name: &str) -> Result<&RowKind, StoreFault> {
        let declared = self.0.iter().find(|declared| declared.name == name);
        declared.ok_or_else(|| StoreFault::Unusable(format!("rows of kind {name:?} are not declared")))
    }
}

impl PostgresStore {
    /// Opens the database, and brings its tables up to date.
    ///
    /// # Errors
    /// When it cannot be used: no such server, database or user, a server that is too old, no right to make tables, tables
    /// of a newer build, or those of another service. The sentence says which; nothing was changed then.
    pub async fn open(place: &Place, kinds: Vec<RowKind>, opening: &Opening<'_>) -> Result<Self, StoreFault> {
        let said = |fault: StoreFault| format!("database {place}: {}", opening::unusable(&fault));
        let (began, mut is_said) = (Instant::now(), false);
        loop {
            match Self::opened(place, kinds.clone(), opening).await {
                // Whoever starts the service may have started its server a moment ago.
                Err(fault) if is_lost(&fault) && began.elapsed() < opening.wait => {
                    if !std::mem::replace(&mut is_said, true) {
                        warn!("waiting for {:?} at most: {}", opening.wait, said(fault));
                    }
                    sleep(LOOKS_AGAIN_AFTER).await;
                }
                opened => return opened.map_err(|fault| StoreFault::Unusable(said(fault))),
            }
        }
    }

    async fn opened(place: &Place, kinds: Vec<RowKind>, opening: &Opening<'_>) -> Result<Self, StoreFault> {
        let (lanes, kinds) = (Lanes::of(place)?, Kinds(kinds));
        let conn = lanes.connection(Lane::Scan).await?;
        opening::check_before(&conn, &kinds.0, opening.service, opening.must_exist).await?;
        let prepared = async {
            conn.client().batch_execute("BEGIN").await.map_err(oops("beginning to make tables"))?;
            schema::prepare(&conn, &kinds.0).await?;
            // Somebody else may have made them while this one waited.
            opening::check_before(&conn, &kinds.0, opening.service, false).await?;
            opening::identify(&conn, opening.service).await?;
            conn.client().batch_execute("COMMIT").await.map_err(oops("making tables"))
        };
        // Before anything is changed: it may be somebody else's name.
        let listening = Listening::begin(place, &kinds.0, opening).await?;
        prepared.await?;
        conn.give_back();
        let missing = Missing::new(opening.instance.to_owned());
        let (turns, lead) = (Turns::new(Instant::now()), Lead::none());
        Ok(Self { database: Arc::new(Database { lanes, kinds, listening, turns, missing, lead }) })
    }

    /// Runs `work` in a transaction of its own. It comes to its end whether or not anybody waits for it.
    fn write<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>
        + Send
        + 'static,
    ) -> Answer<'_, T> {
        let database = self.database.clone();
        spawned(async move { in_transaction(&database, lane, "BEGIN", work).await })
    }

    /// What is done, there is something to publish: whoever publishes is told.
    fn promising<'a, T: Send + 'a>(&'a self, work: Answer<'a, T>) -> Answer<'a, T> {
        self.announcing(Announced::promises(), work)
    }

    /// What is done, the others are told this.
    fn announcing<'a, T: Send + 'a>(&'a self, announced: Announced, work: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(async move {
            let answer = work.await?;
            self.database.listening.say(&announced);
            Ok(answer)
        })
    }

    /// Reads with one statement, or with some that need not agree. Dropped before it is done, it is cancelled.
    fn read<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>
        + Send
        + 'static,
    ) -> Answer<'_, T> {
        Box::pin(async move {
            let conn = self.database.lanes.connection(lane).await?;
            let answer = work(&conn, &self.database.kinds).await;
            conn.give_back();
            answer
        })
    }

    /// The same, of one moment.
    fn snapshot<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>
        + Send
        + 'static,
    ) -> Answer<'_, T> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        Box::pin(in_transaction(&self.database, lane, begin, work))
    }
}

/// Runs `work` in a transaction. A connection on which that does not come to a clean end is closed.
async fn in_transaction<T>(
    database: &Database,
    lane: Lane,
    begin: &str,
    work: impl for<'c> FnOnce(&'c Connection, &'c Kinds) -> BoxFuture<'c, Result<T, StoreFault>>,
) -> Result<T, StoreFault> {
    let conn = database.lanes.connection(lane).await?;
    conn.client().batch_execute(begin).await.map_err(oops("beginning a transaction"))?;
    let done = work(&conn, &database.kinds).await;
    let how = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = conn.client().batch_execute(how).await.map_err(oops("ending a transaction"));
    if ended.is_ok() {
        conn.give_back();
    }
    done.and_then(|answer| ended.map(|()| answer))
}

/// Goes on though nobody waits any more.
fn spawned<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreFault>> + Send + 'static,
) -> Answer<'static, T> {
    Box::pin(async move {
        match tokio::spawn(work).await {
            Ok(answer) => answer,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The process ends.
                Err(_) => Err(StoreFault::Closed),
            },
        }
    })
}

impl Store for PostgresStore {
    fn transact(&self, reads: Reads, decide: Decide) -> Answer<'_, Vec<OutboxEntry>> {
        let database = self.database.clone();
        spawned(async move { transact::transact(&database, &reads, decide).await })
    }

    fn turn(&self) -> BoxFuture<'_, Option<Guard>> {
        Box::pin(turns::take(&self.database))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn heard(&self) -> Option<mpsc::Receiver<Heard>> {
        self.database.listening.heard()
    }

    fn wait_for(&self, kind: &'static str) -> Option<Guard> {
        Some(self.database.listening.wait_for(kind))
    }

    fn leads(&self) -> Option<watch::Receiver<bool>> {
        Some(self.database.lead.watched())
    }

    fn take_lease<'a>(
        &'a self,
        name: &'static str,
        held: Option<&'a Lease>,
        owner: &'a str,
        now: Timestamp,
        until: Timestamp,
    ) -> Answer<'a, Option<Lease>> {
        let (held, owner) = (held.cloned(), owner.to_owned());
        let database = self.database.clone();
        let taking = self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move {
                leases::take(conn, name, held.as_ref(), &owner, (now, until), &database.missing).await
            })
        });
        // Counted from before it was asked for: no longer than the lease.
        let span = Duration::try_from(until.duration_since(now)).unwrap_or_default();
        let ends = Instant::now() + span;
        Box::pin(async move {
            let taken = taking.await;
            if name == RELAY {
                match taken {
                    Ok(Some(_)) => self.database.lead.until(ends),
                    // Whoever cannot renew it cannot store what it would be given either. A relay that was fenced off asks soon.
                    Ok(None) | Err(_) => self.database.lead.over(),
                }
            }
            taken
        })
    }

    fn give_back_lease<'a>(&'a self, name: &'static str, owner: &'a str) -> Answer<'a, ()> {
        if name == RELAY {
            self.database.lead.over();
        }
        let owner = owner.to_owned();
        self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { leases::give_back(conn, name, &owner).await })
        })
    }

    fn pending(&self, limit: usize) -> Answer<'_, Vec<OutboxEntry>> {
        self.snapshot(Lane::Quick, move |conn, _| Box::pin(outbox::pending(conn, limit)))
    }

    fn behind(&self, position: i64, limit: usize) -> Answer<'_, Option<Vec<OutboxEntry>>> {
        self.snapshot(Lane::Quick, move |conn, _| Box::pin(outbox::behind(conn, position, limit)))
    }

    fn line_end(&self) -> Answer<'_, Option<i64>> {
        self.read(Lane::Quick, |conn, _| Box::pin(outbox::line_end(conn)))
    }

    fn settle(&self, lease: &Lease, published: Published, now: Timestamp) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { outbox::settle(conn, &lease, &published, now).await })
        })
    }

    fn settle_run(&self, lease: &Lease, run: PublishedRun) -> Answer<'_, bool> {
        let lease = lease.clone();
        self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { outbox::settle_run(conn, &lease, &run).await })
        })
    }

    fn settles_apart(&self) -> Duration {
        SETTLES_APART
    }

    fn retry_failed(&self, seq: Option<i64>) -> Answer<'_, u64> {
        let retried = self.write(Lane::Quick, move |conn, _| Box::pin(outbox::retry_failed(conn, seq)));
        self.promising(retried)
    }

    fn republish(&self, since: Timestamp, after: i64, limit: usize) -> Answer<'_, Republished> {
        let marked =
            self.write(Lane::Quick, move |conn, _| Box::pin(outbox::republish(conn, since, after, limit)));
        self.promising(marked)
    }

    fn due(&self, query: DueQuery) -> Answer<'_, Due> {
        self.write(Lane::Quick, move |conn, kinds| {
            Box::pin(async move { due::due(conn, &kinds.0, &query).await })
        })
    }

    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>> {
        self.read(Lane::Quick, move |conn, _| Box::pin(async move { read::row(conn, &key).await }))
    }

    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>> {
        let lane = if query.is_for_one() { Lane::Quick } else { Lane::Scan };
        self.read(lane, move |conn, kinds| {
            Box::pin(async move { read::find(conn, kinds.of_name(kind)?, &query).await })
        })
    }

    fn counts(
        &self,
        kind: &'static str,
        by: &'static str,
        query: Query,
    ) -> Answer<'_, BTreeMap<String, u64>> {
        self.read(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { read::counts(conn, kinds.of_name(kind)?, by, &query).await })
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
            Box::pin(async move { read::groups(conn, kinds.of_name(kind)?, by, times, &query).await })
        })
    }

    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>> {
        self.read(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { read::joined(conn, kinds.of_name(kind)?, &join, &query).await })
        })
    }

    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.read(Lane::Quick, move |conn, _| {
            Box::pin(async move { read::history(conn, key.kind, &key.id, after, limit).await })
        })
    }

    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>> {
        self.snapshot(Lane::Scan, move |conn, _| {
            Box::pin(async move { read::histories(conn, kind, &ids).await })
        })
    }

    fn rows_as_of(&self, kind: &'static str, ids: Vec<String>, seq: i64) -> Answer<'_, Vec<RowAsOf>> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move {
                let (kind, mut rows) = (kinds.of_name(kind)?, vec![]);
                for id in &ids {
                    rows.extend(past::row_as_of(conn, kind, id, seq).await?);
                }
                Ok(rows)
            })
        })
    }

    fn changes(&self, kind: &'static str, after: i64, limit: usize) -> Answer<'_, Changes> {
        self.read(Lane::Scan, move |conn, _| Box::pin(past::changes(conn, kind, after, limit)))
    }

    fn fingerprint(&self, seq: i64) -> Answer<'_, Option<String>> {
        self.read(Lane::Quick, move |conn, _| Box::pin(past::fingerprint(conn, seq)))
    }

    fn mark(&self) -> Answer<'_, Mark> {
        self.read(Lane::Quick, |conn, _| Box::pin(opening::mark(conn)))
    }

    fn kept_since(&self) -> Answer<'_, Option<Timestamp>> {
        self.read(Lane::Quick, |conn, _| Box::pin(outbox::kept_since(conn)))
    }

    fn stats(&self) -> Answer<'_, StoreStats> {
        self.read(Lane::Quick, |conn, _| Box::pin(read::stats(conn)))
    }

    fn tallies(&self) -> Answer<'_, MessageCounts> {
        self.snapshot(Lane::Scan, |conn, _| Box::pin(read::tallies(conn)))
    }

    fn outbox(&self, limit: usize) -> Answer<'_, Vec<OutboxItem>> {
        self.read(Lane::Scan, move |conn, _| Box::pin(outbox::items(conn, limit)))
    }

    fn failing_tasks(&self, limit: usize) -> Answer<'_, Vec<FailingTask>> {
        self.read(Lane::Scan, move |conn, _| Box::pin(due::failing_tasks(conn, limit)))
    }

    fn dead_letters(&self, limit: usize) -> Answer<'_, StoredDeadLetters> {
        self.read(Lane::Scan, move |conn, _| Box::pin(read::dead_letters(conn, limit)))
    }

    fn verify(&self) -> Answer<'_, FoldReport> {
        self.snapshot(Lane::Scan, |conn, kinds| Box::pin(verify::verify(conn, &kinds.0)))
    }

    fn verify_part(&self, part: Part) -> Answer<'_, FoldReport> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { verify::verify_part(conn, &kinds.0, &part).await })
        })
    }

    fn verify_changed(&self, after: i64, events: u64) -> Answer<'_, FoldReport> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(verify::verify_changed(conn, &kinds.0, after, events))
        })
    }

    fn checked_rows(&self, kind: &'static str, page: CheckedPage) -> Answer<'_, CheckedRows> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { verify::checked(conn, kinds.of_name(kind)?, &page).await })
        })
    }

    fn rebuild(&self, kind: &'static str) -> Answer<'_, u64> {
        self.write(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { fold::rebuild(conn, kinds.of_name(kind)?).await })
        })
    }

    fn bring_back(&self, kind: &'static str, events: Vec<LeavingEvent>) -> Answer<'_, u64> {
        self.write(Lane::Scan, move |conn, _| {
            Box::pin(async move { departures::bring_back(conn, kind, &events).await })
        })
    }

    fn departures(&self, before: Departures, limit: usize) -> Answer<'_, Leaving> {
        self.snapshot(Lane::Scan, move |conn, kinds| {
            Box::pin(async move { departures::find(conn, &kinds.0, before, limit).await })
        })
    }

    fn left(&self, kind: &'static str) -> Answer<'_, Left> {
        self.read(Lane::Quick, move |conn, _| Box::pin(left::left_of(conn, kind)))
    }

    fn depart(&self, leaving: Leaving) -> Answer<'_, u64> {
        self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { departures::leave(conn, &leaving).await })
        })
    }

    fn overrides(&self) -> Answer<'_, Overridden> {
        self.read(Lane::Quick, |conn, _| Box::pin(overrides::overrides(conn)))
    }

    fn override_with(&self, revision: i64, text: String) -> Answer<'_, bool> {
        let overriding = self.write(Lane::Quick, move |conn, _| {
            Box::pin(async move { overrides::override_with(conn, revision, &text).await })
        });
        self.announcing(Announced::overrides(), overriding)
    }

    fn trim(&self, cutoffs: Cutoffs, limit: usize) -> Answer<'_, u64> {
        self.write(Lane::Quick, move |conn, _| Box::pin(due::trim(conn, cutoffs, limit)))
    }
}
