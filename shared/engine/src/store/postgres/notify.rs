//! Shell: notifications between the replicas that share a database (`LISTEN`, `NOTIFY`). A commit wakes the other replicas,
//! which would otherwise notice it at their next poll.
//!
//! Notifications are sent after the commit, on a connection of their own: a `NOTIFY` within batches would serialise the
//! commits of the whole server. The same connection holds the name of the replica, so that no two have one name.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use saga_core::decision::Writes;
use saga_core::row::{RowKey, RowKind};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_postgres::{AsyncMessage, Client, Statement};
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, warn};
use uuid::Uuid;

use super::db_location::DbLocation;
use super::instance_names::{self, HAS_OTHERS};
use super::watched_kinds::WatchedKinds;
use crate::store::encoding::{micros, timestamp};
use crate::store::sql_error::db_fault;
use crate::store::{Guard, OpenOptions, ReplicaSignal, StoreFault};

/// Maximum number of notifications that wait to be sent, to be parsed, or to be taken by the engine. Others are dropped:
/// polling finds their changes.
const QUEUE: usize = 256;

/// Approximate limit for the rows of one notification, in bytes. A payload holds 8000 bytes, with the escapes of JSON.
const MAX_ROW_BYTES: usize = 3_000;

/// Interval of checks whether there are other replicas.
const CHECK_EVERY: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_millis(500);

/// Maximum wait for a name that the connection of an earlier process still holds.
const NAME_WITHIN: Duration = Duration::from_secs(5);

/// Time within which due work is announced. Replicas poll for due work this often by default (`engine.timer_poll`), which
/// finds whatever is due later.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(1);

/// Payload of a notification, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Payload {
    /// Id of the sending process.
    sender: Uuid,
    #[serde(default)]
    entries: bool,
    /// Time at which work becomes due, in microseconds since 1970.
    #[serde(default)]
    due: Option<i64>,
    #[serde(default)]
    overrides: bool,
    /// Kinds and ids of changed rows.
    #[serde(default)]
    rows: Vec<(String, String)>,
    /// Row kinds that the sender watches.
    #[serde(default)]
    watched: BTreeSet<String>,
}

/// Sender and receiver of notifications. They end when this is dropped.
pub(super) struct Notifications {
    sender: Uuid,
    payloads: mpsc::Sender<Payload>,
    /// Taken by the first receiver.
    signals: Mutex<Option<mpsc::Receiver<ReplicaSignal>>>,
    has_others: Arc<AtomicBool>,
    watched: Arc<WatchedKinds>,
    _listener: AbortOnDropHandle<()>,
}

impl Notifications {
    /// Takes the name of the replica, if it has one, and starts to listen.
    ///
    /// # Errors
    /// If another replica has the name. Also without a connection, or beside another process if there must be none.
    pub(super) async fn start(
        location: &DbLocation,
        kinds: &[RowKind],
        OpenOptions { instance, alone, .. }: &OpenOptions<'_>,
    ) -> Result<Self, StoreFault> {
        let sender = Uuid::now_v7();
        let session = Session::begin(location, instance, NAME_WITHIN).await?;
        if *alone && session.has_others().await.map_err(db_fault("looking for other processes"))? {
            let reason = "another process uses it: stop the service first, with all of its replicas";
            return Err(StoreFault::Unusable(reason.to_owned()));
        }
        // Tells the other replicas that there is one more.
        let greeting = Payload { sender, ..Payload::default() };
        session.send(&greeting).await.map_err(db_fault("notifying the other replicas"))?;
        let (payloads, to_send) = mpsc::channel(QUEUE);
        let (to_engine, signals) = mpsc::channel(QUEUE);
        let has_others = Arc::new(AtomicBool::new(true));
        let watched = Arc::new(WatchedKinds::new(Instant::now()));
        let listener = Listener {
            sender,
            location: location.clone(),
            instance: (*instance).to_owned(),
            kinds: kinds.to_vec(),
            to_send,
            to_engine,
            has_missed: false,
            has_others: has_others.clone(),
            watched: watched.clone(),
        };
        let listener = AbortOnDropHandle::new(tokio::spawn(listener.run(session)));
        let signals = Mutex::new(Some(signals));
        Ok(Self { sender, payloads, signals, has_others, watched, _listener: listener })
    }

    /// True if there are other replicas, as far as is known.
    pub(super) fn has_others(&self) -> bool {
        self.has_others.load(Ordering::Relaxed)
    }

    /// Signals of other replicas, for the first caller.
    pub(super) fn signals(&self) -> Option<mpsc::Receiver<ReplicaSignal>> {
        self.signals.lock().take()
    }

    /// Announcement of a batch, if there are other replicas. A leader publishes its own entries, so that others need not know
    /// of them.
    pub(super) fn announcement_of(&self, writes: &Writes, is_leader: bool) -> Option<Announcement> {
        self.has_others().then(|| Announcement::of(writes, is_leader, &self.watched))
    }

