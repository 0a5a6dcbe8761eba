//! Shell: publishes entries in windows of packs, through any sender.
//!
//! The facts of a pack that the broker does not accept follow one by one: only a single fact shows whether it is itself to
//! blame.

use std::collections::BTreeSet;

use tracing::debug;

use super::pack::packs_of;
use crate::store::{OutboxEntry, PublishOutcome};

/// Answer of the broker to a pack.
#[derive(Debug)]
pub enum PackAnswer {
    /// The broker has stored it, now or before.
    Accepted,
    /// The broker did not answer, which says nothing about the message.
    Unanswered(String),
    /// The broker answered with an error.
    NotAccepted {
        /// Error of the broker, in one line.
        reason: String,
        /// True if it will never accept this message. Unknown for several facts.
        is_permanent: bool,
    },
}

/// Sends packs, and waits for the answers of the broker.
pub trait PackSender: Sync {
    /// Pack that was sent and not answered.
    type Sent: Send;

    /// Sends the message of these entries. Others follow before its answer.
    fn send(&self, entries: &[&OutboxEntry]) -> impl Future<Output = Self::Sent> + Send;

    /// Waits for the answer of the broker to this pack.
    fn answer(&self, entries: &[&OutboxEntry], sent: Self::Sent) -> impl Future<Output = PackAnswer> + Send;
}

/// Publishes entries in packs of at most `max_facts`.
pub async fn publish_in_packs(
    entries: &[OutboxEntry],
    mut max_facts: usize,
    sender: &impl PackSender,
) -> PublishOutcome {
    let mut published = PublishOutcome::default();
    // Sagas with a rejected entry, whose later entries wait.
    let mut blocked = BTreeSet::new();
    let mut rest: Vec<&OutboxEntry> = entries.iter().collect();
    while !rest.is_empty() {
        let (packs, left) = packs_of(&rest, max_facts);
        let mut in_flight = Vec::with_capacity(packs.len());
        for pack in &packs {
            in_flight.push(sender.send(pack).await);
        }
        let mut again = Vec::new();
        for (pack, sent) in packs.into_iter().zip(in_flight) {
            let first = pack[0];
            match sender.answer(&pack, sent).await {
                PackAnswer::Accepted => published.done.extend(pack.iter().map(|entry| entry.seq)),
                PackAnswer::NotAccepted { reason, .. } if pack.len() > 1 => {
                    debug!(facts = pack.len(), "pack not accepted, publishing facts one by one: {reason}");
                    max_facts = 1;
                    again.extend(pack);
                }
                PackAnswer::NotAccepted { reason, is_permanent: true } => {
                    blocked.insert(first.saga);
                    published.rejected.push((first.seq, reason));
                }
                // Later entries would wait in vain as well. They count as not published, so that none overtakes this one.
                PackAnswer::NotAccepted { reason, .. } | PackAnswer::Unanswered(reason) => {
                    published.delayed = Some((first.seq, reason));
                    return published;
                }
            }
        }
        again.extend(left);
        again.retain(|entry| !blocked.contains(&entry.saga));
        rest = again;
    }
    published
}
