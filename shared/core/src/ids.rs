//! Pure: ids that a re-run repeats, so that the broker's deduplication and every inbox agree.

use uuid::Uuid;

/// Namespace of every id this system derives (a random UUID, fixed for ever).
const NAMESPACE: Uuid = Uuid::from_u128(0x6f1b_7d0a_55c1_4f8e_9a52_0c6f_5b1e_77d3);

/// What ids look like, for whoever writes one that is none.
pub const EXAMPLE: &str = "01a205e9-30d8-75e0-9c6b-6219dcadb9d4";

/// UUIDv5 (RFC 9562 §5.5) of `parts`, joined by `/`.
#[must_use]
pub fn derived(parts: &[&str]) -> Uuid {
    Uuid::new_v5(&NAMESPACE, parts.join("/").as_bytes())
}

/// The id of the `ordinal`-th message of `saga` that `producer` sends because of `cause`.
///
/// The producer belongs in: the stock release and the refund that one cancellation causes
/// would otherwise share an id, and one of them would be swallowed as a duplicate.
#[must_use]
pub fn message_id(saga: Uuid, producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    beside(saga, &derived_of_cause("message", producer, cause, ordinal))
}

/// The id of the `ordinal`-th task of `saga` that `producer` sets itself because of `cause`; also the
/// `Idempotency-Key` of the call that the task makes.
#[must_use]
pub fn task_id(saga: Uuid, producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    beside(saga, &derived_of_cause("task", producer, cause, ordinal))
}

/// UUIDv8 of `parts` beside those of `saga` in every index: what [`derived`] is, but for where it lies.
#[must_use]
pub fn derived_beside(saga: Uuid, parts: &[&str]) -> Uuid {
    beside(saga, &derived(parts))
}

fn derived_of_cause(what: &str, producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    let mut buffer = Uuid::encode_buffer();
    derived(&[what, producer, cause.as_hyphenated().encode_lower(&mut buffer), &ordinal.to_string()])
}

/// UUIDv8 (RFC 9562 §5.8): the first 48 bits of `saga`, which are its time in milliseconds when it is a UUIDv7, and
/// then those of `hash`. What happens together lies together in every index: random ids would change a page each.
fn beside(saga: Uuid, hash: &Uuid) -> Uuid {
    let mut bytes = *hash.as_bytes();
    bytes[..6].copy_from_slice(&saga.as_bytes()[..6]);
    Uuid::new_v8(bytes)
}

/// The id of an undecodable message: it has none of its own, but its place in the stream is unique.
#[must_use]
pub fn of_stream_position(stream: &str, sequence: u64) -> Uuid {
    derived(&["position", stream, &sequence.to_string()])
}

/// The same of one of several facts that share a place there: `part` tells which of them it is.
#[must_use]
pub fn of_stream_part(stream: &str, sequence: u64, part: &str) -> Uuid {
    derived(&["position", stream, &sequence.to_string(), part])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rerun_repeats_its_ids_and_no_two_producers_share_one() {
        let (saga, cause) = (Uuid::from_u128(6), Uuid::from_u128(7));
        let message = |producer, ordinal| message_id(saga, producer, cause, ordinal);
        assert_eq!(message("inventory", 0), message("inventory", 0));
        assert_ne!(message("inventory", 0), message("payment", 0));
        assert_ne!(message("inventory", 0), message("inventory", 1));
        assert_ne!(message("payment", 0), task_id(saga, "payment", cause, 0));
    }

    #[test]
    fn ids_of_a_saga_begin_with_its_time() {
        let (earlier, later) = (Uuid::from_u128(1 << 80), Uuid::from_u128(2 << 80));
        let of = |saga| (0..100).map(move |ordinal| message_id(saga, "inventory", Uuid::nil(), ordinal));
        assert!(of(earlier).max() < of(later).min());
        assert!(of(earlier).all(|id| id.get_version_num() == 8));
    }
}
