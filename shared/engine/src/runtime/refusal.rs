//! Shell: telling an entry that the broker does not take from a broker that takes nothing.
//!
//! Most reasons for which a publish fails are the broker's own, and pass. Some concern one message or one subject and do
//! not pass, without the broker saying so: a publish without permission is merely never acknowledged. The difference
//! shows in what else the broker takes.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;

use super::bus::Publish;
use super::signed;
use crate::store::{OutboxEntry, Published};

/// Entries of one subject that are tried alone at once: as many publishes wait for an answer together.
const TRIED_ALONE: usize = 16;

/// A subject whose next entry has not been taken for some time.
#[derive(Debug)]
struct Stuck {
    subject: String,
    since: Timestamp,
}

/// Remembers for how long the head of the line has not been taken.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    stuck: Option<Stuck>,
}

impl Refusals {
    /// Looks at how `entries` were published. When their next one has not been taken for `patience`, the rest is
    /// published around it; and if the broker takes that, what it still does not take counts as refused.
    pub(super) async fn judge(
        &mut self,
        mut published: Published,
        entries: &[OutboxEntry],
        publish: &dyn Publish,
        (now, patience): (Timestamp, Duration),
    ) -> Published {
        let head = published.delayed.as_ref().map(|(seq, _)| *seq);
        let Some(at) = head.and_then(|seq| entries.iter().position(|entry| entry.seq == seq)) else {
            // Nothing is in the way. A subject is forgotten only when it gets through.
            let is_through = |stuck: &Stuck| {
                entries
                    .iter()
                    .any(|entry| entry.subject == stuck.subject && published.done.contains(&entry.seq))
            };
            self.stuck = self.stuck.take().filter(|stuck| !is_through(stuck));
            return published;
        };
        let subject = &entries[at].subject;
        let stuck = match self.stuck.take() {
            Some(stuck) if stuck.subject == *subject => stuck,
            _ => Stuck { subject: subject.clone(), since: now },
        };
        if now.duration_since(stuck.since) >= signed(patience) {
            publish_around(&mut published, subject, &entries[at..], publish).await;
        }
        self.stuck = Some(stuck);
        published
    }
}

/// Publishes what does not depend on the first of `entries`, whose subject this is, and then those of the subject, each
/// alone.
async fn publish_around(
    published: &mut Published,
    subject: &str,
    entries: &[OutboxEntry],
    publish: &dyn Publish,
) {
    let mut sagas = BTreeSet::new();
    let (alike, others): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| {
        // What follows one of them in its saga waits as well.
        entry.subject == subject && sagas.insert(entry.saga) || sagas.contains(&entry.saga)
    });
    let mut alone: Vec<_> = alike.into_iter().filter(|entry| sagas.remove(&entry.saga)).collect();
    alone.truncate(TRIED_ALONE);
    let around = publish.publish(&others).await;
    let mut takes_something = !around.done.is_empty();
    published.done.extend(around.done);
    published.refused.extend(around.refused);
    let mut delayed = try_alone(&alone, publish, published).await;
    takes_something |= delayed.len() < alone.len();
    if !takes_something {
        return;
    }
    // Once more: the broker may have come back only just now.
    alone.retain(|entry| delayed.iter().any(|(seq, _)| *seq == entry.seq));
    delayed = try_alone(&alone, publish, published).await;
    published.refused.append(&mut delayed);
    published.delayed = None;
}

/// Publishes each alone, and answers which of them wait on, and why.
async fn try_alone(
    entries: &[OutboxEntry],
    publish: &dyn Publish,
    published: &mut Published,
) -> Vec<(i64, String)> {
    let tries = entries.iter().map(|entry| publish.publish(std::slice::from_ref(entry)));
    let mut delayed = Vec::new();
    for tried in join_all(tries).await {
        published.done.extend(tried.done);
        published.refused.extend(tried.refused);
        delayed.extend(tried.delayed);
    }
    delayed
}
