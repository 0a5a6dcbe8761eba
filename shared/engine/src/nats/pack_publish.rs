//! Shell: publishes many facts in few messages: facts of one subject share a pack.

use std::collections::{BTreeMap, BTreeSet};

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use saga_core::retry::error_chain;
use saga_core::trace::TRACEPARENT;
use tracing::debug;
use uuid::Uuid;

use super::connection::NatsBus;
use super::pack::{self, MAX_BYTES};
use super::position_header;
use crate::store::OutboxEntry;

/// Messages sent before the first acknowledgement is awaited. After an outage, only these are in doubt.
const WINDOW: usize = 32;

/// Result of publishing entries. No entry has arrived before an earlier one of its saga.
#[derive(Default)]
pub(super) struct Arrived {
    pub(super) entries: BTreeSet<i64>,
    /// First entry without an acknowledgement in time, with the error. Later ones would wait in vain as well.
    pub(super) delayed: Option<(i64, String)>,
}

/// Publishes entries until one is not accepted.
pub(super) async fn publish(bus: &NatsBus, entries: &[OutboxEntry], position: Option<&str>) -> Arrived {
    let mut arrived = Arrived::default();
    let mut rest = entries;
    while !rest.is_empty() {
        let (packs, left) = packs_of(rest, bus.settings.max_pack);
        rest = left;
        let mut acks = Vec::with_capacity(packs.len());
        for entries in &packs {
            let Some(first) = entries.first() else { continue };
            let sending = bus.jetstream.send_publish(first.subject.clone(), message(entries, position));
            acks.push((entries, sending.await));
        }
        let mut is_whole = true;
        for (entries, ack) in acks {
            let answer = match ack {
                Ok(ack) => ack.await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(_) => arrived.entries.extend(entries.iter().map(|entry| entry.seq)),
                Err(error) if is_unanswered(&error) => {
                    let first = entries.first().map(|entry| (entry.seq, error_chain(&error)));
                    return Arrived { delayed: first, ..arrived };
                }
                Err(error) => {
                    debug!(
                        facts = entries.len(),
                        "pack not accepted, publishing its facts one by one: {error}"
                    );
                    is_whole = false;
                }
            }
        }
        if !is_whole {
            break;
        }
    }
    arrived
}

/// True if the broker did not answer, which says nothing about the message.
fn is_unanswered(error: &PublishError) -> bool {
    matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe)
}

/// Forms the packs that may be in flight together. Returns them and the remaining entries. Each saga is in only one of the
/// packs, so that its entries cannot overtake each other.
fn packs_of(entries: &[OutboxEntry], max_facts: usize) -> (Vec<Vec<&OutboxEntry>>, &[OutboxEntry]) {
    let mut packs: Vec<Vec<&OutboxEntry>> = Vec::new();
    // Last pack of each subject, and its size in bytes.
    let mut open: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut pack_of: BTreeMap<Uuid, usize> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let size = entry.payload.len();
        let has_room = |(pack, bytes): &(usize, usize)| {
            bytes + size <= MAX_BYTES && packs.get(*pack).is_some_and(|pack| pack.len() < max_facts)
        };
        let fitting = open.get(entry.subject.as_str()).copied().filter(has_room);
        let (pack, bytes) = fitting.unwrap_or((packs.len(), 0));
        let is_elsewhere = pack_of.get(&entry.saga).is_some_and(|other| *other != pack);
        if is_elsewhere || pack == WINDOW {
            return (packs, &entries[index..]);
        }
        if pack == packs.len() {
            packs.push(vec![]);
        }
        packs[pack].push(entry);
        open.insert(&entry.subject, (pack, bytes + size));
        pack_of.insert(entry.saga, pack);
    }
    (packs, &[])
}

/// Builds the message of a pack. A single fact is an ordinary message.
fn message(entries: &[&OutboxEntry], position: Option<&str>) -> PublishMessage {
    let message = match entries {
        [entry] => {
            let message =
                PublishMessage::build().payload(entry.payload.clone()).message_id(entry.id.to_string());
            match entry.trace {
                Some(trace) => message.header(TRACEPARENT, trace.to_string().as_str()),
                None => message,
            }
        }
        several => PublishMessage::build()
            .payload(pack::pack(several))
            .message_id(id_of(several).to_string())
            .header(pack::HEADER, several.len().to_string().as_str()),
    };
    match position {
        Some(position) => message.header(position_header::HEADER, position),
        None => message,
    }
}

/// Derives the message id of a pack from all of its entries. With the id of another pack, the broker would drop it as a
/// duplicate.
fn id_of(entries: &[&OutboxEntry]) -> Uuid {
    let ids: Vec<u8> = entries.iter().flat_map(|entry| *entry.id.as_bytes()).collect();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, &ids)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entry(seq: i64, saga: u128, subject: &str, length: usize) -> OutboxEntry {
        let (id, saga) = (Uuid::from_u128(seq.unsigned_abs().into()), Uuid::from_u128(saga));
        OutboxEntry {
            trace: None,
            seq,
            id,
            saga,
            subject: subject.to_owned(),
            payload: Bytes::from(vec![b'x'; length]),
        }
    }

    fn shape(entries: &[OutboxEntry], max_facts: usize) -> (Vec<Vec<i64>>, usize) {
        let (packs, left) = packs_of(entries, max_facts);
        (packs.iter().map(|pack| pack.iter().map(|entry| entry.seq).collect()).collect(), left.len())
    }

    #[test]
    fn facts_of_one_subject_share_a_pack() {
        let entries = [entry(1, 1, "a", 9), entry(2, 2, "b", 9), entry(3, 3, "a", 9), entry(4, 4, "b", 9)];
        assert_eq!(shape(&entries, 10), (vec![vec![1, 3], vec![2, 4]], 0));
    }

    #[test]
    fn entries_of_one_saga_are_never_in_two_packs_in_flight() {
        let entries = [
            entry(1, 7, "a", 9),
            entry(2, 7, "a", 9),
            entry(3, 8, "b", 9),
            entry(4, 7, "b", 9),
            entry(5, 9, "a", 9),
        ];
        assert_eq!(shape(&entries, 10), (vec![vec![1, 2], vec![3]], 2));
        // Same subject, but the first pack is full.
        assert_eq!(shape(&entries[..2], 1), (vec![vec![1]], 1));
    }

    #[test]
    fn packs_are_bounded_in_size_and_number() {
        let large: Vec<_> =
            (1..=4).map(|seq| entry(seq, seq.unsigned_abs().into(), "a", MAX_BYTES / 2)).collect();
        assert_eq!(shape(&large, 10), (vec![vec![1, 2], vec![3, 4]], 0));
        let many: Vec<_> = (1..=40).map(|seq| entry(seq, seq.unsigned_abs().into(), "a", 9)).collect();
        let (packs, left) = shape(&many, 1);
        assert_eq!((packs.len(), left), (WINDOW, 40 - WINDOW));
    }

    #[test]
    fn pack_id_depends_on_all_its_entries() {
        let [one, two, three] = [1, 2, 3].map(|seq| entry(seq, 1, "a", 9));
        assert_eq!(id_of(&[&one, &two]), id_of(&[&one, &two]));
        assert_ne!(id_of(&[&one, &two]), id_of(&[&one, &three]));
        assert_ne!(id_of(&[&one, &two]), id_of(&[&one, &two, &three]));
    }
}
