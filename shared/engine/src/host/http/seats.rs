//! Shell: who is connected, who of them asks for nothing yet, and who gives way when every seat is taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::settings::HttpSettings;

/// Seats kept for probes and metrics when all others are taken by requests.
pub(super) const RESERVE: usize = 64;
/// How long a probe may take to ask.
const PROBE_ASKS_WITHIN: Duration = Duration::from_secs(1);
/// One in so many may be on the way out beside those who have a seat: newcomers need not wait for each who was sent
/// away, nor are they sent away before they are heard.
const ONE_LEAVES_IN: usize = 40;
/// One of them is gone after this, or tasks are not run at all.
const GONE_WITHIN: Duration = Duration::from_millis(100);

/// The seats of a server: those for everybody, and a few for probes alone.
pub(super) struct Seats {
    open: Arc<Room>,
    reserve: Arc<Room>,
}

/// Seats of one kind.
struct Room {
    only_probes: bool,
    free: Arc<Semaphore>,
    /// For those who gave their seat to another, until they are gone.
    leaving: Arc<Semaphore>,
    /// Who has no whole request here, by the order in which they began to wait.
    waiting: Mutex<BTreeMap<u64, Waiting>>,
    tickets: AtomicU64,
    idle_timeout: Duration,
    header_timeout: Duration,
}

struct Waiting {
    stage: Stage,
    since: Instant,
    seat: Arc<Seat>,
}

/// How much of a request is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing.
    Nothing,
    /// The beginning of its head.
    Head,
    /// Its head; the body has a limit of its own.
    Body,
}

/// Why a connection is ended by this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentAway {
    /// It asked for nothing, or for too long.
    TooSlow,
    /// Another needed its seat.
    Crowded,
    /// The service stops.
    Stopping,
}

/// The seat of one connection.
pub(super) struct Seat {
    room: Arc<Room>,
    /// Its place among those who wait; 0 while it does not.
    ticket: AtomicU64,
    /// Whether all of an answer is made, though perhaps not sent.
    answered: AtomicBool,
    sent_away: Mutex<Option<SentAway>>,
    told: Notify,
    /// That of the seat, or of somebody who leaves; `None` once the connection is over.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

/// A seat that is free again when this is dropped.
pub(super) struct Taken {
    pub(super) seat: Arc<Seat>,
}

impl Seats {
    pub(super) fn new(number: usize, settings: &HttpSettings) -> Self {
        let HttpSettings { idle_timeout, header_timeout, .. } = *settings;
        let room = |number, only_probes, idle_timeout: Duration, header_timeout: Duration| {
            Arc::new(Room {
                only_probes,
                free: Arc::new(Semaphore::new(number)),
                leaving: Arc::new(Semaphore::new((number / ONE_LEAVES_IN).max(1))),
                waiting: Mutex::default(),
                tickets: AtomicU64::new(1),
                idle_timeout,
                header_timeout,
            })
        };
        Self {
            open: room(number, false, idle_timeout, header_timeout),
            reserve: room(RESERVE, true, PROBE_ASKS_WITHIN, PROBE_ASKS_WITHIN),
        }
    }

    /// A seat for a new connection: a free one; else that of who has asked for nothing for longest; else one of those
    /// for probes. `None` when even these are taken by requests.
    pub(super) async fn take(&self) -> Option<Taken> {
        match Room::take(&self.open).await {
            Some(taken) => Some(taken),
            None => Room::take(&self.reserve).await,
        }
    }

    /// Sends away who has taken too long.
    pub(super) fn send_away_the_slow(&self, now: Instant) {
        self.open.send_away_the_slow(now);
        self.reserve.send_away_the_slow(now);
    }

    /// Sends away who has no request under way.
    pub(super) fn send_away_all(&self) {
        for room in [&self.open, &self.reserve] {
            room.send_away(SentAway::Stopping, |waiting| waiting.stage != Stage::Body);
        }
    }
}

impl Room {
    async fn take(room: &Arc<Self>) -> Option<Taken> {
        let permit = match room.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => room.send_away_the_longest().await?,
        };
        let seat = Arc::new(Seat {
            room: room.clone(),
            ticket: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            sent_away: Mutex::default(),
            told: Notify::new(),
            permit: Mutex::new(Some(permit)),
        });
        seat.waits();
        Some(Taken { seat })
    }

    /// The permit of who has waited for longest, if anybody waits.
    async fn send_away_the_longest(&self) -> Option<OwnedSemaphorePermit> {
        let leaves = timeout(GONE_WITHIN, self.leaving.clone().acquire_owned()).await.ok()?.ok()?;
        // Held until it is told: in between its request would begin, and be cut off.
        let mut waiting = self.waiting.lock();
        let (_, Waiting { seat, .. }) = waiting.pop_first()?;
        let permit = seat.permit.lock().replace(leaves);
        seat.send_away(SentAway::Crowded);
        drop(waiting);
        // It had gone just now.
        permit.or_else(|| self.free.clone().try_acquire_owned().ok())
    }

