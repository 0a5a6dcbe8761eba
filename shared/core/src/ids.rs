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

/// The id of the `ordinal`-th message that `producer` sends because of `cause`.
///
/// The producer belongs in: the stock release and the refund that one cancellation causes
/// would otherwise share an id, and one of them would be swallowed as a duplicate.
#[must_use]
pub fn message_id(producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    derived(&["message", producer, &cause.to_string(), &ordinal.to_string()])
}

/// The id of the `ordinal`-th task that `producer` sets itself because of `cause`; also the
/// `Idempotency-Key` of the call that the task makes.
#[must_use]
pub fn task_id(producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    derived(&["task", producer, &cause.to_string(), &ordinal.to_string()])
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
        let cause = Uuid::from_u128(7);
        assert_eq!(message_id("inventory", cause, 0), message_id("inventory", cause, 0));
        assert_ne!(message_id("inventory", cause, 0), message_id("payment", cause, 0));
        assert_ne!(message_id("inventory", cause, 0), message_id("inventory", cause, 1));
        assert_ne!(message_id("payment", cause, 0), task_id("payment", cause, 0));
    }
}
