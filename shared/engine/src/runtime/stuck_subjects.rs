//! Shell: tells entries that the broker rejects without saying so from a broker that accepts nothing.
//!
//! Most publish errors are the broker's own, and pass. Some concern one message or one subject and never pass: a publish
//! without permission, for instance, is simply not acknowledged. The difference shows in whether the broker accepts others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;

use super::bus::Publish;
use super::signed;
use crate::store::{OutboxEntry, PublishOutcome};

/// Maximum number of entries that are published alone at the same time.
const MAX_ALONE: usize = 16;

/// Attempts at a lone entry once the broker accepts others. The broker may only just be back, and acknowledgements get lost.
const ATTEMPTS_ALONE: usize = 3;

/// Subjects that the broker does not accept, each with the time since when.
#[derive(Debug, Default)]
pub(super) struct StuckSubjects {
    stuck: BTreeMap<String, Timestamp>,
}

impl StuckSubjects {
    /// Examines the result of publishing `entries`. If the head of the outbox has been stuck for `patience`, publishes the
    /// other entries around it. If the broker accepts those, entries that it still does not accept count as rejected.
    pub(super) async fn isolate(
        &mut self,
        mut published: PublishOutcome,
        entries: &[OutboxEntry],
        publish: &dyn Publish,
        (now, patience): (Timestamp, Duration),
    ) -> PublishOutcome {
        self.forget_accepted(&published, entries);
        let head = published.delayed.as_ref().map(|(seq, _)| *seq);
        let Some(head) = head.and_then(|seq| entries.iter().find(|entry| entry.seq == seq)) else {
            return published;
        };
        self.stuck.entry(head.subject.clone()).or_insert(now);
        // The clock may have been set back.
        self.stuck.values_mut().for_each(|since| *since = now.min(*since));
        let is_overdue = |since: Timestamp| now.duration_since(since) >= signed(patience);
        if self.stuck.get(&head.subject).is_some_and(|since| is_overdue(*since)) {
            let found = publish_around(&mut published, entries, publish, &self.stuck, is_overdue).await;
            self.stuck.extend(found.into_iter().map(|subject| (subject, now)));
            self.forget_accepted(&published, entries);
        }
        published
    }

    fn forget_accepted(&mut self, published: &PublishOutcome, entries: &[OutboxEntry]) {
        if self.stuck.is_empty() {
            return;
        }
        let done: BTreeSet<_> = published.done.iter().collect();
        for accepted in entries.iter().filter(|entry| done.contains(&entry.seq)) {
            self.stuck.remove(&accepted.subject);
        }
    }
}

/// Publishes the entries that do not depend on `stuck` subjects, then each overdue one alone. Returns further subjects
/// that the broker does not accept.
async fn publish_around(
    published: &mut PublishOutcome,
    entries: &[OutboxEntry],
    publish: &dyn Publish,
    stuck: &BTreeMap<String, Timestamp>,
    is_overdue: impl Fn(Timestamp) -> bool,
) -> Vec<String> {
    let (accepted, mut found) = (published.done.len(), BTreeMap::new());
    let mut alone = loop {
        let (others, alone) = split_stuck(entries, published, |subject| {
            stuck.contains_key(subject) || found.contains_key(subject)
        });
        if others.is_empty() {
            break alone;
        }
        let around = publish.publish(&others).await;
        published.done.extend(around.done);
        published.rejected.extend(around.rejected);
        let next = around.delayed.and_then(|delayed| {
            others.into_iter().find(|entry| entry.seq == delayed.0).map(|entry| (entry.subject, delayed))
        });
        let Some((subject, delayed)) = next else { continue };
        found.insert(subject, delayed);
    };
    alone.retain(|entry| stuck.get(&entry.subject).is_some_and(|since| is_overdue(*since)));
    alone.truncate(MAX_ALONE);
    let mut delayed = publish_alone(&alone, publish, published).await;
    // Without another accepted entry, the broker may be the cause.
    if published.done.len() > accepted {
        for _ in 0..ATTEMPTS_ALONE {
            alone.retain(|entry| delayed.iter().any(|(seq, _)| *seq == entry.seq));
            delayed = publish_alone(&alone, publish, published).await;
        }
        published.rejected.append(&mut delayed);
        published.delayed = found.values().min_by_key(|(seq, _)| *seq).cloned();
    }
    found.into_keys().collect()
}

/// Splits unpublished entries into those that may be published now, and the first stuck entry of each saga. Later
/// entries of a saga with a stuck or rejected entry are in neither: they wait.
fn split_stuck(
    entries: &[OutboxEntry],
    published: &PublishOutcome,
    is_stuck: impl Fn(&str) -> bool,
) -> (Vec<OutboxEntry>, Vec<OutboxEntry>) {
    let done: BTreeSet<_> = published.done.iter().collect();
    let rejected: BTreeSet<_> = published.rejected.iter().map(|(seq, _)| seq).collect();
    let (mut others, mut alone, mut waiting) = (Vec::new(), Vec::new(), BTreeSet::new());
    for entry in entries.iter().filter(|entry| !done.contains(&entry.seq)) {
        if waiting.contains(&entry.saga) {
            continue;
        }
        if rejected.contains(&entry.seq) {
            waiting.insert(entry.saga);
        } else if is_stuck(&entry.subject) {
            waiting.insert(entry.saga);
            alone.push(entry.clone());
        } else {
            others.push(entry.clone());
        }
    }
    (others, alone)
}

/// Publishes each entry alone. Returns those that are not accepted, with the reason.
async fn publish_alone(
    entries: &[OutboxEntry],
    publish: &dyn Publish,
    published: &mut PublishOutcome,
) -> Vec<(i64, String)> {
    let attempts = entries.iter().map(|entry| publish.publish(std::slice::from_ref(entry)));
    let mut delayed = Vec::new();
    for result in join_all(attempts).await {
        published.done.extend(result.done);
        published.rejected.extend(result.rejected);
        delayed.extend(result.delayed);
    }
    delayed
}
