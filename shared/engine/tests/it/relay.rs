//! The relay, one round at a time, with a broker that does as it is told and a clock that is an argument.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use saga_core::decision::{OutboxWrite, Writes};
use saga_engine::host::metrics::Metrics;
use saga_engine::runtime::bus::Publish;
use saga_engine::runtime::clock::SystemClock;
use saga_engine::runtime::relay::{self, Relay, RelaySettings, Round};
use saga_engine::store::{OutboxEntry, Published, Store, StoreFault};
use tokio::sync::Notify;

use crate::support::{at, commit, id, in_memory, promise, promises, wait_until};

type Outcome = Result<(), StoreFault>;

#[tokio::test]
async fn what_waits_is_published_in_order_and_once() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([3, 1, 2])).await?;
    let mut relay = relay(&store, "depot-1");
    assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(3));
    assert_eq!(broker.arrived(), [3, 1, 2]);
    assert_eq!(round(&mut relay, &broker, 2).await?, Round::Idle);
    assert_eq!(store.stats().await?.outbox_pending, 0);
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 3)].into());
    Ok(())
}

#[tokio::test]
async fn a_round_takes_no_more_than_a_batch() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises(1..=5)).await?;
    let settings = RelaySettings { batch: 2, ..RelaySettings::default() };
    let mut relay = Relay::new(store.clone(), "depot-1".to_owned(), settings);
    for published in [2, 2, 1] {
        assert_eq!(round(&mut relay, &broker, 1).await?, Round::Published(published));
    }
    assert_eq!(broker.arrived(), [1, 2, 3, 4, 5]);
    Ok(())
}

/// Law 7: an outage, however long, costs no entry and overtakes none.
#[tokio::test]
async fn while_the_broker_takes_nothing_everything_waits_in_its_order() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1, 2, 3, 4])).await?;
    let mut relay = relay(&store, "depot-1");
    broker.takes_next(2, "no answer");
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
    assert_eq!(store.stats().await?.outbox_pending, 2);
    commit(store.as_ref(), promises([5])).await?;
    for hour in 1..=100 {
        broker.takes_nothing();
        let round = round(&mut relay, &broker, hour * 3600).await?;
        assert_eq!(round, Round::Delayed("no answer".to_owned()));
    }
    assert_eq!(store.outbox(1).await?[0].attempts, 101);
    broker.takes_all_again();
    assert_eq!(round(&mut relay, &broker, 999_999).await?, Round::Published(3));
    assert_eq!(broker.arrived(), [1, 2, 3, 4, 5]);
    Ok(())
}

/// A publish without permission is never acknowledged, and nobody says why: the rest goes on without it.
#[tokio::test]
async fn what_the_broker_does_not_take_for_a_while_though_it_takes_the_rest_steps_aside() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(
        store.as_ref(),
        of_subjects(&[(1, 1, "lost"), (2, 2, "lost"), (3, 1, "stored"), (4, 4, "stored")]),
    )
    .await?;
    let mut relay = relay(&store, "depot-1");
    broker.never_takes("depot.lost");
    let delayed = || Round::Delayed("no answer".to_owned());
    for second in [0, 30, 59] {
        assert_eq!(round(&mut relay, &broker, second).await?, delayed());
        assert_eq!(broker.arrived(), [], "it is waited for a while");
    }
    assert_eq!(round(&mut relay, &broker, 60).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [4], "what follows in the saga of a refused one waits");
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (0, 3));

    // The next of that subject need not wait as long, and holds nobody up.
    commit(store.as_ref(), of_subjects(&[(5, 5, "lost"), (6, 6, "stored")])).await?;
    assert_eq!(round(&mut relay, &broker, 61).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [4, 6]);

    broker.takes_all_again();
    assert_eq!(store.retry_failed(None).await?, 3);
    assert_eq!(round(&mut relay, &broker, 62).await?, Round::Published(4));
    assert_eq!(broker.arrived(), [4, 6, 1, 2, 3, 5]);
    Ok(())
}

