//! Shell: telling an entry that the broker does not take from a broker that takes nothing.
//!
//! Most reasons for which a publish fails are the broker's own, and pass. Some concern one message or one subject and do
//! not pass, without the broker saying so: a publish without permission is merely never acknowledged. The difference
//! shows in what else the broker takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;

use super::bus::Publish;
use super::signed;
use crate::store::{OutboxEntry, PublishOutcome};

/// Entries of one subject that are tried alone at once: as many publishes wait for an answer together.
const TRIED_ALONE: usize = 16;

/// So often is an entry tried again once the broker takes others: it may have come back only just now, and answers get
/// lost.
const TRIED_AGAIN: usize = 3;

/// Remembers since when which subjects are not taken.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    stuck: BTreeMap<String, Timestamp>,
}

impl Refusals {
    /// Looks at how `entries` were published. When their next one has not been taken for `patience`, the rest is
    /// published around it; and if the broker takes that, what it still does not take counts as refused.
    pub(super) async fn judge(
        &mut self,
        mut published: PublishOutcome,
        entries: &[OutboxEntry],
        publish: &dyn Publish,
        (now, patience): (Timestamp, Duration),
    ) -> PublishOutcome {
        self.forget_what_got_through(&published, entries);
        let head = published.delayed.as_ref().map(|(seq, _)| *seq);
        let Some(head) = head.and_then(|seq| entries.iter().find(|entry| entry.seq == seq)) else {
            return published;
        };
        self.stuck.entry(head.subject.clone()).or_insert(now);
        // The clock may have been put back.
        self.stuck.values_mut().for_each(|since| *since = now.min(*since));
        let is_ripe = |since: Timestamp| now.duration_since(since) >= signed(patience);
        if self.stuck.get(&head.subject).is_some_and(|since| is_ripe(*since)) {
            let found = publish_around(&mut published, entries, publish, &self.stuck, is_ripe).await;
            self.stuck.extend(found.into_iter().map(|subject| (subject, now)));
            self.forget_what_got_through(&published, entries);
        }
        published
    }

    fn forget_what_got_through(&mut self, published: &PublishOutcome, entries: &[OutboxEntry]) {
        if self.stuck.is_empty() {
            return;
        }
        let done: BTreeSet<_> = published.done.iter().collect();
        for through in entries.iter().filter(|entry| done.contains(&entry.seq)) {
            self.stuck.remove(&through.subject);
        }
    }
}

/// Publishes what does not depend on the subjects that are `stuck`, and then those that have been so for long, each
/// entry alone. Answers which others are not taken either: the line stops at these.
async fn publish_around(
    published: &mut PublishOutcome,
    entries: &[OutboxEntry],
    publish: &dyn Publish,
    stuck: &BTreeMap<String, Timestamp>,
    is_ripe: impl Fn(Timestamp) -> bool,
) -> Vec<String> {
    let (taken, mut found) = (published.done.len(), BTreeMap::new());
    let mut alone = loop {
        let (others, alone) =
            apart(entries, published, |subject| stuck.contains_key(subject) || found.contains_key(subject));
        if others.is_empty() {
            break alone;
        }
        let around = publish.publish(&others).await;
        published.done.extend(around.done);
        published.refused.extend(around.refused);
        let next = around.delayed.and_then(|delayed| {
            others.into_iter().find(|entry| entry.seq == delayed.0).map(|entry| (entry.subject, delayed))
        });
        let Some((subject, delayed)) = next else { continue };
        found.insert(subject, delayed);
    };
    alone.retain(|entry| stuck.get(&entry.subject).is_some_and(|since| is_ripe(*since)));
    alone.truncate(TRIED_ALONE);
    let mut delayed = try_alone(&alone, publish, published).await;
    // One that can never be published says nothing of the others.
    if published.done.len() > taken {
        for _ in 0..TRIED_AGAIN {
            alone.retain(|entry| delayed.iter().any(|(seq, _)| *seq == entry.seq));
            delayed = try_alone(&alone, publish, published).await;
        }
        published.refused.append(&mut delayed);
        published.delayed = found.values().min_by_key(|(seq, _)| *seq).cloned();
    }
    found.into_keys().collect()
}

/// What may be published without the subjects that are away, and of what these keep from it the first of each saga:
/// what follows that in its saga, or one that was refused, waits as well.
fn apart(
    entries: &[OutboxEntry],
    published: &PublishOutcome,
    is_away: impl Fn(&str) -> bool,
) -> (Vec<OutboxEntry>, Vec<OutboxEntry>) {
    let done: BTreeSet<_> = published.done.iter().collect();
    let refused: BTreeSet<_> = published.refused.iter().map(|(seq, _)| seq).collect();
    let (mut others, mut alone, mut waiting) = (Vec::new(), Vec::new(), BTreeSet::new());
    for entry in entries.iter().filter(|entry| !done.contains(&entry.seq)) {
        if waiting.contains(&entry.saga) {
            continue;
        }
        if refused.contains(&entry.seq) {
            waiting.insert(entry.saga);
        } else if is_away(&entry.subject) {
            waiting.insert(entry.saga);
            alone.push(entry.clone());
        } else {
            others.push(entry.clone());
        }
    }
    (others, alone)
}

/// Publishes each alone, and answers which of them wait on, and why.
async fn try_alone(
    entries: &[OutboxEntry],
    publish: &dyn Publish,
    published: &mut PublishOutcome,
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
