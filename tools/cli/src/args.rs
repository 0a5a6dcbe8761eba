//! Pure: argument parsers.

use std::time::Duration;

/// Parses `250ms`, `30s`, `2m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime_serde::re::humantime::parse_duration(text)
        .map_err(|_| "write it like 250ms, 30s or 2m".to_owned())
}