/// What counts as refused holds nothing up any more: the service is ready, and takes orders.
#[tokio::test]
async fn once_it_is_judged_to_be_refused_it_holds_nothing_up() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1, 2])).await?;
    let mut relay = relay(&store, "depot-1");
    broker.never_takes("payload 1");
    for (second, judged) in [(0, vec![false]), (60, vec![false, true])] {
        round(&mut relay, &broker, second).await?;
        assert_eq!(*broker.judged.lock(), judged, "whether the way is free, after {second} s");
    }
    Ok(())
}

/// One message that is never taken is told from its subject, which is.
#[tokio::test]
async fn a_message_that_alone_is_not_taken_steps_aside_alone() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    let mut relay = relay(&store, "depot-1");
    broker.never_takes("payload 1");
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
    assert_eq!(round(&mut relay, &broker, 60).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [2, 3]);
    assert_eq!(store.stats().await?.outbox_failed, 1);
    Ok(())
}

/// However many subjects get no answer, the others go on.
#[tokio::test]
async fn two_subjects_that_are_not_taken_hold_up_no_third() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let entries = [(1, 1, "lost"), (2, 2, "gone"), (3, 3, "stored"), (4, 2, "stored")];
    commit(store.as_ref(), of_subjects(&entries)).await?;
    let mut relay = relay(&store, "depot-1");
    broker.never_takes("depot.lost");
    broker.never_takes("depot.gone");
    for second in [0, 60] {
        round(&mut relay, &broker, second).await?;
    }
    assert_eq!(broker.arrived(), [3]);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (3, 1), "the second is waited for a while too");
    assert_eq!(round(&mut relay, &broker, 120).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [3, 3]);

    // The next of these subjects hold nobody up.
    commit(store.as_ref(), of_subjects(&[(5, 5, "lost"), (6, 6, "gone"), (7, 7, "stored")])).await?;
    round(&mut relay, &broker, 121).await?;
    assert_eq!(broker.arrived(), [3, 3, 7]);
    assert_eq!(store.stats().await?.outbox_failed, 5);
    Ok(())
}

/// What is published around a subject that is not taken overtakes nothing of its saga.
#[tokio::test]
async fn what_is_tried_alone_waits_for_what_precedes_it_in_its_saga() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let entries = [(1, 1, "lost"), (2, 2, "stored"), (3, 2, "lost"), (4, 4, "stored")];
    commit(store.as_ref(), of_subjects(&entries)).await?;
    let mut relay = relay(&store, "depot-1");
    broker.never_takes("payload 1");
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
    broker.always_refuses(2);
    round(&mut relay, &broker, 60).await?;
    assert_eq!(broker.arrived(), [4], "the third waits for the second of its saga");
    assert_eq!(store.stats().await?.outbox_failed, 3);
    Ok(())
}

/// One that can never be published says nothing of what the broker takes: the rest is only delayed.
#[tokio::test]
async fn a_message_that_is_too_large_does_not_make_a_broker_that_takes_nothing_refuse_the_others() -> Outcome
{
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1, 2])).await?;
    let mut relay = relay(&store, "depot-1");
    broker.takes_nothing();
    broker.always_refuses(2);
    for second in [0, 60] {
        assert_eq!(round(&mut relay, &broker, second).await?, Round::Delayed("no answer".to_owned()));
    }
    assert_eq!(store.stats().await?.outbox_failed, 1, "the one that is too large");
    broker.takes_all_again();
    assert_eq!(round(&mut relay, &broker, 61).await?, Round::Published(1));
    Ok(())
}

/// A clock that was ahead and is put back makes nothing wait longer.
#[tokio::test]
async fn what_is_not_taken_steps_aside_in_time_though_the_clock_was_put_back() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), of_subjects(&[(1, 1, "lost"), (2, 2, "stored")])).await?;
    let mut relay = relay(&store, "depot-1");
    broker.never_takes("depot.lost");
    for second in [36_000, 0, 60] {
        round(&mut relay, &broker, second).await?;
    }
    assert_eq!(broker.arrived(), [2]);
    Ok(())
}

