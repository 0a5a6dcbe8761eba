//! Shell: row kinds whose changes some replica watches. Changes of other kinds are not sent, since each message costs every
//! replica. Watchers also poll.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time for which an announced watch counts.
const VALID_FOR: Duration = Duration::from_secs(10);
/// Interval at which a watch of this replica is announced again.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(3);

/// Kinds that this replica and others watch.
pub(super) struct WatchedKinds {
    /// Wakes the announcement of a new watch.
    is_new: Notify,
    own: Arc<Mutex<BTreeMap<&'static str, OwnWatch>>>,
    others: Mutex<OtherWatches>,
}

/// Watches of one kind in this replica.
#[derive(Default)]
struct OwnWatch {
    count: usize,
    announced_at: Option<Instant>,
}

impl OwnWatch {
    fn must_be_announced(&self, now: Instant) -> bool {
        self.count > 0 && self.announced_at.is_none_or(|at| now >= at + ANNOUNCE_EVERY)
    }
}

struct OtherWatches {
    /// Until then every kind counts as watched: announcements may have been missed.
    all_until: Instant,
    /// Watched kinds, and until when the watches count.
    kinds: BTreeMap<String, Instant>,
}

/// Watch of this replica, until it is dropped.
struct Watch {
    own: Arc<Mutex<BTreeMap<&'static str, OwnWatch>>>,
    kind: &'static str,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(watch) = self.own.lock().get_mut(self.kind) {
            watch.count -= 1;
        }
    }
}

impl WatchedKinds {
    /// Watches of a replica that has received no announcement yet.
    pub(super) fn new(now: Instant) -> Self {
        let others = OtherWatches { all_until: now + VALID_FOR, kinds: BTreeMap::new() };
        Self { is_new: Notify::new(), own: Arc::default(), others: Mutex::new(others) }
    }

    /// Watches a kind until the result is dropped.
    pub(super) fn watch(&self, kind: &'static str, now: Instant) -> impl Send + use<> {
        let mut all = self.own.lock();
        let watch = all.entry(kind).or_default();
        watch.count += 1;
        if watch.must_be_announced(now) {
            self.is_new.notify_one();
        }
        Watch { own: self.own.clone(), kind }
    }

    /// Resolves when a new watch must be announced at once.
    pub(super) fn next_new(&self) -> impl Future<Output = ()> + Send {
        self.is_new.notified()
    }

    /// Takes the kinds to announce now.
    pub(super) fn take_due(&self, now: Instant) -> BTreeSet<String> {
        let mut all = self.own.lock();
        let due = all.iter_mut().filter(|(_, watch)| watch.must_be_announced(now));
        due.map(|(kind, watch)| {
            watch.announced_at = Some(now);
            (*kind).to_owned()
        })
        .collect()
    }

    /// Records the announcement of another replica.
    pub(super) fn add_announced(&self, kinds: BTreeSet<String>, now: Instant) {
        self.others.lock().kinds.extend(kinds.into_iter().map(|kind| (kind, now + VALID_FOR)));
    }

    /// Records that announcements may have been missed.
    pub(super) fn missed(&self, now: Instant) {
        self.others.lock().all_until = now + VALID_FOR;
    }

    /// Returns true if another replica may watch this kind.
    pub(super) fn is_watched(&self, kind: &str, now: Instant) -> bool {
        let OtherWatches { all_until, kinds } = &*self.others.lock();
        now < *all_until || kinds.get(kind).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn at(millis: u64, origin: Instant) -> Instant {
        origin + Duration::from_millis(millis)
    }

    #[test]
    fn watch_is_announced_at_once_and_repeatedly_until_dropped() {
        let origin = Instant::now();
        let watched = WatchedKinds::new(origin);
        let watch = watched.watch("order", origin);
        assert_eq!(watched.next_new().now_or_never(), Some(()));
        assert_eq!(watched.take_due(origin), BTreeSet::from(["order".to_owned()]));
        let second_watch = watched.watch("order", at(100, origin));
        assert_eq!(watched.next_new().now_or_never(), None, "it was announced just now");
        assert_eq!(watched.take_due(at(2_900, origin)), BTreeSet::new());
        drop(watch);
        assert_eq!(watched.take_due(at(3_000, origin)), BTreeSet::from(["order".to_owned()]));
        drop(second_watch);
        assert_eq!(watched.take_due(at(9_000, origin)), BTreeSet::new(), "nothing is watched any more");
    }

    #[test]
    fn announced_watch_counts_for_ten_seconds_and_all_kinds_after_gap() {
        let origin = Instant::now();
        let watched = WatchedKinds::new(origin);
        assert!(watched.is_watched("order", at(9_999, origin)), "nothing was announced yet");
        assert!(!watched.is_watched("order", at(10_000, origin)));
        watched.add_announced(BTreeSet::from(["order".to_owned()]), at(10_000, origin));
        assert!(watched.is_watched("order", at(19_999, origin)));
        assert!(!watched.is_watched("shelf", at(19_999, origin)));
        assert!(!watched.is_watched("order", at(20_000, origin)));
        watched.missed(at(20_000, origin));
        assert!(watched.is_watched("shelf", at(20_000, origin)));
    }
}
