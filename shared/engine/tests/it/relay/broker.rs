//! Scripted broker, and rounds of a relay that publishes to it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::decision::{OutboxWrite, Writes};
use saga_engine::runtime::bus::Publish;
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::observer::SharedObserver;
use saga_engine::runtime::relay::{self, Relay, RelaySettings, Round};
use saga_engine::runtime::relay_queue::RelayQueue;
use saga_engine::store::{OutboxEntry, PublishOutcome, Store, StoreFault};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::support::{at, commit, id, in_memory, outbox_write};

pub type Outcome = Result<(), StoreFault>;

/// Messages, each with its saga and the last part of its subject.
pub fn of_subjects(messages: &[(u128, u128, &str)]) -> Writes {
    let outbox_write = |(number, saga, subject): &(u128, u128, &str)| OutboxWrite {
        saga: id(*saga),
        subject: format!("depot.{subject}"),
        ..outbox_write(*number, None)
    };
    Writes { outbox: messages.iter().map(outbox_write).collect(), decided_at: at(0), ..Writes::default() }
}

pub fn relay(store: &Arc<dyn Store>, owner: &str) -> Relay {
    let settings = RelaySettings { lease: Duration::from_secs(10), ..RelaySettings::default() };
    Relay::new(store.clone(), owner.to_owned(), settings)
}

pub async fn round(relay: &mut Relay, broker: &Broker, second: i64) -> Result<Round, StoreFault> {
    relay.round(broker, &(), at(second)).await
}

/// Store with these outbox entries, a broker, and a relay between them.
pub async fn with_outbox(writes: Writes) -> Result<(Arc<dyn Store>, Broker, Relay), StoreFault> {
    let store = in_memory();
    commit(store.as_ref(), writes).await?;
    let relay = relay(&store, "depot-1");
    Ok((store, Broker::default(), relay))
}

/// Relay loop that polls once an hour, and the queue that wakes it.
pub fn running(
    store: &Arc<dyn Store>,
    broker: &Arc<Broker>,
    observer: SharedObserver,
) -> (JoinHandle<()>, Arc<RelayQueue>) {
    let settings = RelaySettings { poll: Duration::from_hours(1), ..RelaySettings::default() };
    let relay = Relay::new(store.clone(), "depot-1".to_owned(), settings);
    let wake = Arc::new(RelayQueue::default());
    let publisher = Box::new(Shared(broker.clone()));
    let running = relay::run(relay, publisher, wake.clone(), Arc::new(SystemClock), observer);
    (tokio::spawn(running), wake)
}

/// Broker that accepts everything, unless the next publish is scripted.
#[derive(Default)]
pub struct Broker {
    arrived: Mutex<Vec<u128>>,
    next: Mutex<Mood>,
    never: Mutex<Vec<&'static str>>,
    too_large: Mutex<Option<u128>>,
    answers_lost: Mutex<(&'static str, usize)>,
    /// Rounds, true for each without a delay.
    pub judged: Mutex<Vec<bool>>,
    lost: Mutex<usize>,
    going_on: Notify,
}

/// Behaviour at the next publish.
#[derive(Default)]
enum Mood {
    #[default]
    Takes,
    /// So many, then no more, for this reason.
    TakesFew(usize, &'static str),
    /// All, but answers only when told to go on.
    Stalls,
}

impl Broker {
    pub fn arrived(&self) -> Vec<u128> {
        self.arrived.lock().clone()
    }

    pub fn takes_next(&self, count: usize, reason: &'static str) {
        self.is_next(Mood::TakesFew(count, reason));
    }

    /// Never acknowledges this subject or payload.
    pub fn never_takes(&self, what: &'static str) {
        self.never.lock().push(what);
    }

    /// Rejects the message with this number.
    pub fn always_rejects(&self, number: u128) {
        *self.too_large.lock() = Some(number);
    }

    /// Loses so many acknowledgements of this payload.
    pub fn loses(&self, payload: &'static str, times: usize) {
        *self.answers_lost.lock() = (payload, times);
    }

    pub fn takes_nothing(&self) {
        *self.lost.lock() = usize::MAX;
    }

    /// Acknowledges nothing for so many publishes.
    pub fn recovers_after(&self, publishes: usize) {
        *self.lost.lock() = publishes;
    }

    pub fn takes_all_again(&self) {
        (*self.lost.lock(), *self.too_large.lock()) = (0, None);
        self.never.lock().clear();
    }

    fn is_lost(&self, entry: &OutboxEntry) -> bool {
        let mut lost = self.lost.lock();
        let is_lost = *lost > 0;
        *lost = lost.saturating_sub(1);
        let mut answers = self.answers_lost.lock();
        if answers.1 > 0 && entry.payload == answers.0.as_bytes() {
            answers.1 -= 1;
            return true;
        }
        let never = |what: &str| entry.subject == what || entry.payload == what.as_bytes();
        is_lost || self.never.lock().iter().copied().any(never)
    }

    pub fn stalls_after_taking(&self) {
        self.is_next(Mood::Stalls);
    }

    pub fn continues(&self) {
        self.going_on.notify_one();
    }

    fn is_next(&self, mood: Mood) {
        *self.next.lock() = mood;
    }

    async fn take(&self, entries: &[OutboxEntry]) -> PublishOutcome {
        let mood = std::mem::take(&mut *self.next.lock());
        let mut published = PublishOutcome::default();
        let is_stalling = matches!(mood, Mood::Stalls);
        for (index, entry) in entries.iter().enumerate() {
            if *self.too_large.lock() == Some(entry.id.as_u128()) {
                published.rejected.push((entry.seq, "too large".to_owned()));
                continue;
            }
            if self.is_lost(entry) {
                published.delayed = Some((entry.seq, "no answer".to_owned()));
                break;
            }
            match &mood {
                Mood::TakesFew(count, reason) if index == *count => {
                    published.delayed = Some((entry.seq, (*reason).to_owned()));
                    break;
                }
                Mood::Takes | Mood::TakesFew(..) | Mood::Stalls => {}
            }
            self.arrived.lock().push(entry.id.as_u128());
            published.done.push(entry.seq);
        }
        if is_stalling {
            self.going_on.notified().await;
        }
        published
    }
}

impl Publish for Broker {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        Box::pin(self.take(entries))
    }

    fn round_ended(&self, published: &PublishOutcome) {
        self.judged.lock().push(published.delayed.is_none());
    }
}

/// The same broker, for a relay that keeps its own.
struct Shared(Arc<Broker>);

impl Publish for Shared {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, PublishOutcome> {
        Box::pin(self.0.take(entries))
    }
}
