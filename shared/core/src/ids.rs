//! Pure: derived ids. A re-run repeats them, so that broker deduplication and inboxes agree.

use jiff::Timestamp;
use uuid::Uuid;

/// Namespace of all derived ids: a random UUID, fixed for ever.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f1b_7d0a_55c1_4f8e_9a52_0c6f_5b1e_77d3);

/// Example of an id, for messages about invalid ones.
pub const EXAMPLE: &str = "01a205e9-30d8-75e0-9c6b-6219dcadb9d4";

/// UUIDv5 (RFC 9562 §5.5) of `parts`, joined by `/`.
#[must_use]
pub fn derived(parts: &[&str]) -> Uuid {
    Uuid::new_v5(&NAMESPACE, parts.join("/").as_bytes())
}

/// Id of the `ordinal`-th message of `saga` that `producer` publishes because of `cause`.
///
/// Includes the producer: the stock release and the refund of one cancellation would otherwise share an id, and one
/// of them would be dropped as a duplicate.
#[must_use]
pub fn message_id(saga: Uuid, producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    beside(saga, &derived_of_cause("message", producer, cause, ordinal))
}

/// Id of the `ordinal`-th task of `saga` that `producer` creates because of `cause`. A
/// re-run repeats it.
#[must_use]
pub fn task_id(saga: Uuid, producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    beside(saga, &derived_of_cause("task", producer, cause, ordinal))
}

/// Derived id of `parts` with the time prefix of `saga`, which places it beside the saga in every index.
#[must_use]
pub fn derived_beside(saga: Uuid, parts: &[&str]) -> Uuid {
    beside(saga, &derived(parts))
}

fn derived_of_cause(what: &str, producer: &str, cause: Uuid, ordinal: usize) -> Uuid {
    let mut buffer = Uuid::encode_buffer();
    derived(&[what, producer, cause.as_hyphenated().encode_lower(&mut buffer), &ordinal.to_string()])
}

/// UUIDv8 (RFC 9562 §5.8): the first 48 bits of `saga`, the time of a UUIDv7, and the rest from `hash`. Index
/// entries of one saga lie together, where random ids would change a page each.
fn beside(saga: Uuid, hash: &Uuid) -> Uuid {
    let mut bytes = *hash.as_bytes();
    bytes[..6].copy_from_slice(&saga.as_bytes()[..6]);
    Uuid::new_v8(bytes)
}

/// Time at which a saga began, from the first 48 bits of its id, a UUIDv7. An id without a time gives a time long past.
#[must_use]
pub fn began_at(saga: Uuid) -> Timestamp {
    let [a, b, c, d, e, f, ..] = *saga.as_bytes();
    let milliseconds = i64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MIN)
}

/// Lowest id of sagas that began at `time` or later; `None` for a time before 1970.
#[must_use]
pub fn first_at(time: Timestamp) -> Option<Uuid> {
    u128::try_from(time.as_millisecond()).ok().map(|milliseconds| Uuid::from_u128(milliseconds << 80))
}

/// Id of an undecodable message, derived from its stream position.
#[must_use]
pub fn of_stream_position(stream: &str, sequence: u64) -> Uuid {
    derived(&["position", stream, &sequence.to_string()])
}

/// Id of an undecodable fact in a pack: `part` tells it apart from the others at this stream position.
#[must_use]
pub fn of_stream_part(stream: &str, sequence: u64, part: &str) -> Uuid {
    derived(&["position", stream, &sequence.to_string(), part])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rerun_repeats_ids_and_producers_never_share_ids() {
        let (saga, cause) = (Uuid::from_u128(6), Uuid::from_u128(7));
        let message = |producer, ordinal| message_id(saga, producer, cause, ordinal);
        assert_eq!(message("inventory", 0), message("inventory", 0));
        assert_ne!(message("inventory", 0), message("payment", 0));
        assert_ne!(message("inventory", 0), message("inventory", 1));
        assert_ne!(message("payment", 0), task_id(saga, "payment", cause, 0));
        assert_ne!(derived_beside(saga, &["a"]), derived_beside(saga, &["b"]));
        assert_ne!(of_stream_part("ORDER", 7, "1"), of_stream_part("ORDER", 7, "2"));
    }

    #[test]
    fn saga_began_at_the_time_in_its_id() {
        let at = Timestamp::constant(1_800_000_000, 123_000_000);
        let first = first_at(at).expect("after 1970");
        assert_eq!([first, Uuid::from_u128(first.as_u128() | 7)].map(began_at), [at; 2]);
        assert_eq!(first_at(began_at(Uuid::nil())), Some(Uuid::nil()));
        assert_eq!(first_at(Timestamp::MIN), None);
        assert_eq!(began_at(Uuid::from_u128(7)), Timestamp::UNIX_EPOCH);
        assert_eq!(began_at(Uuid::max()), Timestamp::MIN);
    }

    #[test]
    fn ids_of_a_saga_start_with_its_time() {
        let (earlier, later) = (Uuid::from_u128(1 << 80), Uuid::from_u128(2 << 80));
        let of = |saga| (0..100).map(move |ordinal| message_id(saga, "inventory", Uuid::nil(), ordinal));
        assert!(of(earlier).max() < of(later).min());
        assert!(of(earlier).all(|id| id.get_version_num() == 8));
    }
}
