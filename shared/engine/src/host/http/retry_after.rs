//! Shell: answers of others that ask for a repetition: `Retry-After` (RFC 9110 §10.2.3), and client errors that may pass.

use std::time::Duration;

use axum::http::header::{DATE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use saga_core::retry::MAX_RETRY_AFTER;

/// Formats of an HTTP date (RFC 9110 §5.6.7) beside the preferred one.
const OBSOLETE: [&str; 2] = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// True for a client error that may pass although the request stays the same.
#[must_use]
pub fn is_passing(status: StatusCode) -> bool {
    [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS].contains(&status)
}

/// Time in which the sender of a 429 or 503 asks for no other request, for [`MAX_RETRY_AFTER`] at most. `None` if it does not
/// ask, or not in a readable way.
///
/// A date is compared with the `Date` of the answer, since clocks differ; with `now` if there is none.
#[must_use]
pub fn retry_after(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    if ![StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status) {
        return None;
    }
    let asked = text(headers, &RETRY_AFTER)?;
    let time = if !asked.is_empty() && asked.bytes().all(|digit| digit.is_ascii_digit()) {
        // More seconds than can be counted are a long time.
        Duration::from_secs(asked.parse().unwrap_or(u64::MAX))
    } else {
        let sent = text(headers, &DATE).and_then(http_date).unwrap_or(now);
        Duration::try_from(http_date(asked)?.duration_since(sent)).ok()?
    };
    Some(time.min(MAX_RETRY_AFTER)).filter(|time| !time.is_zero())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn http_date(text: &str) -> Option<Timestamp> {
    let obsolete = |format: &&str| {
        let time = strtime::parse(format, text).ok()?.to_datetime().ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok().or_else(|| OBSOLETE.iter().find_map(obsolete))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(784_111_767, 0);

    fn asked(status: u16, headers: &[(HeaderName, &str)]) -> Option<u64> {
        let value = |text: &str| HeaderValue::from_str(text).expect("a value");
        let headers = headers.iter().map(|(name, text)| (name.clone(), value(text))).collect();
        let status = StatusCode::from_u16(status).expect("a status");
        retry_after(status, &headers, NOW).map(|time| time.as_secs())
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_as_any_http_date_and_bounded() {
        for (text, seconds) in [
            ("30", Some(30)),
            (" 7 ", Some(7)),
            ("3600", Some(60)),
            ("99999999999999999999999999", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(10)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(10)),
            ("Sun Nov  6 08:49:37 1994", Some(10)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", Some(60)),
            // In the past, now, or not readable.
            ("Sat, 05 Nov 1994 08:49:37 GMT", None),
            ("0", None),
            ("", None),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
        ] {
            for status in [429, 503] {
                assert_eq!(asked(status, &[(RETRY_AFTER, text)]), seconds, "{text:?}");
            }
            assert_eq!(asked(500, &[(RETRY_AFTER, text)]), None, "{text:?}");
        }
        assert_eq!(asked(429, &[]), None);
    }

    /// The clock of the sender may be an hour off.
    #[test]
    fn date_is_compared_with_the_date_of_the_answer() {
        let headers =
            [(DATE, "Sun, 06 Nov 1994 09:49:32 GMT"), (RETRY_AFTER, "Sun, 06 Nov 1994 09:49:37 GMT")];
        assert_eq!(asked(503, &headers), Some(5));
    }
}