    fn send_away_the_slow(&self, now: Instant) {
        self.send_away(SentAway::TooSlow, |waiting| {
            let waits_for = now.saturating_duration_since(waiting.since);
            match waiting.stage {
                Stage::Nothing => waits_for > self.idle_timeout,
                Stage::Head => waits_for > self.header_timeout,
                Stage::Body => false,
            }
        });
    }

    fn send_away(&self, why: SentAway, is_to_go: impl Fn(&Waiting) -> bool) {
        self.waiting.lock().retain(|_, waiting| {
            let goes = is_to_go(waiting);
            if goes {
                waiting.seat.send_away(why);
            }
            !goes
        });
    }
}

impl Seat {
    /// Whether only probes are answered here.
    pub(super) fn is_for_probes(&self) -> bool {
        self.room.only_probes
    }

    /// All of an answer is made. Once it is sent, the seat waits for the next request.
    pub(super) fn is_answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// All that was to be sent is.
    pub(super) fn has_sent_everything(self: &Arc<Self>) {
        if self.answered.swap(false, Ordering::Relaxed) {
            self.waits();
        }
    }

    /// From now on it waits for a request.
    pub(super) fn waits(self: &Arc<Self>) {
        let waiting = Waiting { stage: Stage::Nothing, since: Instant::now(), seat: self.clone() };
        let ticket = self.room.tickets.fetch_add(1, Ordering::Relaxed);
        let mut all = self.room.waiting.lock();
        all.remove(&self.ticket.swap(ticket, Ordering::Relaxed));
        if self.sent_away.lock().is_none() {
            all.insert(ticket, waiting);
        }
    }

    /// Bytes have come in: of a request's head, unless there is one already.
    pub(super) fn hears(&self) {
        let ticket = self.ticket.load(Ordering::Relaxed);
        if ticket == 0 {
            return;
        }
        if let Some(waiting) = self.room.waiting.lock().get_mut(&ticket)
            && waiting.stage == Stage::Nothing
        {
            (waiting.stage, waiting.since) = (Stage::Head, Instant::now());
        }
    }

    /// The head of a request is there.
    pub(super) fn has_head(&self) {
        if let Some(waiting) = self.room.waiting.lock().get_mut(&self.ticket.load(Ordering::Relaxed)) {
            waiting.stage = Stage::Body;
        }
    }

    /// All of a request is there, and it gives way to nobody until it is answered. False when it has been sent away
    /// just now: nothing may be begun.
    #[must_use]
    pub(super) fn begins(&self) -> bool {
        let ticket = self.ticket.swap(0, Ordering::Relaxed);
        let was_waiting = self.room.waiting.lock().remove(&ticket).is_some();
        was_waiting || self.sent_away.lock().is_none()
    }

    /// The connection is over.
    fn leaves(&self) {
        *self.permit.lock() = None;
        self.room.waiting.lock().remove(&self.ticket.load(Ordering::Relaxed));
    }

    fn send_away(&self, why: SentAway) {
        *self.sent_away.lock() = Some(why);
        self.told.notify_one();
    }

    /// Resolves when the connection is to end.
    pub(super) async fn sent_away(&self) -> SentAway {
        loop {
            if let Some(why) = *self.sent_away.lock() {
                return why;
            }
            self.told.notified().await;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seat.leaves();
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;
    use tokio::task::spawn_blocking;

    use super::*;

    /// Or it would be cut off amid what was begun for it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whose_request_begins_is_not_sent_away_any_more() {
        let seats = Arc::new(Seats::new(1, &HttpSettings::default()));
        let first = seats.take().await.expect("a free seat");
        let crowd = seats.clone();
        // Who sends it away comes no further than to its permit.
        let permit = first.seat.permit.lock();
        let second = spawn_blocking(move || Handle::current().block_on(crowd.take()));
        while seats.open.waiting.try_lock().is_some_and(|waiting| !waiting.is_empty()) {
            std::thread::yield_now();
        }
        let nobody_holds_it = seats.open.waiting.try_lock().is_some();
        let begins = nobody_holds_it.then(|| first.seat.begins());
        drop(permit);
        let begins = begins.unwrap_or_else(|| first.seat.begins());
        let second = second.await.expect("no panic").expect("a seat");
        assert!(!second.seat.is_for_probes());
        let is_sent_away = first.seat.sent_away.lock().is_some();
        assert!(begins != is_sent_away, "begins: {begins}, and is sent away: {is_sent_away}");
    }
}
