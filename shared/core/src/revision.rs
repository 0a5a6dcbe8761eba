//! Pure: revisions, which order repeated requests.

use jiff::Timestamp;

/// Next revision after `last`: the time in microseconds since 1970, or one more than `last` if the clock was put
/// back.
///
/// Based on the clock, so that it is also higher than the revisions of a lost database.
#[must_use]
pub fn after(last: u64, now: Timestamp) -> u64 {
    u64::try_from(now.as_microsecond()).unwrap_or_default().max(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_revision_is_time_or_one_above_last() {
        let noon = Timestamp::from_microsecond(1_000).expect("a time");
        assert_eq!([after(0, noon), after(1_000, noon), after(5_000, noon)], [1_000, 1_001, 5_001]);
        let before_1970 = Timestamp::from_microsecond(-1).expect("a time");
        assert_eq!(after(0, before_1970), 1);
    }
}