    /// Watches rows of this kind until the guard is dropped.
    pub(super) fn watch_kind(&self, kind: &'static str) -> Guard {
        Guard::of(self.watched.watch(kind, Instant::now()))
    }

    /// Queues notifications of a commit.
    pub(super) fn send(&self, announcement: &Announcement) {
        let mut rows = parts_of(&announcement.rows).into_iter();
        let first = rows.next().unwrap_or_default().to_vec();
        let Announcement { entries, due, overrides, .. } = *announcement;
        let sender = self.sender;
        let payload = Payload { sender, entries, due, overrides, rows: first, ..Payload::default() };
        if entries || overrides || due.is_some() || !payload.rows.is_empty() {
            let _ = self.payloads.try_send(payload);
        }
        for rows in rows {
            let _ = self.payloads.try_send(Payload { sender, rows: rows.to_vec(), ..Payload::default() });
        }
    }
}

/// Splits rows into payloads. Drops a row that fits in none: polling finds it.
fn parts_of(rows: &[(String, String)]) -> Vec<&[(String, String)]> {
    let (mut parts, mut begin, mut bytes) = (vec![], 0, 0);
    for (at, (kind, id)) in rows.iter().enumerate() {
        let of_row = kind.len() + id.len() + 8;
        if bytes + of_row > MAX_ROW_BYTES {
            parts.push(&rows[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += of_row;
    }
    parts.push(&rows[begin..]);
    parts.retain(|part| part.iter().map(|(kind, id)| kind.len() + id.len()).sum::<usize>() <= MAX_ROW_BYTES);
    parts
}

/// Changes of a commit, as other replicas are notified of them.
pub(super) struct Announcement {
    entries: bool,
    due: Option<i64>,
    overrides: bool,
    rows: Vec<(String, String)>,
}

impl Announcement {
    /// Announcement of one signal alone.
    pub(super) fn of_signal(signal: &ReplicaSignal) -> Self {
        let entries = *signal == ReplicaSignal::EntriesStored;
        let overrides = *signal == ReplicaSignal::OverridesChanged;
        Self { entries, due: None, overrides, rows: vec![] }
    }

    fn of(writes: &Writes, is_leader: bool, watched: &WatchedKinds) -> Self {
        let of_rows = writes.rows.iter().filter_map(|row| row.projected.due);
        let of_retries = writes.retries.iter().chain(&writes.retries_again).map(|retry| retry.next_attempt);
        let of_tasks = writes.task_retries.iter().map(|retry| retry.next_attempt);
        // Any replica may claim an unclaimed task.
        let unclaimed = writes.tasks.iter().filter(|_| writes.claim.is_none()).chain(&writes.tasks_again);
        let due = of_rows.chain(of_retries).chain(of_tasks).chain(unclaimed.map(|_| writes.decided_at)).min();
        let soon = writes.decided_at.saturating_add(ANNOUNCED_WITHIN).unwrap_or(Timestamp::MAX);
        let (due, now) = (due.filter(|due| *due <= soon).map(micros), Instant::now());
        let rows = writes.rows.iter().filter(|row| watched.is_watched(row.key.kind, now));
        let rows = rows.map(|row| (row.key.kind.to_owned(), row.key.id.clone())).collect();
        Self { entries: !is_leader && !writes.outbox.is_empty(), due, overrides: false, rows }
    }
}

/// Connection that sends and receives notifications.
struct Session {
    client: Client,
    /// Prepared once, because they are executed all the time.
    has_others: Statement,
    send: Statement,
    received: mpsc::Receiver<String>,
    /// Set if a received notification found no room.
    has_missed: Arc<AtomicBool>,
    _connection: AbortOnDropHandle<()>,
}

impl Session {
    async fn begin(location: &DbLocation, instance: &str, within: Duration) -> Result<Self, StoreFault> {
        let context = "listening to the other replicas";
        let connected = location.connect_unset().await;
        let (client, mut connection) = connected.map_err(db_fault("connecting to the database"))?;
        let (receives, received) = mpsc::channel(QUEUE);
        let has_missed = Arc::new(AtomicBool::new(false));
        let missed = has_missed.clone();
        let driver = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    // Never waits: the receiver may be waiting for a reply on this connection.
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        match receives.try_send(notification.payload().to_owned()) {
                            Ok(()) => {}
                            Err(TrySendError::Full(_)) => missed.store(true, Ordering::Relaxed),
                            Err(TrySendError::Closed(_)) => return,
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        }));
        location.set_up(&client).await.map_err(db_fault(context))?;
        let has_others = client.prepare(HAS_OTHERS).await.map_err(db_fault(context))?;
        let send = client.prepare("SELECT pg_notify('saga', $1)").await.map_err(db_fault(context))?;
        let session = Self { client, has_others, send, received, has_missed, _connection: driver };
        session.take_name(instance, within).await?;
        session.client.batch_execute("LISTEN saga").await.map_err(db_fault(context))?;
        Ok(session)
    }

    async fn take_name(&self, instance: &str, within: Duration) -> Result<(), StoreFault> {
        let began = Instant::now();
        let context = "taking the name of the replica";
        while !instance_names::take(&self.client, instance).await.map_err(db_fault(context))? {
            if began.elapsed() >= within {
                return Err(StoreFault::Unusable(format!(
                    "another process runs as instance {instance}: give each replica a name of its own (instance)"
                )));
            }
            sleep(PAUSE / 5).await;
        }
        Ok(())
    }

    async fn has_others(&self) -> Result<bool, tokio_postgres::Error> {
        instance_names::has_others(&self.client, &self.has_others).await
    }

    async fn send(&self, payload: &Payload) -> Result<(), tokio_postgres::Error> {
        let text = serde_json::to_string(payload).unwrap_or_default();
        self.client.execute(&self.send, &[&text]).await.map(drop)
    }
}

/// Background task that sends and receives, over one connection after the other.
struct Listener {
    sender: Uuid,
    location: DbLocation,
    instance: String,
    kinds: Vec<RowKind>,
    to_send: mpsc::Receiver<Payload>,
    to_engine: mpsc::Sender<ReplicaSignal>,
    /// True if a signal for the engine found no room.
    has_missed: bool,
    has_others: Arc<AtomicBool>,
    watched: Arc<WatchedKinds>,
}

impl Listener {
    async fn run(mut self, mut session: Session) {
        loop {
            let Err(ended) = self.listen(&mut session).await else { return };
            // Releases the name, which the next session takes.
            drop(session);
            warn!(
                "notifications of other replicas are interrupted, their commits are found by polling: {ended}"
            );
            // Needless notifications are better than missing ones.
            self.has_others.store(true, Ordering::Relaxed);
            self.watched.missed(Instant::now());
            session = loop {
                sleep(PAUSE).await;
                match Session::begin(&self.location, &self.instance, NAME_WITHIN).await {
                    Ok(session) => break session,
                    Err(StoreFault::Unusable(reason)) => error!("{reason}"),
                    Err(_) => {}
                }
            };
            self.watched.missed(Instant::now());
            self.signal(ReplicaSignal::Missed);
        }
    }

    /// Sends and receives until the connection is lost, or the store is dropped.
    async fn listen(&mut self, session: &mut Session) -> Result<(), tokio_postgres::Error> {
        let mut check = interval(CHECK_EVERY);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watched = self.watched.clone();
        loop {
            tokio::select! {
                biased;
                _ = check.tick() => {
                    self.has_others.store(session.has_others().await?, Ordering::Relaxed);
                    // Fails on a standby, where the name would protect nobody.
                    session.client.batch_execute("BEGIN READ WRITE; COMMIT").await?;
                    self.has_missed |= session.has_missed.swap(false, Ordering::Relaxed);
                    if self.has_missed {
                        self.has_missed = false;
                        self.watched.missed(Instant::now());
                        self.signal(ReplicaSignal::Missed);
                    }
                    self.announce_watches(session).await?;
                }
                text = session.received.recv() => match text {
                    Some(text) => self.receive(&text),
                    // The connection has ended: the next statement returns the error.
                    None => return session.client.batch_execute("SELECT 1").await,
                },
                payload = self.to_send.recv() => match payload {
                    Some(payload) => session.send(&payload).await?,
                    None => return Ok(()),
                },
                () = watched.next_new() => self.announce_watches(session).await?,
            }
        }
    }

    /// Announces the watched kinds of this replica that are due.
    async fn announce_watches(&self, session: &Session) -> Result<(), tokio_postgres::Error> {
        if !self.has_others.load(Ordering::Relaxed) {
            return Ok(());
        }
        let watched = self.watched.take_due(Instant::now());
        if watched.is_empty() {
            return Ok(());
        }
        session.send(&Payload { sender: self.sender, watched, ..Payload::default() }).await
    }

    fn receive(&mut self, text: &str) {
        // A newer build may send another format.
        let Ok(payload) = serde_json::from_str::<Payload>(text) else {
            self.watched.missed(Instant::now());
            return self.signal(ReplicaSignal::Missed);
        };
        if payload.sender == self.sender {
            return;
        }
        self.has_others.store(true, Ordering::Relaxed);
        self.watched.add_announced(payload.watched, Instant::now());
        if payload.entries {
            self.signal(ReplicaSignal::EntriesStored);
        }
        if let Some(due) = payload.due {
            self.signal(ReplicaSignal::Due(timestamp(due)));
        }
        if payload.overrides {
            self.signal(ReplicaSignal::OverridesChanged);
        }
        let key = |(kind, id): (String, String)| {
            let kind = self.kinds.iter().find(|declared| declared.name == kind)?.name;
            Some(RowKey { kind, id })
        };
        let rows: Vec<RowKey> = payload.rows.into_iter().filter_map(key).collect();
        if !rows.is_empty() {
            self.signal(ReplicaSignal::RowsChanged(rows));
        }
    }

    fn signal(&mut self, signal: ReplicaSignal) {
        self.has_missed |= matches!(self.to_engine.try_send(signal), Err(TrySendError::Full(_)));
    }
}
