//! Pure: redaction of secrets: of JSON members by name, and of texts by pattern where no parser finds a member.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::dead_letter::DeadLettered;
use crate::retry::FailedAttempt;

/// Placeholder of a secret. An edit that contains it keeps the secret.
pub const BLANK: &str = "***";

/// Minimum length of a secret that is removed from texts. Shorter ones occur by chance.
const SHORTEST_IN_TEXT: usize = 4;

/// Minimum length of a text that may be base64 of something with a secret.
const SHORTEST_BASE64: usize = 16;

/// Secrets in the messages of a service, as redaction recognizes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Names of secret members, at any depth.
    pub members: &'static [&'static str],
    /// Prefixes of secret texts, such as `tok_`. They are found in any text, also where no member is.
    pub prefixes: &'static [&'static str],
}

/// Condition under which a name in a text is taken for the name of a secret member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// A quotation mark follows. In prose the name alone may be an ordinary word.
    Quoted,
    /// A colon or an equals sign follows, with or without quotation marks.
    Any,
}

impl Secrets {
    /// No secrets.
    pub const NONE: Self = Self { members: &[], prefixes: &[] };

    /// Redacts secret members, and secrets in texts, at any depth.
    pub fn blank(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    if self.is_secret(name) {
                        *member = Value::from(BLANK);
                    } else {
                        self.blank(member);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.blank(item)),
            Value::String(text) => {
                if let Cow::Owned(blanked) = self.blank_text(text) {
                    *text = blanked;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// True if members with this name are secret.
    #[must_use]
    pub fn is_secret(&self, name: &str) -> bool {
        self.members.contains(&name)
    }

    /// Restores redacted members and texts from the same place in `original`. Keeps secrets that were entered anew.
    /// A text of `original` that holds JSON counts as that JSON.
    ///
    /// # Errors
    /// Path of a placeholder without a secret in `original`.
    pub fn restore(&self, edited: &mut Value, original: &Value) -> Result<(), String> {
        if let Value::String(text) = original
            && (edited.is_object() || edited.is_array())
        {
            return json_in(text)
                .map_or(self.restore(edited, &Value::Null), |json| self.restore(edited, &json));
        }
        match edited {
            Value::Object(members) => {
                for (name, member) in members {
                    let before = original.get(name);
                    let put = match before {
                        _ if !self.is_secret(name) || member != BLANK => {
                            self.restore(member, before.unwrap_or(&Value::Null))
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
                self.restore(item, before).map_err(|below| below_of(&format!("[{index}]"), &below))
            }),
            Value::String(text) => self.restore_text(text, original),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn restore_text(&self, edited: &mut String, original: &Value) -> Result<(), String> {
        let Value::String(original) = original else { return Ok(()) };
        if *edited == self.blank_text(original) {
            edited.clone_from(original);
        } else if let (Some(mut changed), Some(before)) = (json_in(edited), json_in(original)) {
            self.restore(&mut changed, &before)?;
            *edited = changed.to_string();
        }
        Ok(())
    }

    /// Redacts secrets in JSON bytes, and by pattern in bytes that are no valid JSON, since unreadable payloads are
    /// shown too.
    #[must_use]
    pub fn blank_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let is_json = serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
        let (mut blanked, mut shown) = (Vec::with_capacity(bytes.len()), 0);
        for Span { from, to, shown_as } in self.spans(bytes) {
            blanked.extend_from_slice(&bytes[shown..from]);
            blanked.extend_from_slice(shown_as.as_bytes());
            shown = to;
        }
        blanked.extend_from_slice(&bytes[shown..]);
        match is_json {
            true => blanked,
            false => self.blank_pattern(&blanked, Names::Any).unwrap_or(blanked),
        }
    }

    /// Redacts secrets in a text: an error that quotes its input, a line of a log, JSON or base64 in a string.
    #[must_use]
    pub fn blank_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let blanked = match json_in(text) {
            Some(_) => Some(self.blank_bytes(text.as_bytes())),
            None => self.blank_base64(text).or_else(|| self.blank_pattern(text.as_bytes(), Names::Quoted)),
        };
        match blanked.and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(blanked) if blanked != text => Cow::Owned(blanked),
            Some(_) | None => Cow::Borrowed(text),
        }
    }

    /// Redacts the secrets of `payload`, and what looks like one, in a text that may quote it.
    #[must_use]
    pub fn blank_quoted(&self, text: &str, payload: &[u8]) -> String {
        let spans = self.spans(payload).into_iter();
        let quoted = spans.filter_map(|Span { from, to, .. }| text_of(&payload[from..to]));
        let text = quoted.fold(text.to_owned(), |text, secret| text.replace(&secret, BLANK));
        self.blank_text(&text).into_owned()
    }

    /// True if a text holds the name or the prefix of a secret.
    #[must_use]
    pub fn may_occur_in(&self, text: &str) -> bool {
        self.members.iter().chain(self.prefixes).any(|part| text.contains(part))
    }

    fn blank_base64(&self, text: &str) -> Option<Vec<u8>> {
        if text.len() < SHORTEST_BASE64 || !text.len().is_multiple_of(4) {
            return None;
        }
        let bytes = BASE64.decode(text).ok()?;
        let blanked = self.blank_bytes(&bytes);
        (blanked != bytes).then(|| BASE64.encode(blanked).into_bytes())
    }

    /// Redacts what looks like a secret; `None` if nothing does.
    fn blank_pattern(&self, bytes: &[u8], names: Names) -> Option<Vec<u8>> {
        let (mut blanked, mut shown, mut at) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            let Some((from, to)) = self.secret_at(bytes, at, names) else {
                at += 1;
                continue;
            };
            blanked.extend_from_slice(&bytes[shown..from]);
            blanked.extend_from_slice(BLANK.as_bytes());
            (shown, at) = (to, to);
        }
        blanked.extend_from_slice(&bytes[shown..]);
        (shown > 0).then_some(blanked)
    }

    /// Range of the secret whose prefix or name begins here.
    fn secret_at(&self, bytes: &[u8], at: usize, names: Names) -> Option<(usize, usize)> {
        let rest = &bytes[at..];
        let prefix = self.prefixes.iter().find(|prefix| rest.starts_with(prefix.as_bytes()));
        if let Some(prefix) = prefix.filter(|_| begins_word(bytes, at)) {
            let from = at + prefix.len();
            let to = from + bytes[from..].iter().take_while(|byte| is_of_word(**byte)).count();
            return (to > from).then_some((at, to));
        }
        let name = self.members.iter().find(|name| rest.starts_with(name.as_bytes()))?;
        value_after_name(bytes, at + name.len(), names)
    }

    /// Values of secret members, and strings that hold a secret, in the order of the bytes.
    fn spans(&self, bytes: &[u8]) -> Vec<Span> {
        let (mut spans, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            if bytes[at] != b'"' {
                at += 1;
                continue;
            }
            let (begin, end) = (at, end_of_text(bytes, at));
            at = end;
            // An escape may stand for any letter of a name.
            let Ok(text) = serde_json::from_slice::<String>(&bytes[begin..end]) else { continue };
            let colon = after_space(bytes, end);
            if bytes.get(colon) != Some(&b':') {
                if let Cow::Owned(blanked) = self.blank_text(&text) {
                    spans.push(Span { from: begin, to: end, shown_as: Value::from(blanked).to_string() });
                }
            } else if self.is_secret(&text) {
                let from = after_space(bytes, colon + 1);
                at = end_of_value(bytes, from);
                spans.push(Span { from, to: at, shown_as: format!("{BLANK:?}") });
            }
        }
        spans
    }
}

/// Bytes that are shown as something else.
struct Span {
    from: usize,
    to: usize,
    shown_as: String,
}

/// JSON object, list or string in a text.
fn json_in(text: &str) -> Option<Value> {
    text.trim_start().starts_with(['{', '[', '"']).then(|| serde_json::from_str(text).ok())?
}

fn below_of(name: &str, below: &str) -> String {
    match below.as_bytes().first() {
        None | Some(b'[') => format!("{name}{below}"),
        Some(_) => format!("{name}.{below}"),
    }
}

impl FailedAttempt {
    /// Removes the secrets of `payload`, and what looks like one, from the error chain: parsers quote what they do
    /// not expect.
    #[must_use]
    pub fn redacted(&self, payload: &[u8], secrets: Secrets) -> Self {
        let chain = self.chain.iter().map(|link| secrets.blank_quoted(link, payload)).collect();
        Self { chain, ..self.clone() }
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
    pub fn redacted(mut self, secrets: Secrets) -> Self {
        let blank_text = |text: &mut String| *text = secrets.blank_text(text).into_owned();
        let blank_payload = |payload: &mut String| {
            if let Ok(bytes) = BASE64.decode(&payload) {
                *payload = BASE64.encode(secrets.blank_bytes(&bytes));
            }
        };
        blank_payload(&mut self.payload_base64);
        self.original.iter_mut().for_each(|original| blank_payload(&mut original.payload_base64));
        blank_text(&mut self.reason);
        self.error_chain.iter_mut().for_each(blank_text);
        self.message_type.iter_mut().for_each(blank_text);
        let headers = self.delivery.iter_mut().flat_map(|delivery| &mut delivery.headers);
        headers.for_each(|(_, value)| blank_text(value));
        self
    }
}

/// True if no word goes on here. An escaped letter, as in `\n`, is no part of a word.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    match at.checked_sub(1).map(|before| bytes[before]) {
        None => true,
        Some(byte) if is_of_word(byte) => at >= 2 && bytes[at - 2] == b'\\',
        Some(_) => true,
    }
}

const fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Value that follows the name of a member, in JSON of any nesting (`\"token\":\"…`), or after an equals sign.
fn value_after_name(bytes: &[u8], name_ends: usize, names: Names) -> Option<(usize, usize)> {
    let at = after(bytes, name_ends, |byte| matches!(byte, b'\\' | b'"' | b'\''));
    if names == Names::Quoted && at == name_ends {
        return None;
    }
    let at = after_space(bytes, at);
    if !matches!(bytes.get(at), Some(b':' | b'=')) {
        return None;
    }
    let at = after_space(bytes, at + 1);
    let quote = after(bytes, at, |byte| byte == b'\\');
    let from = quote + 1;
    let to = match *bytes.get(quote)? {
        mark @ (b'"' | b'\'') => end_of_quoted(bytes, from, mark, quote - at),
        b'{' | b'[' => return Some((quote, end_of_value(bytes, quote))),
        _ => {
            let ends = |byte: u8| matches!(byte, b',' | b'}' | b']' | b'&' | b';' | b'\\' | b'"' | b'\'');
            let to = after(bytes, quote, |byte| !ends(byte) && !byte.is_ascii_whitespace());
            return (to > quote).then_some((quote, to));
        }
    };
    (to > from).then_some((from, to))
}

/// End of a quoted text: its mark, escaped at most as often as the mark at its begin.
fn end_of_quoted(bytes: &[u8], from: usize, mark: u8, escapes: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        let end = after(bytes, at, |byte| byte == b'\\');
        match bytes.get(end) {
            Some(byte) if *byte == mark && end - at <= escapes => return at,
            _ => at = end + 1,
        }
    }
    bytes.len()
}

fn after(bytes: &[u8], from: usize, skips: impl Fn(u8) -> bool) -> usize {
    from + bytes[from.min(bytes.len())..].iter().take_while(|byte| skips(**byte)).count()
}

fn after_space(bytes: &[u8], from: usize) -> usize {
    after(bytes, from, |byte| byte.is_ascii_whitespace())
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
