//! Pure: trace context, as it is stored and sent (W3C Trace Context, version 00).
//!
//! Vendors' `tracestate` is dropped on arrival: nothing here adds to it or reads it.

use std::fmt;

use uuid::Uuid;

/// Header that carries a [`TraceContext`], over HTTP and at the broker.
pub const TRACEPARENT: &str = "traceparent";

/// Position in a trace: the current span and the sampling decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// Id of the trace; never 0.
    pub trace_id: u128,
    /// Id of the parent span for whatever comes next; never 0.
    pub span_id: u64,
    /// True if spans of this trace are recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Length of the binary form in bytes.
    pub const LENGTH: usize = 25;

    /// Trace id of a saga whose caller sent no trace context. Equals the saga's id, so that it can be derived from
    /// the order.
    #[must_use]
    pub const fn trace_of(saga: Uuid) -> u128 {
        saga.as_u128()
    }

    /// Sets the sampling decision to recorded.
    #[must_use]
    pub const fn recorded(self) -> Self {
        Self { is_sampled: true, ..self }
    }

    /// Context of the publish of a message, sent with it. Consumers continue from it.
    ///
    /// The span id derives from the message id: a repeated publish sends the same context, and the relay knows it before
    /// its span has ended.
    #[must_use]
    pub fn of_publish(self, message_id: Uuid) -> Self {
        let (_, lower) = message_id.as_u64_pair();
        Self { span_id: lower.max(1), ..self }
    }

    /// Parses a `traceparent`; `None` if it is invalid.
    ///
    /// Of newer versions only the known members are read, as the standard requires.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace_id, span_id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let has_more = parts.next().is_some();
        let is_read = hex(version, 2)? != 0xff && !(version == "00" && has_more);
        let (trace_id, span_id) = (hex(trace_id, 32)?, u64::try_from(hex(span_id, 16)?).ok()?);
        let is_sampled = hex(flags, 2)? & 1 == 1;
        (is_read && trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, is_sampled })
    }

    /// Trace id, to be displayed in hexadecimal.
    #[must_use]
    pub const fn written_id(&self) -> TraceId {
        TraceId(self.trace_id)
    }

    /// Binary form for the store.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&self.trace_id.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.span_id.to_be_bytes());
        bytes[24] = u8::from(self.is_sampled);
        bytes
    }

    /// Parses the binary form; `None` if it is invalid.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace_id, rest) = bytes.split_first_chunk::<16>()?;
        let (span_id, flags) = rest.split_first_chunk::<8>()?;
        let &[flags] = flags else { return None };
        let (trace_id, span_id) = (u128::from_be_bytes(*trace_id), u64::from_be_bytes(*span_id));
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, is_sampled: flags == 1 })
    }
}

/// Trace id, displayed as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 32];
        fill_in_hex(&mut text, self.0);
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

/// Formats the context as a `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        let mut text = *b"00-TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT-SSSSSSSSSSSSSSSS-00";
        fill_in_hex(&mut text[3..35], *trace_id);
        fill_in_hex(&mut text[36..52], u128::from(*span_id));
        fill_in_hex(&mut text[53..], u128::from(*is_sampled));
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

/// Parses lower-case hexadecimal of a fixed length. In the path of every message: `from_str_radix` takes twice as
/// long.
fn hex(text: &str, digits: usize) -> Option<u128> {
    if text.len() != digits {
        return None;
    }
    text.bytes().try_fold(0, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Fills `text` with the last digits of a number. In the path of every message: `{:032x}` takes four times as long.
fn fill_in_hex(text: &mut [u8], number: u128) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = number;
    for digit in text.iter_mut().rev() {
        *digit = HEX[usize::from(rest as u8 & 0xf)];
        rest >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_round_trips() {
        let context = TraceContext::parse(EXAMPLE).expect("the standard's own example");
        assert_eq!(context.to_string(), EXAMPLE);
        assert_eq!(context.written_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.is_sampled);
        assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context));
        let newer = EXAMPLE.replacen("00", "01", 1) + "-what-comes-later";
        assert_eq!(TraceContext::parse(&newer), Some(context));
        let unsampled =
            TraceContext::parse(&EXAMPLE.replace("-01", "-00")).expect("one that is not recorded");
        assert_eq!(TraceContext::from_bytes(&unsampled.to_bytes()), Some(unsampled));
        assert!(!unsampled.is_sampled);
    }

    #[test]
    fn invalid_traceparent_is_none() {
        for wrong in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(TraceContext::from_bytes(&[0; 25]), None);
        assert_eq!(TraceContext::from_bytes(&[1; 24]), None);
    }
}
