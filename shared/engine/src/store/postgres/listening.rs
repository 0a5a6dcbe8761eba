//! Shell: what the processes that share a database tell each other: what one has committed wakes the others, which would see
//! it at their next look all the same. Said after the commit, on a connection of its own: a `NOTIFY` within a batch would
//! have all batches of the server commit one after the other.
//!
//! The same connection holds the name of the instance, so that no two processes have one name.

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

use super::connect::Place;
use super::names::{self, IS_ANYBODY_THERE};
use super::values::{micros, oops, timestamp};
use super::watched::Watched;
use crate::store::{Guard, Heard, Opening, StoreFault};

/// Sayings that wait: to be told to the others, to be read, and to be heard by the engine. What finds no room is found at
/// the next look.
const WAITING: usize = 256;

/// Bytes of the rows of one saying, about: a payload holds 8000, the escapes of JSON counted.
const BYTES_AT_ONCE: usize = 3_000;

/// Between two looks at whether there are others at all.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Before it connects again.
const PAUSE: Duration = Duration::from_millis(500);

/// The connection of an earlier life may take so long to be gone.
const NAME_WITHIN: Duration = Duration::from_secs(5);

/// Every process looks for what is due this often at least, by default (`engine.timer_poll`): of what comes due later it need
/// not be told. Where they look less often, what a process that dies had due meanwhile is found as late.
const LOOKED_FOR_WITHIN: Duration = Duration::from_secs(1);

/// What is said of one commit.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Saying {
    /// Which process says it.
    by: Uuid,
    /// Whether there is something to publish.
    #[serde(default)]
    promised: bool,
    /// When the next thing comes due, in microseconds.
    #[serde(default)]
    due: Option<i64>,
    /// Whether operators have overridden something.
    #[serde(default)]
    overridden: bool,
    /// Kind and id of rows that have changed.
    #[serde(default)]
    rows: Vec<(String, String)>,
    /// Kinds of rows that somebody waits for where this is said.
    #[serde(default)]
    waits: BTreeSet<String>,
}

/// What is said and heard; it ends when this is dropped.
pub(super) struct Listening {
    by: Uuid,
    says: mpsc::Sender<Saying>,
    /// Taken by who listens.
    heard: Mutex<Option<mpsc::Receiver<Heard>>>,
    is_anybody_there: Arc<AtomicBool>,
    watched: Arc<Watched>,
    _going_on: AbortOnDropHandle<()>,
}

impl Listening {
    /// Takes the name of the instance, if it has one, and listens from then on.
    ///
    /// # Errors
    /// When the name is another process's, when there is another process and there must be none, or no connection.
    pub(super) async fn begin(
        place: &Place,
        kinds: &[RowKind],
        Opening { instance, alone, .. }: &Opening<'_>,
    ) -> Result<Self, StoreFault> {
        let by = Uuid::now_v7();
        let session = Session::begin(place, instance, NAME_WITHIN).await?;
        if *alone && session.is_anybody_there().await.map_err(oops("looking for other processes"))? {
            let sentence = "another process uses it: stop the service first, all of its replicas";
            return Err(StoreFault::Unusable(sentence.to_owned()));
        }
        // Whoever is there learns that there is somebody to talk to.
        let greeting = Saying { by, ..Saying::default() };
        session.say(&greeting).await.map_err(oops("greeting the others"))?;
        let (says, said) = mpsc::channel(WAITING);
        let (hears, heard) = mpsc::channel(WAITING);
        let is_anybody_there = Arc::new(AtomicBool::new(true));
        let watched = Arc::new(Watched::new(Instant::now()));
        let listener = Listener {
            by,
            place: place.clone(),
            instance: (*instance).to_owned(),
            kinds: kinds.to_vec(),
            said,
            hears,
            has_missed: false,
            is_anybody_there: is_anybody_there.clone(),
            watched: watched.clone(),
        };
        let going_on = AbortOnDropHandle::new(tokio::spawn(listener.go_on(session)));
        Ok(Self { by, says, heard: Mutex::new(Some(heard)), is_anybody_there, watched, _going_on: going_on })
    }

    /// Whether there are others, as far as is known.
    pub(super) fn is_anybody_there(&self) -> bool {
        self.is_anybody_there.load(Ordering::Relaxed)
    }

    /// What the others say, to who asks first.
    pub(super) fn heard(&self) -> Option<mpsc::Receiver<Heard>> {
        self.heard.lock().take()
    }

    /// What of a batch is told to the others, if there are any. What it promises is published by whoever `leads`: nobody else
    /// need know.
    pub(super) fn announced(&self, writes: &Writes, leads: bool) -> Option<Announced> {
        self.is_anybody_there().then(|| Announced::of(writes, leads, &self.watched))
    }

