//! Pure: attributes of spans, with values of the types that the semantic conventions set.

use std::borrow::Cow;

use uuid::Uuid;

/// Value of an attribute, of the type that its convention sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Whole number.
    Number(i64),
    /// Text.
    Text(Cow<'static, str>),
}

/// Attribute of a span: name and value.
pub type Attribute = (&'static str, AttributeValue);

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for AttributeValue {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Uuid> for AttributeValue {
    fn from(id: Uuid) -> Self {
        Self::Text(id.to_string().into())
    }
}

/// Value of `http.request.method` for methods that are not known.
pub const OTHER_METHOD: &str = "_OTHER";

/// Method in the name of a span.
pub(super) fn named(method: &'static str) -> &'static str {
    if method == OTHER_METHOD { "HTTP" } else { method }
}
