//! Pure: redaction of secret JSON members, by name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::dead_letter::DeadLettered;
use crate::retry::FailedAttempt;

/// Placeholder of a secret. An edit that contains it keeps the secret.
pub const BLANK: &str = "***";

/// Minimum length of a secret that is removed from texts. Shorter ones occur by chance.
const SHORTEST_IN_TEXT: usize = 4;

/// Redacts members with one of these names, at any depth.
pub fn blank(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if names.contains(&name.as_str()) {
                    *member = Value::from(BLANK);
                } else {
                    blank(member, names);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| blank(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Restores redacted members from the same place in `original`. Keeps secrets that were entered anew.
///
/// # Errors
/// Path of a placeholder without a secret in `original`.
pub fn restore_secrets(edited: &mut Value, original: &Value, names: &[&str]) -> Result<(), String> {
    match edited {
        Value::Object(members) => {
            for (name, member) in members {
                let before = original.get(name);
                let put = match before {
                    _ if !names.contains(&name.as_str()) || member != BLANK => {
                        restore_secrets(member, before.unwrap_or(&Value::Null), names)
                    }
                    Some(before) => {
                        *member = before.clone();
                        Ok(())
                    }
                    None => Err(String::new()),
                };
                put.map_err(|below| below_of(name, &below))?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().enumerate().try_for_each(|(index, item)| {
            let before = original.get(index).unwrap_or(&Value::Null);
            restore_secrets(item, before, names).map_err(|below| below_of(&format!("[{index}]"), &below))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn below_of(name: &str, below: &str) -> String {
    match below.as_bytes().first() {
        None | Some(b'[') => format!("{name}{below}"),
        Some(_) => format!("{name}.{below}"),
    }
}

/// Redacts members with one of these names in JSON bytes. Also works on bytes that are no valid JSON, since
/// unreadable payloads are shown too.
#[must_use]
pub fn blank_bytes(bytes: &[u8], names: &[&str]) -> Vec<u8> {
    let (mut blanked, mut shown) = (Vec::with_capacity(bytes.len()), 0);
    for (from, to) in secret_spans(bytes, names) {
        blanked.extend_from_slice(&bytes[shown..from]);
        blanked.extend_from_slice(format!("{BLANK:?}").as_bytes());
        shown = to;
    }
    blanked.extend_from_slice(&bytes[shown..]);
    blanked
}

impl FailedAttempt {
    /// Removes the secrets of `payload` from the error chain: parsers quote what they do not expect.
    #[must_use]
    pub fn redacted(&self, payload: &[u8], names: &[&str]) -> Self {
        let spans = secret_spans(payload, names).into_iter();
        let texts: Vec<_> = spans.filter_map(|(from, to)| text_of(&payload[from..to])).collect();
        let redacted =
            |link: &String| texts.iter().fold(link.clone(), |link, text| link.replace(text, BLANK));
        Self { chain: self.chain.iter().map(redacted).collect(), ..self.clone() }
    }
}

/// Secret as texts quote it.
fn text_of(value: &[u8]) -> Option<String> {
    let literal = String::from_utf8_lossy(value);
    let text = serde_json::from_slice(value).unwrap_or_else(|_| literal.trim_matches('"').to_owned());
    (text.len() >= SHORTEST_IN_TEXT).then_some(text)
}

impl DeadLettered {
    /// Redacts payloads and texts of the dead letter; everything else stays byte for byte.
    #[must_use]
    pub fn redacted(mut self, names: &[&str]) -> Self {
        let blank = |payload: &mut String| {
            if let Ok(bytes) = BASE64.decode(&payload) {
                *payload = BASE64.encode(blank_bytes(&bytes, names));
            }
        };
        blank(&mut self.payload_base64);
        self.original.iter_mut().for_each(|original| blank(&mut original.payload_base64));
        self
    }
}

/// Byte ranges of the values of these members.
fn secret_spans(bytes: &[u8], names: &[&str]) -> Vec<(usize, usize)> {
    let (mut spans, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if bytes[at] != b'"' {
            at += 1;
            continue;
        }
        let name_ends = end_of_text(bytes, at);
        // An escape may stand for any letter of a name.
        let name = serde_json::from_slice::<String>(&bytes[at..name_ends]).unwrap_or_default();
        at = name_ends;
        let colon = after_space(bytes, at);
        if names.contains(&name.as_str()) && bytes.get(colon) == Some(&b':') {
            let from = after_space(bytes, colon + 1);
            at = end_of_value(bytes, from);
            spans.push((from, at));
        }
    }
    spans
}

fn after_space(bytes: &[u8], from: usize) -> usize {
    from + bytes[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// End of the string that begins here with a quotation mark; the end of the bytes if it has none.
fn end_of_text(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// End of the value that begins here.
fn end_of_value(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = end_of_text(bytes, at),
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b',' | b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => (at, depth) = (at + 1, depth - 1),
            _ => at += 1,
        }
        if depth == 0 && matches!(bytes.get(at.wrapping_sub(1)), Some(b'"' | b'}' | b']')) {
            return at;
        }
    }
    bytes.len()
}
