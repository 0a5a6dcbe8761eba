//! Shell: bounded pool of connections: time-outs for slow clients, eviction of the longest idle, a reserve for probes.
//!
//! No library has these. The same with hyper-util (a semaphore, `header_read_timeout`, `GracefulShutdown`) takes 250 lines
//! in place of 890, and fails in these points:
//! - `scripts/connection-flood.sh`, 20,000 idle connections: `/livez` missed 2 of 4 probes, and an order took 5 s.
//!   Newcomers wait until idle clients time out (tests `longest_idle_connection_is_evicted_when_full` and
//!   `probes_are_answered_while_requests_occupy_every_connection`).
//! - A slow head gets no answer, as that timer closes silently (`slow_head_is_answered_with_408_and_closed`). Idle clients
//!   have no limit of their own, as it also runs between requests.
//! - A client that leaves its answer unread is never cut off (`unread_answer_times_out_and_frees_connection`).
//! - Malformed requests get empty answers (`malformed_request_gets_problem_document`, `missing_or_bad_token_is_rejected`).
//! - A stop waits for incomplete heads until they time out (`stop_finishes_requests_and_closes_idle_connections`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::settings::HttpSettings;

/// Connections reserved for probes and metrics while requests occupy all others.
pub(super) const PROBE_RESERVE: usize = 64;
/// Limit on the time that a connection of the reserve may take to send its request.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Share of evicted connections that may still be closing beside the full pool. A newcomer then waits for none of them.
const CLOSING_ONE_IN: usize = 40;
/// Time within which one of them is closed, unless tasks are starved.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);

/// Connections of a server: the shared ones, and a reserve for probes.
pub(super) struct ConnectionPool {
    shared: Arc<Slots>,
    reserve: Arc<Slots>,
}

struct Slots {
    only_probes: bool,
    free: Arc<Semaphore>,
    /// Permits of evicted connections until they are closed.
    closing: Arc<Semaphore>,
    /// Connections without a complete request, in the order in which they began to wait.
    waiting: Mutex<BTreeMap<u64, Waiting>>,
    tickets: AtomicU64,
    idle_timeout: Duration,
    header_timeout: Duration,
}

struct Waiting {
    stage: Stage,
    since: Instant,
    slot: Arc<Slot>,
}

/// Progress of a request that is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Head,
    /// All of the head. The body has a limit of its own.
    Body,
}

/// Reason for which the server closes a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// Idle, or within a head, for too long.
    TooSlow,
    Evicted,
    Stopping,
}

pub(super) struct Slot {
    slots: Arc<Slots>,
    /// Key in [`Slots::waiting`]; 0 while a request is in flight.
    ticket: AtomicU64,
    /// True once an answer is complete, though perhaps not sent.
    is_answered: AtomicBool,
    close_reason: Mutex<Option<CloseReason>>,
    closing: Notify,
    /// Permit of the slot, or of an evicted connection; `None` once the connection is closed.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Occupied slot, which becomes free when this is dropped.
pub(super) struct SlotGuard {
    pub(super) slot: Arc<Slot>,
}

impl ConnectionPool {
    pub(super) fn new(number: usize, settings: &HttpSettings) -> Self {
        let HttpSettings { idle_timeout, header_timeout, .. } = *settings;
        let slots = |number, only_probes, idle_timeout: Duration, header_timeout: Duration| {
            Arc::new(Slots {
                only_probes,
                free: Arc::new(Semaphore::new(number)),
                closing: Arc::new(Semaphore::new((number / CLOSING_ONE_IN).max(1))),
                waiting: Mutex::default(),
                tickets: AtomicU64::new(1),
                idle_timeout,
                header_timeout,
            })
        };
        Self {
            shared: slots(number, false, idle_timeout, header_timeout),
            reserve: slots(PROBE_RESERVE, true, PROBE_TIMEOUT, PROBE_TIMEOUT),
        }
    }

    /// Takes a free slot, or that of the longest idle connection, or one of the reserve. `None` when requests occupy even
    /// the reserve.
    pub(super) async fn acquire(&self) -> Option<SlotGuard> {
        match Slots::acquire(&self.shared).await {
            Some(guard) => Some(guard),
            None => Slots::acquire(&self.reserve).await,
        }
    }

    /// Closes connections that exceed the idle or header time-out.
    pub(super) fn close_slow(&self, now: Instant) {
        self.shared.close_slow(now);
        self.reserve.close_slow(now);
    }

    /// Closes every connection without a request in flight, because the service stops.
    pub(super) fn close_idle(&self) {
        for slots in [&self.shared, &self.reserve] {
            slots.close_where(CloseReason::Stopping, |waiting| waiting.stage != Stage::Body);
        }
    }
}

impl Slots {
    async fn acquire(slots: &Arc<Self>) -> Option<SlotGuard> {
        let permit = match slots.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => slots.evict_longest_idle().await?,
        };
        let slot = Arc::new(Slot {
            slots: slots.clone(),
            ticket: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
            close_reason: Mutex::default(),
            closing: Notify::new(),
            permit: Mutex::new(Some(permit)),
        });
        slot.on_idle();
        Some(SlotGuard { slot })
    }

