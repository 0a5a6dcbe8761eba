//! Shell: parsers of command-line arguments. Relative times depend on the clock.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
pub use cli::args::duration;
use jiff::{SignedDuration, Timestamp};
use saga_core::ids::EXAMPLE;
use serde_json::Value;
use uuid::Uuid;

/// Maximum length in the header `X-Operator`.
const MAX_NAME_LENGTH: usize = 100;

/// Name of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorName {
    pub name: String,
    /// True if it was given, and is not just that of the user.
    pub is_given: bool,
}

/// Determines the operator name: the option, else `$SAGA_OPERATOR`, else `$USER` if that is a valid name. With `None`, admin writes
/// "anonymous" or rejects the request.
pub fn operator_of(
    named: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<OperatorName>, String> {
    let given = |name: String| OperatorName { name, is_given: true };
    if let Some(named) = named {
        return Ok(Some(given(named.to_owned())));
    }
    match variable("SAGA_OPERATOR").filter(|name| !name.is_empty()) {
        Some(name) => {
            operator_name(&name).map(given).map(Some).map_err(|why| format!("SAGA_OPERATOR: {why}"))
        }
        None => {
            let user = variable("USER").and_then(|user| operator_name(&user).ok());
            Ok(user.map(|name| OperatorName { name, is_given: false }))
        }
    }
}

/// Parses an operator name.
pub fn operator_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if (1..=MAX_NAME_LENGTH).contains(&name.len()) && is_visible {
        Ok(name.to_owned())
    } else {
        Err(format!("an operator name has 1 to {MAX_NAME_LENGTH} visible ASCII characters"))
    }
}

/// Parses a reason.
pub fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a reason needs words".to_owned()),
        reason => Ok(reason.to_owned()),
    }
}

/// Parses a path. Rejects JSON, which is meant for another option.
pub fn folder(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("the name of the folder is empty".to_owned()),
        json if json.starts_with('{') => {
            Err("--data is the folder of the local system; the data of a message are --new-data".to_owned())
        }
        path => Ok(path.into()),
    }
}

/// Parses one of these names, in any case, to upper case.
pub fn one_of(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(names).map(|name| name.to_uppercase())
}

pub fn id(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| format!("ids look like {EXAMPLE}"))
}

pub fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))
}

/// Parses a delay to milliseconds.
/// Parses a duration in whole seconds, at most a day.
pub fn seconds(text: &str) -> Result<u32, String> {
    u32::try_from(duration(text)?.as_secs()).map_err(|_| "at most 24h".to_owned())
}

pub fn delay_ms(text: &str) -> Result<u64, String> {
    let delay = duration(text)?.as_millis();
    match u64::try_from(delay) {
        Ok(delay @ 1..=600_000) => Ok(delay),
        _ => Err("from 1ms to 10m".to_owned()),
    }
}

/// Parses a time: `10m` is ten minutes ago.
pub fn past_time(text: &str) -> Result<Timestamp, String> {
    let invalid = || "write it like 10m (ago) or 2026-01-31T12:00:00Z".to_owned();
    let Ok(ago) = duration(text) else { return text.parse().map_err(|_| invalid()) };
    let ago = SignedDuration::try_from(ago).map_err(|_| invalid())?;
    Timestamp::now().checked_sub(ago).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_is_the_option_else_the_variable_else_the_user() {
        let of = |named: Option<&str>, set: &[(&str, &str)]| {
            let find =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            operator_of(named, find)
        };
        let both = [("SAGA_OPERATOR", "ada"), ("USER", "root")];
        let name = |name: &str, is_given| Ok(Some(OperatorName { name: name.to_owned(), is_given }));
        assert_eq!(of(Some("eve"), &both), name("eve", true));
        assert_eq!(of(None, &both), name("ada", true));
        assert_eq!(of(None, &both[1..]), name("root", false));
        assert_eq!(of(None, &[("USER", "jörg")]), Ok(None));
        assert!(of(None, &[("SAGA_OPERATOR", "a\tb")]).is_err());
        assert!(operator_name(&"x".repeat(101)).is_err());
    }

    #[test]
    fn past_time_is_relative_or_absolute() {
        let ago = past_time("10m").expect("a time").duration_until(Timestamp::now()).as_secs();
        assert!((600..610).contains(&ago), "{ago}");
        assert_eq!(past_time("2026-01-31T12:00:00Z").expect("a time").as_second(), 1_769_860_800);
        assert!(past_time("yesterday").is_err() && past_time("9999999y").is_err());
    }

    #[test]
    fn delay_is_between_one_millisecond_and_ten_minutes() {
        assert_eq!(delay_ms("1s 500ms"), Ok(1_500));
        assert!(delay_ms("0s").is_err() && delay_ms("11m").is_err() && delay_ms("5").is_err());
    }
}