/// A publish may take long: what it brought to the broker is told again to one that has lost what it got meanwhile.
#[tokio::test(start_paused = true)]
async fn what_took_long_to_publish_was_published_at_the_end_of_that() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1])).await?;
    let mut relay = relay(&store, "depot-1");
    broker.stalls_after_taking();
    let publishing = round(&mut relay, &broker, 0);
    let going_on = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        broker.goes_on();
    };
    assert_eq!(tokio::join!(publishing, going_on).0?, Round::Published(1));
    assert_eq!(store.republish(at(4), 0, 9).await?.count, 1);
    Ok(())
}

/// Law 7: a broker that comes back while it is judged whether it refuses something has refused nothing.
#[tokio::test]
async fn a_broker_that_comes_back_meanwhile_refused_nothing() -> Outcome {
    for publishes_lost in 1..=3 {
        let (store, broker) = (in_memory(), Broker::default());
        commit(store.as_ref(), of_subjects(&[(1, 1, "lost"), (2, 2, "stored")])).await?;
        let mut relay = relay(&store, "depot-1");
        broker.takes_nothing();
        assert_eq!(round(&mut relay, &broker, 0).await?, Round::Delayed("no answer".to_owned()));
        broker.comes_back_after(publishes_lost);
        round(&mut relay, &broker, 3600).await?;
        assert_eq!(store.stats().await?.outbox_failed, 0, "back after {publishes_lost}");
    }
    Ok(())
}

/// Answers get lost, several in a row if it must be: one that gets through in the end was never refused.
#[tokio::test]
async fn a_message_whose_answers_get_lost_is_not_refused() -> Outcome {
    for (answers_lost, failed) in [(1, 0), (4, 0), (5, 1)] {
        let (store, broker) = (in_memory(), Broker::default());
        commit(store.as_ref(), promises([1, 2])).await?;
        let mut relay = relay(&store, "depot-1");
        broker.takes_nothing();
        round(&mut relay, &broker, 0).await?;
        broker.takes_all_again();
        broker.loses("payload 1", answers_lost);
        round(&mut relay, &broker, 60).await?;
        assert_eq!(store.stats().await?.outbox_failed, failed, "{answers_lost} lost");
    }
    Ok(())
}

#[tokio::test]
async fn what_the_broker_refuses_for_good_steps_aside_until_an_operator_retries_it() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    let mut relay = relay(&store, "depot-1");
    broker.always_refuses(2);
    assert_eq!(round(&mut relay, &broker, 0).await?, Round::Published(2));
    assert_eq!(broker.arrived(), [1, 3]);
    let stats = store.stats().await?;
    assert_eq!((stats.outbox_pending, stats.outbox_failed), (0, 1));
    assert_eq!(round(&mut relay, &broker, 9).await?, Round::Idle);

    broker.takes_all_again();
    assert_eq!(store.retry_failed(None).await?, 1);
    assert_eq!(round(&mut relay, &broker, 10).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [1, 3, 2]);
    Ok(())
}

/// Law 1: what was published but not settled when the process died is published again under the same ids.
#[tokio::test]
async fn a_crash_between_publish_and_settle_repeats_the_same_ids() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1, 2, 3])).await?;
    let mut first_life = relay(&store, "depot-1");
    broker.stalls_after_taking();
    let dying = first_life.round(&broker, &(), at(0));
    assert!(dying.now_or_never().is_none(), "it waits for an answer, and dies");
    assert_eq!(broker.arrived(), [1, 2, 3]);
    assert_eq!(store.stats().await?.outbox_pending, 3);

    // Its next life does not wait for the lease of the first.
    let mut second_life = relay(&store, "depot-1");
    assert_eq!(round(&mut second_life, &broker, 1).await?, Round::Published(3));
    assert_eq!(broker.arrived(), [1, 2, 3, 1, 2, 3]);
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 3)].into(), "counted once");
    Ok(())
}

