//! Pure: what people write on the command line, and how it is read.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
pub use cli::args::duration;
use saga_core::ids::EXAMPLE;
use serde_json::Value;
use uuid::Uuid;

/// As long as the header that carries it may be.
const LONGEST_NAME: usize = 100;

/// Who does this: the one who is named, else `$SAGA_OPERATOR`, else `$USER` if that can be a name, else nobody:
/// then it is admin that says "anonymous", or refuses.
pub fn operator_of(
    named: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, String> {
    if let Some(named) = named {
        return Ok(Some(named.to_owned()));
    }
    match variable("SAGA_OPERATOR").filter(|name| !name.is_empty()) {
        Some(name) => operator_name(&name).map(Some).map_err(|why| format!("SAGA_OPERATOR: {why}")),
        None => Ok(variable("USER").and_then(|user| operator_name(&user).ok())),
    }
}

/// Reads who somebody is, as the audit log will have it.
pub fn operator_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let is_visible = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if (1..=LONGEST_NAME).contains(&name.len()) && is_visible {
        Ok(name.to_owned())
    } else {
        Err(format!("an operator's name is 1 to {LONGEST_NAME} visible ASCII characters"))
    }
}

/// Reads a path. Whoever means a message's data is told how to say it.
pub fn folder(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("a folder has a name".to_owned()),
        json if json.starts_with('{') => {
            Err("this is the folder of the local system; a message's data is --new-data".to_owned())
        }
        path => Ok(path.into()),
    }
}

/// Reads one of these names, which are in capitals, in whatever case it is written.
pub fn one_of(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(names).map(|name| name.to_uppercase())
}

/// Reads an id.
pub fn id(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| format!("ids look like {EXAMPLE}"))
}

/// Reads what a message says.
pub fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))
}

/// Reads a delay, in milliseconds.
pub fn delay_ms(text: &str) -> Result<u64, String> {
    let delay = duration(text)?.as_millis();
    match u64::try_from(delay) {
        Ok(delay @ 1..=600_000) => Ok(delay),
        _ => Err("from 1ms to 10m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_who_is_named_or_whose_shell_it_is() {
        let of = |named: Option<&str>, set: &[(&str, &str)]| {
            let find =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            operator_of(named, find)
        };
        let both = [("SAGA_OPERATOR", "ada"), ("USER", "root")];
        assert_eq!(of(Some("eve"), &both), Ok(Some("eve".to_owned())));
        assert_eq!(of(None, &both), Ok(Some("ada".to_owned())));
        assert_eq!(of(None, &both[1..]), Ok(Some("root".to_owned())));
        assert_eq!(of(None, &[("USER", "jörg")]), Ok(None));
        assert!(of(None, &[("SAGA_OPERATOR", "a\tb")]).is_err());
        assert!(operator_name(&"x".repeat(101)).is_err());
    }

    #[test]
    fn a_delay_is_from_a_millisecond_to_ten_minutes() {
        assert_eq!(delay_ms("1s 500ms"), Ok(1_500));
        assert!(delay_ms("0s").is_err() && delay_ms("11m").is_err() && delay_ms("5").is_err());
    }
}
