//! Pure: times and durations as text for people.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Formats a date and time in UTC.
pub fn timestamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Formats a time of day in UTC.
pub fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S").to_string()
}

/// Formats the distance of a time: `3 min ago`, `in 40 s`; beyond a day the time itself.
pub fn distance(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - at.as_second();
    match seconds {
        0 => "just now".to_owned(),
        1..DAY => format!("{} ago", coarse(seconds)),
        _ if -DAY < seconds && seconds < 0 => format!("in {}", coarse(-seconds)),
        _ => timestamp(at),
    }
}

/// Formats a duration in one unit.
fn coarse(seconds: i64) -> String {
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR.. => format!("{} h", seconds / HOUR),
    }
}

/// Formats an offset from another time: `+12 ms`, `+40 s`, `+3 min 20 s`.
pub fn offset(ms: i64) -> String {
    format!("+{}", duration(ms))
}

/// Formats a duration: `12 ms`, `1.2 s`, `3 min 20 s`.
pub fn duration(ms: i64) -> String {
    let (seconds, tenths) = (ms / 1_000, ms % 1_000 / 100);
    match seconds {
        ..1 => format!("{ms} ms"),
        1..10 if tenths > 0 => format!("{seconds}.{tenths} s"),
        1..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min {} s", seconds / MINUTE, seconds % MINUTE),
        HOUR.. => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_has_one_unit_and_beyond_a_day_is_a_date() {
        let now: Timestamp = "2026-11-20T14:18:36Z".parse().expect("a time");
        let at = |seconds: i64| Timestamp::from_second(now.as_second() + seconds).expect("a time");
        for (seconds, shown) in [
            (0, "just now"),
            (-1, "1 s ago"),
            (-59, "59 s ago"),
            (-60, "1 min ago"),
            (-3_599, "59 min ago"),
            (-7_200, "2 h ago"),
            (40, "in 40 s"),
            (7_300, "in 2 h"),
            (-DAY, "2026-11-19 14:18:36Z"),
            (DAY, "2026-11-21 14:18:36Z"),
        ] {
            assert_eq!(distance(at(seconds), now), shown, "{seconds} s");
        }
        assert_eq!(clock(now), "14:18:36");
    }

    #[test]
    fn duration_uses_the_largest_fitting_units() {
        for (ms, shown) in [
            (0, "+0 ms"),
            (999, "+999 ms"),
            (1_000, "+1 s"),
            (1_250, "+1.2 s"),
            (40_314, "+40 s"),
            (200_000, "+3 min 20 s"),
            (3_660_000, "+1 h 1 min"),
        ] {
            assert_eq!(offset(ms), shown);
        }
    }
}