#[tokio::test]
async fn one_relay_publishes_and_the_other_stands_by_until_the_lease_lapses() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut first, mut second) = (relay(&store, "depot-1"), relay(&store, "depot-2"));
    assert_eq!(round(&mut first, &broker, 0).await?, Round::Idle);
    commit(store.as_ref(), promises([1])).await?;
    assert_eq!(round(&mut second, &broker, 9).await?, Round::Standby);
    assert_eq!(broker.arrived(), []);
    assert_eq!(round(&mut second, &broker, 10).await?, Round::Published(1), "the first is gone");
    assert_eq!(round(&mut first, &broker, 11).await?, Round::Standby, "and has to queue up when it returns");
    Ok(())
}

#[tokio::test]
async fn a_relay_that_goes_on_keeps_its_lease() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    let (mut first, mut second) = (relay(&store, "depot-1"), relay(&store, "depot-2"));
    for second_of_day in 0..60 {
        assert_eq!(round(&mut first, &broker, second_of_day).await?, Round::Idle);
        assert_eq!(round(&mut second, &broker, second_of_day).await?, Round::Standby);
    }
    Ok(())
}

/// Law 1 and fencing: whoever took over has the say; the late one's settlement has no effect.
#[tokio::test]
async fn a_relay_that_was_overtaken_while_it_published_settles_nothing() -> Outcome {
    let (store, broker) = (in_memory(), Broker::default());
    commit(store.as_ref(), promises([1, 2])).await?;
    let (mut slow, mut other) = (relay(&store, "depot-1"), relay(&store, "depot-2"));
    broker.stalls_after_taking();
    let mut publishing = Box::pin(slow.round(&broker, &(), at(0)));
    assert!(futures::poll!(&mut publishing).is_pending());

    // The other takes over and publishes the first entry only.
    broker.takes_next(1, "no answer");
    assert_eq!(round(&mut other, &broker, 10).await?, Round::Delayed("no answer".to_owned()));
    broker.goes_on();
    assert_eq!(publishing.await?, Round::Standby);
    assert_eq!(store.stats().await?.outbox_pending, 1, "the second entry is the other's to settle");
    assert_eq!(store.tallies().await?.published, [("depot.stored".to_owned(), 1)].into());

    assert_eq!(round(&mut other, &broker, 11).await?, Round::Published(1));
    assert_eq!(broker.arrived(), [1, 2, 1, 2]);
    assert_eq!(round(&mut slow, &broker, 12).await?, Round::Standby);
    Ok(())
}

/// The loop publishes at the commit's wake-up, not at its next poll.
#[tokio::test]
async fn the_loop_is_woken_by_what_is_written() -> Outcome {
    let (store, broker) = (in_memory(), Arc::new(Broker::default()));
    let settings = RelaySettings { poll: Duration::from_hours(1), ..RelaySettings::default() };
    let relay = Relay::new(store.clone(), "depot-1".to_owned(), settings);
    let wake = Arc::new(Notify::new());
    let metrics = Metrics::default();
    let running = tokio::spawn(relay::run(
        relay,
        Box::new(Shared(broker.clone())),
        wake.clone(),
        Arc::new(SystemClock),
        Arc::new(metrics.clone()),
    ));
    for number in 1..=3 {
        commit(store.as_ref(), promises([number])).await?;
        wake.notify_one();
        let count = usize::try_from(number).expect("a small number");
        wait_until("it is published", async || broker.arrived().len() == count).await;
    }
    running.abort();
    assert!(metrics.text().expect("metrics").contains("outbox_published_total 3"));
    Ok(())
}

