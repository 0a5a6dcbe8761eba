//! Shell: publishing many facts in few messages: those of one subject travel together, and each message is on the
//! disk when the broker acknowledges it, as any is.

use std::collections::{BTreeMap, BTreeSet};

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use saga_core::retry::error_chain;
use saga_core::trace::TRACEPARENT;
use tracing::debug;
use uuid::Uuid;

use super::connection::NatsBus;
use super::marking;
use super::pack::{self, BYTES_MAX};
use crate::store::OutboxEntry;

/// Messages sent before the first acknowledgement is awaited: an outage leaves at most these unclear.
const WINDOW: usize = 32;

/// What became of entries: nothing has arrived that is behind something of its saga that has not.
#[derive(Default)]
pub(super) struct Arrived {
    /// Those on the broker's disk.
    pub(super) entries: BTreeSet<i64>,
    /// The first one that the broker does not answer for, and why: the others would wait for it in vain, too.
    pub(super) delayed: Option<(i64, String)>,
}

/// Publishes entries until something is not taken.
pub(super) async fn publish(bus: &NatsBus, entries: &[OutboxEntry], mark: Option<&str>) -> Arrived {
    let mut arrived = Arrived::default();
    let mut rest = entries;
    while !rest.is_empty() {
        let (packs, left) = packs_of(rest, bus.settings.pack);
        rest = left;
        let mut acks = Vec::with_capacity(packs.len());
        for entries in &packs {
            let Some(first) = entries.first() else { continue };
            let sending = bus.jetstream.send_publish(first.subject.clone(), message(entries, mark));
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
                Err(error) if is_silence(&error) => {
                    let first = entries.first().map(|entry| (entry.seq, error_chain(&error)));
                    return Arrived { delayed: first, ..arrived };
                }
                Err(error) => {
                    debug!(facts = entries.len(), "not taken together, going single: {error}");
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

/// Whether nobody answered: that says nothing of the message.
fn is_silence(error: &PublishError) -> bool {
    matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe)
}

/// The packs that may be on their way together, and what comes after them: each saga is in one of them alone, so that
/// nothing of it can overtake what is before it.
fn packs_of(entries: &[OutboxEntry], facts_max: usize) -> (Vec<Vec<&OutboxEntry>>, &[OutboxEntry]) {
    let mut packs: Vec<Vec<&OutboxEntry>> = Vec::new();
    // The last pack of each subject, and its size.
    let mut open: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut pack_of: BTreeMap<Uuid, usize> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let size = entry.payload.len();
        let has_room = |(pack, bytes): &(usize, usize)| {
            bytes + size <= BYTES_MAX && packs.get(*pack).is_some_and(|pack| pack.len() < facts_max)
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

/// A fact alone is a message like any other.
fn message(entries: &[&OutboxEntry], mark: Option<&str>) -> PublishMessage {
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
    match mark {
        Some(mark) => message.header(marking::HEADER, mark),
        None => message,
    }
}

/// Of every id in it: a pack that bore the id of another would be swallowed as its repetition.
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

    fn shape(entries: &[OutboxEntry], facts_max: usize) -> (Vec<Vec<i64>>, usize) {
        let (packs, left) = packs_of(entries, facts_max);
        (packs.iter().map(|pack| pack.iter().map(|entry| entry.seq).collect()).collect(), left.len())
    }

    #[test]
    fn facts_of_one_subject_travel_together() {
        let entries = [entry(1, 1, "a", 9), entry(2, 2, "b", 9), entry(3, 3, "a", 9), entry(4, 4, "b", 9)];
        assert_eq!(shape(&entries, 10), (vec![vec![1, 3], vec![2, 4]], 0));
    }

    #[test]
    fn nothing_of_a_saga_is_beside_what_is_before_it() {
        let entries = [
            entry(1, 7, "a", 9),
            entry(2, 7, "a", 9),
            entry(3, 8, "b", 9),
            entry(4, 7, "b", 9),
            entry(5, 9, "a", 9),
        ];
        assert_eq!(shape(&entries, 10), (vec![vec![1, 2], vec![3]], 2));
        // The same subject, but the first pack is full.
        assert_eq!(shape(&entries[..2], 1), (vec![vec![1]], 1));
    }

    #[test]
    fn a_pack_and_what_is_on_its_way_have_bounds() {
        let large: Vec<_> =
            (1..=4).map(|seq| entry(seq, seq.unsigned_abs().into(), "a", BYTES_MAX / 2)).collect();
        assert_eq!(shape(&large, 10), (vec![vec![1, 2], vec![3, 4]], 0));
        let many: Vec<_> = (1..=40).map(|seq| entry(seq, seq.unsigned_abs().into(), "a", 9)).collect();
        let (packs, left) = shape(&many, 1);
        assert_eq!((packs.len(), left), (WINDOW, 40 - WINDOW));
    }

    #[test]
    fn two_packs_have_one_id_only_if_they_say_the_same() {
        let [one, two, three] = [1, 2, 3].map(|seq| entry(seq, 1, "a", 9));
        assert_eq!(id_of(&[&one, &two]), id_of(&[&one, &two]));
        assert_ne!(id_of(&[&one, &two]), id_of(&[&one, &three]));
        assert_ne!(id_of(&[&one, &two]), id_of(&[&one, &two, &three]));
    }
}