    /// Evicts the connection that has waited longest, and returns its permit.
    async fn evict_longest_idle(&self) -> Option<OwnedSemaphorePermit> {
        let closing = timeout(CLOSED_WITHIN, self.closing.clone().acquire_owned()).await.ok()?.ok()?;
        // Locked until the connection is marked: otherwise its request could begin in between, and be cut off.
        let mut waiting = self.waiting.lock();
        let (_, Waiting { slot, .. }) = waiting.pop_first()?;
        let permit = slot.permit.lock().replace(closing);
        slot.close(CloseReason::Evicted);
        drop(waiting);
        // Without a permit the connection has closed by itself just now, and its slot is free.
        permit.or_else(|| self.free.clone().try_acquire_owned().ok())
    }

    fn close_slow(&self, now: Instant) {
        self.close_where(CloseReason::TooSlow, |waiting| {
            let waited = now.saturating_duration_since(waiting.since);
            match waiting.stage {
                Stage::Idle => waited > self.idle_timeout,
                Stage::Head => waited > self.header_timeout,
                Stage::Body => false,
            }
        });
    }

    fn close_where(&self, reason: CloseReason, is_closed: impl Fn(&Waiting) -> bool) {
        self.waiting.lock().retain(|_, waiting| {
            let closes = is_closed(waiting);
            if closes {
                waiting.slot.close(reason);
            }
            !closes
        });
    }
}

impl Slot {
    /// True if only probes are answered on this connection.
    pub(super) fn is_for_probes(&self) -> bool {
        self.slots.only_probes
    }

    /// Marks the answer as complete. Once it is sent, the connection is idle again.
    pub(super) fn on_answer_complete(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// Called when all written bytes are sent.
    pub(super) fn on_flushed(self: &Arc<Self>) {
        if self.is_answered.swap(false, Ordering::Relaxed) {
            self.on_idle();
        }
    }

    /// Marks the connection as idle: it waits for a request, and may be evicted.
    pub(super) fn on_idle(self: &Arc<Self>) {
        let waiting = Waiting { stage: Stage::Idle, since: Instant::now(), slot: self.clone() };
        let ticket = self.slots.tickets.fetch_add(1, Ordering::Relaxed);
        let mut all = self.slots.waiting.lock();
        all.remove(&self.ticket.swap(ticket, Ordering::Relaxed));
        if self.close_reason.lock().is_none() {
            all.insert(ticket, waiting);
        }
    }

    /// Called when bytes arrive. The first ones begin the head of a request.
    pub(super) fn on_bytes(&self) {
        let ticket = self.ticket.load(Ordering::Relaxed);
        if ticket == 0 {
            return;
        }
        if let Some(waiting) = self.slots.waiting.lock().get_mut(&ticket)
            && waiting.stage == Stage::Idle
        {
            (waiting.stage, waiting.since) = (Stage::Head, Instant::now());
        }
    }

    /// Called when the head of a request is complete.
    pub(super) fn on_head(&self) {
        if let Some(waiting) = self.slots.waiting.lock().get_mut(&self.ticket.load(Ordering::Relaxed)) {
            waiting.stage = Stage::Body;
        }
    }

    /// Begins a complete request, after which the connection is not evicted until it is answered. False if the connection
    /// was evicted just now: the request must not begin.
    #[must_use]
    pub(super) fn begin_request(&self) -> bool {
        let ticket = self.ticket.swap(0, Ordering::Relaxed);
        let was_waiting = self.slots.waiting.lock().remove(&ticket).is_some();
        was_waiting || self.close_reason.lock().is_none()
    }

    fn on_closed(&self) {
        *self.permit.lock() = None;
        self.slots.waiting.lock().remove(&self.ticket.load(Ordering::Relaxed));
    }

    fn close(&self, reason: CloseReason) {
        *self.close_reason.lock() = Some(reason);
        self.closing.notify_one();
    }

    /// Resolves when the server closes the connection.
    pub(super) async fn closing(&self) -> CloseReason {
        loop {
            if let Some(reason) = *self.close_reason.lock() {
                return reason;
            }
            self.closing.notified().await;
        }
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slot.on_closed();
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;
    use tokio::task::spawn_blocking;

    use super::*;

    /// Otherwise it would be cut off within what it has begun.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn connection_whose_request_begins_is_not_evicted() {
        let pool = Arc::new(ConnectionPool::new(1, &HttpSettings::default()));
        let first = pool.acquire().await.expect("a free slot");
        let newcomer = pool.clone();
        // The eviction stops at this lock.
        let permit = first.slot.permit.lock();
        let second = spawn_blocking(move || Handle::current().block_on(newcomer.acquire()));
        while pool.shared.waiting.try_lock().is_some_and(|waiting| !waiting.is_empty()) {
            std::thread::yield_now();
        }
        let is_unlocked = pool.shared.waiting.try_lock().is_some();
        let begins = is_unlocked.then(|| first.slot.begin_request());
        drop(permit);
        let begins = begins.unwrap_or_else(|| first.slot.begin_request());
        let second = second.await.expect("no panic").expect("a slot");
        assert!(!second.slot.is_for_probes());
        let is_evicted = first.slot.close_reason.lock().is_some();
        assert!(begins != is_evicted, "begins: {begins}, is evicted: {is_evicted}");
    }
}