/// A wake-up is not lost for coming while the relay is at work.
#[tokio::test]
async fn what_is_written_during_a_round_is_published_in_the_next() -> Outcome {
    let (store, broker) = (in_memory(), Arc::new(Broker::default()));
    let settings = RelaySettings { poll: Duration::from_hours(1), ..RelaySettings::default() };
    let relay = Relay::new(store.clone(), "depot-1".to_owned(), settings);
    let wake = Arc::new(Notify::new());
    commit(store.as_ref(), promises([1])).await?;
    broker.stalls_after_taking();
    let running = tokio::spawn(relay::run(
        relay,
        Box::new(Shared(broker.clone())),
        wake.clone(),
        Arc::new(SystemClock),
        Arc::new(()),
    ));
    wait_until("the first is under way", async || broker.arrived().len() == 1).await;
    commit(store.as_ref(), promises([2])).await?;
    wake.notify_one();
    broker.goes_on();
    wait_until("the second follows", async || broker.arrived() == [1, 2]).await;
    running.abort();
    Ok(())
}

/// Messages, each of a saga and with the rest of a subject.
fn of_subjects(messages: &[(u128, u128, &str)]) -> Writes {
    let promise = |(number, saga, subject): &(u128, u128, &str)| OutboxWrite {
        saga: id(*saga),
        subject: format!("depot.{subject}"),
        ..promise(*number, None)
    };
    Writes { outbox: messages.iter().map(promise).collect(), decided_at: at(0), ..Writes::default() }
}

fn relay(store: &Arc<dyn Store>, owner: &str) -> Relay {
    let settings = RelaySettings { lease: Duration::from_secs(10), ..RelaySettings::default() };
    Relay::new(store.clone(), owner.to_owned(), settings)
}

async fn round(relay: &mut Relay, broker: &Broker, second: i64) -> Result<Round, StoreFault> {
    relay.round(broker, &(), at(second)).await
}

/// A broker that takes everything, unless it was told otherwise for the next publish.
#[derive(Default)]
struct Broker {
    arrived: Mutex<Vec<u128>>,
    next: Mutex<Mood>,
    never: Mutex<Vec<&'static str>>,
    too_large: Mutex<Option<u128>>,
    answers_lost: Mutex<(&'static str, usize)>,
    /// Of each round, whether nothing was in the way.
    judged: Mutex<Vec<bool>>,
    lost: Mutex<usize>,
    going_on: Notify,
}

/// What the broker does with the next publish.
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
    fn arrived(&self) -> Vec<u128> {
        self.arrived.lock().clone()
    }

    fn takes_next(&self, count: usize, reason: &'static str) {
        self.is_next(Mood::TakesFew(count, reason));
    }

    /// What has this subject, or this payload, gets no answer.
    fn never_takes(&self, what: &'static str) {
        self.never.lock().push(what);
    }

    /// The message of this number cannot even be sent.
    fn always_refuses(&self, number: u128) {
        *self.too_large.lock() = Some(number);
    }

    /// The answers to so many publishes of what has this payload get lost.
    fn loses(&self, payload: &'static str, times: usize) {
        *self.answers_lost.lock() = (payload, times);
    }

    fn takes_nothing(&self) {
        *self.lost.lock() = usize::MAX;
    }

    /// So many publishes get no answer any more.
    fn comes_back_after(&self, publishes: usize) {
        *self.lost.lock() = publishes;
    }

    fn takes_all_again(&self) {
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

    fn stalls_after_taking(&self) {
        self.is_next(Mood::Stalls);
    }

    fn goes_on(&self) {
        self.going_on.notify_one();
    }

    fn is_next(&self, mood: Mood) {
        *self.next.lock() = mood;
    }

    async fn take(&self, entries: &[OutboxEntry]) -> Published {
        let mood = std::mem::take(&mut *self.next.lock());
        let mut published = Published::default();
        let is_stalling = matches!(mood, Mood::Stalls);
        for (index, entry) in entries.iter().enumerate() {
            if *self.too_large.lock() == Some(entry.id.as_u128()) {
                published.refused.push((entry.seq, "too large".to_owned()));
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
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Published> {
        Box::pin(self.take(entries))
    }

    fn judged(&self, published: &Published) {
        self.judged.lock().push(published.delayed.is_none());
    }
}

/// The same broker, for a relay that keeps its own.
struct Shared(Arc<Broker>);

impl Publish for Shared {
    fn publish<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Published> {
        Box::pin(self.0.take(entries))
    }
}