    /// Somebody here waits for rows of this kind, until the answer is dropped.
    pub(super) fn wait_for(&self, kind: &'static str) -> Guard {
        Guard::of(self.watched.wait(kind, Instant::now()))
    }

    /// Tells the others what was committed. It waits for nothing.
    pub(super) fn say(&self, writes: &Announced) {
        let mut rows = in_parts(&writes.rows).into_iter();
        let first = rows.next().unwrap_or_default().to_vec();
        let Announced { promised, due, overridden, .. } = *writes;
        let saying = Saying { by: self.by, promised, due, overridden, rows: first, ..Saying::default() };
        if promised || overridden || due.is_some() || !saying.rows.is_empty() {
            let _ = self.says.try_send(saying);
        }
        for rows in rows {
            let _ = self.says.try_send(Saying { by: self.by, rows: rows.to_vec(), ..Saying::default() });
        }
    }
}

/// Rows as they go into sayings. One that fits in none is found by looking.
fn in_parts(rows: &[(String, String)]) -> Vec<&[(String, String)]> {
    let (mut parts, mut begin, mut bytes) = (vec![], 0, 0);
    for (at, (kind, id)) in rows.iter().enumerate() {
        let of_row = kind.len() + id.len() + 8;
        if bytes + of_row > BYTES_AT_ONCE {
            parts.push(&rows[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += of_row;
    }
    parts.push(&rows[begin..]);
    parts.retain(|part| part.iter().map(|(kind, id)| kind.len() + id.len()).sum::<usize>() <= BYTES_AT_ONCE);
    parts
}

/// What of a batch is told to the others.
pub(super) struct Announced {
    promised: bool,
    due: Option<i64>,
    overridden: bool,
    rows: Vec<(String, String)>,
}

impl Announced {
    /// There is something to publish, and nothing else is new.
    pub(super) const fn promises() -> Self {
        Self { promised: true, due: None, overridden: false, rows: vec![] }
    }

    /// Operators have overridden something, and nothing else is new.
    pub(super) const fn overrides() -> Self {
        Self { promised: false, due: None, overridden: true, rows: vec![] }
    }

    fn of(writes: &Writes, leads: bool, watched: &Watched) -> Self {
        let of_rows = writes.rows.iter().filter_map(|row| row.projected.due);
        let of_retries = writes.retries.iter().chain(&writes.retries_again).map(|retry| retry.next_attempt);
        let of_tasks = writes.task_retries.iter().map(|retry| retry.next_attempt);
        // What nobody has claimed is for whoever has room.
        let unclaimed = writes.tasks.iter().filter(|_| writes.claim.is_none()).chain(&writes.tasks_again);
        let due = of_rows.chain(of_retries).chain(of_tasks).chain(unclaimed.map(|_| writes.decided_at)).min();
        let soon = writes.decided_at.saturating_add(LOOKED_FOR_WITHIN).unwrap_or(Timestamp::MAX);
        let (due, now) = (due.filter(|due| *due <= soon).map(micros), Instant::now());
        let rows = writes.rows.iter().filter(|row| watched.is_elsewhere(row.key.kind, now));
        let rows = rows.map(|row| (row.key.kind.to_owned(), row.key.id.clone())).collect();
        Self { promised: !leads && !writes.outbox.is_empty(), due, overridden: false, rows }
    }
}

/// The connection on which is said and heard.
struct Session {
    client: Client,
    /// Both are asked for all the time, and planned once.
    others: Statement,
    saying: Statement,
    notified: mpsc::Receiver<String>,
    /// There was no room for something.
    has_missed: Arc<AtomicBool>,
    _driving: AbortOnDropHandle<()>,
}

impl Session {
    async fn begin(place: &Place, instance: &str, within: Duration) -> Result<Self, StoreFault> {
        let context = "listening to the others";
        let connected = place.config.connect(place.tls.clone()).await;
        let (client, mut connection) = connected.map_err(oops("connecting to the database"))?;
        let (notifies, notified) = mpsc::channel(WAITING);
        let has_missed = Arc::new(AtomicBool::new(false));
        let of_session = has_missed.clone();
        let driving = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    // It waits for nobody: whoever is to take this may be waiting for another answer from here.
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        match notifies.try_send(notification.payload().to_owned()) {
                            Ok(()) => {}
                            Err(TrySendError::Full(_)) => of_session.store(true, Ordering::Relaxed),
                            Err(TrySendError::Closed(_)) => return,
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        }));
        let others = client.prepare(IS_ANYBODY_THERE).await.map_err(oops(context))?;
        let saying = client.prepare("SELECT pg_notify('saga', $1)").await.map_err(oops(context))?;
        let session = Self { client, others, saying, notified, has_missed, _driving: driving };
        let began = Instant::now();
        while !names::take(&session.client, instance).await.map_err(oops("taking the name of an instance"))? {
            if began.elapsed() >= within {
                return Err(StoreFault::Unusable(format!(
                    "another process runs as instance {instance}: give each replica a name of its own (instance)"
                )));
            }
            sleep(PAUSE / 5).await;
        }
        session.client.batch_execute("LISTEN saga").await.map_err(oops(context))?;
        Ok(session)
    }

    async fn is_anybody_there(&self) -> Result<bool, tokio_postgres::Error> {
        names::is_anybody_there(&self.client, &self.others).await
    }

    async fn say(&self, saying: &Saying) -> Result<(), tokio_postgres::Error> {
        let text = serde_json::to_string(saying).unwrap_or_default();
        self.client.execute(&self.saying, &[&text]).await.map(drop)
    }
}

/// What goes on beside all else, over as many connections as it takes.
struct Listener {
    by: Uuid,
    place: Place,
    instance: String,
    kinds: Vec<RowKind>,
    said: mpsc::Receiver<Saying>,
    hears: mpsc::Sender<Heard>,
    /// Something was said that could not be heard.
    has_missed: bool,
    is_anybody_there: Arc<AtomicBool>,
    watched: Arc<Watched>,
}

impl Listener {
    async fn go_on(mut self, mut session: Session) {
        loop {
            let Err(ended) = self.listen(&mut session).await else { return };
            // With it its name is free, for this process too.
            drop(session);
            warn!("the others are not heard, their commits are found by looking: {ended}");
            // Said to nobody is better than not said to somebody.
            self.is_anybody_there.store(true, Ordering::Relaxed);
            self.watched.missed(Instant::now());
            session = loop {
                sleep(PAUSE).await;
                match Session::begin(&self.place, &self.instance, NAME_WITHIN).await {
                    Ok(session) => break session,
                    Err(StoreFault::Unusable(sentence)) => error!("{sentence}"),
                    Err(_) => {}
                }
            };
            self.watched.missed(Instant::now());
            self.hear(Heard::Anything);
        }
    }

    /// Until the connection is lost, or nobody is there to say or to hear anything.
    async fn listen(&mut self, session: &mut Session) -> Result<(), tokio_postgres::Error> {
        let mut look = interval(LOOKS_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watched = self.watched.clone();
        loop {
            tokio::select! {
                biased;
                _ = look.tick() => {
                    self.is_anybody_there.store(session.is_anybody_there().await?, Ordering::Relaxed);
                    self.has_missed |= session.has_missed.swap(false, Ordering::Relaxed);
                    if self.has_missed {
                        self.has_missed = false;
                        self.watched.missed(Instant::now());
                        self.hear(Heard::Anything);
                    }
                    self.say_waits(session).await?;
                }
                text = session.notified.recv() => match text {
                    Some(text) => self.take(&text),
                    // The next statement says why.
                    None => return session.client.batch_execute("SELECT 1").await,
                },
                saying = self.said.recv() => match saying {
                    Some(saying) => session.say(&saying).await?,
                    None => return Ok(()),
                },
                () = watched.news() => self.say_waits(session).await?,
            }
        }
    }

    /// Tells the others, if there are any, what is waited for here.
    async fn say_waits(&self, session: &Session) -> Result<(), tokio_postgres::Error> {
        if !self.is_anybody_there.load(Ordering::Relaxed) {
            return Ok(());
        }
        let waits = self.watched.to_be_said(Instant::now());
        if waits.is_empty() {
            return Ok(());
        }
        session.say(&Saying { by: self.by, waits, ..Saying::default() }).await
    }

    fn take(&mut self, text: &str) {
        // What a newer build says is something.
        let Ok(saying) = serde_json::from_str::<Saying>(text) else {
            self.watched.missed(Instant::now());
            return self.hear(Heard::Anything);
        };
        if saying.by == self.by {
            return;
        }
        self.is_anybody_there.store(true, Ordering::Relaxed);
        self.watched.heard(saying.waits, Instant::now());
        if saying.promised {
            self.hear(Heard::Promised);
        }
        if let Some(due) = saying.due {
            self.hear(Heard::Due(timestamp(due)));
        }
        if saying.overridden {
            self.hear(Heard::Overridden);
        }
        let key = |(kind, id): (String, String)| {
            let kind = self.kinds.iter().find(|declared| declared.name == kind)?.name;
            Some(RowKey { kind, id })
        };
        let rows: Vec<RowKey> = saying.rows.into_iter().filter_map(key).collect();
        if !rows.is_empty() {
            self.hear(Heard::Changed(rows));
        }
    }

    fn hear(&mut self, heard: Heard) {
        self.has_missed |= matches!(self.hears.try_send(heard), Err(TrySendError::Full(_)));
    }
}
