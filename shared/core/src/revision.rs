//! Pure: revisions, by which whoever is asked for something again and again knows what is newest.

use jiff::Timestamp;

/// The revision of what is asked now: higher than the `last` that is known of, and than those that a lost database knew
/// of. So it goes by the clock, in microseconds since 1970; and should that be put back, or two be of one moment, on from
/// the last.
#[must_use]
pub fn after(last: u64, now: Timestamp) -> u64 {
    u64::try_from(now.as_microsecond()).unwrap_or_default().max(last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_the_time_unless_that_is_no_newer() {
        let noon = Timestamp::from_microsecond(1_000).expect("a time");
        assert_eq!([after(0, noon), after(1_000, noon), after(5_000, noon)], [1_000, 1_001, 5_001]);
        let before_1970 = Timestamp::from_microsecond(-1).expect("a time");
        assert_eq!(after(0, before_1970), 1);
    }
}
