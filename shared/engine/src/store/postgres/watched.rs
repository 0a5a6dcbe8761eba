//! Shell: of which kinds of rows somebody waits for changes: what changes of others is told to nobody, as it costs each of
//! those that listen. Whoever waits looks now and then anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// For so long others count as waiting after they have said so.
const BELIEVED_FOR: Duration = Duration::from_secs(10);
/// They are told again this often while somebody waits here.
const SAYS_EVERY: Duration = Duration::from_secs(3);

/// What is waited for in this process, and elsewhere.
pub(super) struct Watched {
    /// Others are to be told of something.
    news: Notify,
    here: Arc<Mutex<BTreeMap<&'static str, Here>>>,
    elsewhere: Mutex<Elsewhere>,
}

/// Those who wait for one kind.
#[derive(Default)]
struct Here {
    count: usize,
    said_at: Option<Instant>,
}

impl Here {
    fn is_to_be_said(&self, now: Instant) -> bool {
        self.count > 0 && self.said_at.is_none_or(|said_at| now >= said_at + SAYS_EVERY)
    }
}

struct Elsewhere {
    /// Until then anything may be waited for: what others have said was not heard, or not yet.
    anything_until: Instant,
    /// Kinds, and until when somebody waits for them.
    kinds: BTreeMap<String, Instant>,
}

/// Somebody who waits here.
struct Waits {
    here: Arc<Mutex<BTreeMap<&'static str, Here>>>,
    kind: &'static str,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(here) = self.here.lock().get_mut(self.kind) {
            here.count -= 1;
        }
    }
}

impl Watched {
    /// Of a process that has heard nobody yet.
    pub(super) fn new(now: Instant) -> Self {
        let elsewhere = Elsewhere { anything_until: now + BELIEVED_FOR, kinds: BTreeMap::new() };
        Self { news: Notify::new(), here: Arc::default(), elsewhere: Mutex::new(elsewhere) }
    }

    /// Somebody here waits for rows of this kind, until the answer is dropped.
    pub(super) fn wait(&self, kind: &'static str, now: Instant) -> impl Send + use<> {
        let mut all = self.here.lock();
        let here = all.entry(kind).or_default();
        here.count += 1;
        if here.is_to_be_said(now) {
            self.news.notify_one();
        }
        Waits { here: self.here.clone(), kind }
    }

    /// Resolves when others are to be told of something at once.
    pub(super) fn news(&self) -> impl Future<Output = ()> + Send {
        self.news.notified()
    }

    /// The kinds that others are to be told of now; they count as told.
    pub(super) fn to_be_said(&self, now: Instant) -> BTreeSet<String> {
        let mut all = self.here.lock();
        let due = all.iter_mut().filter(|(_, here)| here.is_to_be_said(now));
        due.map(|(kind, here)| {
            here.said_at = Some(now);
            (*kind).to_owned()
        })
        .collect()
    }

    /// Others wait for these.
    pub(super) fn heard(&self, kinds: BTreeSet<String>, now: Instant) {
        self.elsewhere.lock().kinds.extend(kinds.into_iter().map(|kind| (kind, now + BELIEVED_FOR)));
    }

    /// Something that others have said was not heard.
    pub(super) fn missed(&self, now: Instant) {
        self.elsewhere.lock().anything_until = now + BELIEVED_FOR;
    }

    /// Whether others may wait for rows of this kind.
    pub(super) fn is_elsewhere(&self, kind: &str, now: Instant) -> bool {
        let Elsewhere { anything_until, kinds } = &*self.elsewhere.lock();
        now < *anything_until || kinds.get(kind).is_some_and(|until| now < *until)
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
    fn others_are_told_at_once_and_then_now_and_then_while_somebody_waits() {
        let origin = Instant::now();
        let watched = Watched::new(origin);
        let waits = watched.wait("order", origin);
        assert_eq!(watched.news().now_or_never(), Some(()));
        assert_eq!(watched.to_be_said(origin), BTreeSet::from(["order".to_owned()]));
        let waits_too = watched.wait("order", at(100, origin));
        assert_eq!(watched.news().now_or_never(), None, "it was said just now");
        assert_eq!(watched.to_be_said(at(2_900, origin)), BTreeSet::new());
        drop(waits);
        assert_eq!(watched.to_be_said(at(3_000, origin)), BTreeSet::from(["order".to_owned()]));
        drop(waits_too);
        assert_eq!(watched.to_be_said(at(9_000, origin)), BTreeSet::new(), "nobody waits any more");
    }

    #[test]
    fn what_others_wait_for_is_believed_for_a_while_and_anything_after_a_gap() {
        let origin = Instant::now();
        let watched = Watched::new(origin);
        assert!(watched.is_elsewhere("order", at(9_999, origin)), "nobody was heard yet");
        assert!(!watched.is_elsewhere("order", at(10_000, origin)));
        watched.heard(BTreeSet::from(["order".to_owned()]), at(10_000, origin));
        assert!(watched.is_elsewhere("order", at(19_999, origin)));
        assert!(!watched.is_elsewhere("shelf", at(19_999, origin)));
        assert!(!watched.is_elsewhere("order", at(20_000, origin)));
        watched.missed(at(20_000, origin));
        assert!(watched.is_elsewhere("shelf", at(20_000, origin)));
    }
}
