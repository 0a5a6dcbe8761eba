//! Shell: end of each request of a connection, and requests whose end is ambiguous.
//!
//! Hyper ignores `Content-Length` beside `Transfer-Encoding`. Behind a proxy that does not, a client could hide a request in
//! the body of another (RFC 9112 §6.3). Such a request is rejected, and its connection is closed.

use axum::http::StatusCode;

/// Longest line that is examined. Hyper rejects longer heads.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Position within the requests of a connection.
#[derive(Debug, Default)]
pub(super) struct RequestFraming {
    position: Position,
    /// Start of a line that has not ended yet.
    line: Vec<u8>,
    head: Head,
}

#[derive(Debug, Default, Clone, Copy)]
enum Position {
    #[default]
    Head,
    /// Within a body, with the number of bytes that are left.
    Body(u64),
    /// No further request follows: the answer to a chunked request closes the connection.
    Last,
}

/// Framing headers of a request.
#[derive(Debug, Default)]
struct Head {
    has_begun: bool,
    length: Option<u64>,
    codings: Vec<String>,
}

/// Request that is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadFraming {
    pub(super) status: StatusCode,
    pub(super) detail: &'static str,
    /// Index of the byte that ends the head.
    pub(super) end: usize,
}

impl RequestFraming {
    /// Follows the next bytes of the connection. An error ends it.
    pub(super) fn on_bytes(&mut self, mut bytes: &[u8]) -> Result<(), BadFraming> {
        let all = bytes.len();
        while !bytes.is_empty() {
            match self.position {
                Position::Last => return Ok(()),
                Position::Body(left) => {
                    let read = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    bytes = &bytes[read..];
                    let left = left - read as u64;
                    self.position = if left == 0 { Position::Head } else { Position::Body(left) };
                }
                Position::Head => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let read = end.map_or(bytes.len(), |end| end + 1);
                    self.line.extend_from_slice(&bytes[..read]);
                    bytes = &bytes[read..];
                    if end.is_some() {
                        let end = all - bytes.len() - 1;
                        self.on_line().map_err(|(status, detail)| BadFraming { status, detail, end })?;
                    } else if self.line.len() > MAX_LINE_BYTES {
                        self.position = Position::Last;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the current line of the head.
    fn on_line(&mut self) -> Result<(), (StatusCode, &'static str)> {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii_end();
        if !line.is_empty() {
            self.head.has_begun = true;
            self.head.on_header(line);
        } else if self.head.has_begun {
            self.position = std::mem::take(&mut self.head).body()?;
        }
        Ok(())
    }
}

impl Head {
    fn on_header(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            // Hyper rejects other lengths.
            let length = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
            self.length = Some(length.unwrap_or(u64::MAX));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let codings = String::from_utf8_lossy(value).to_ascii_lowercase();
            self.codings.extend(codings.split(',').map(|coding| coding.trim().to_owned()));
        }
    }

    /// Position after the head.
    fn body(self) -> Result<Position, (StatusCode, &'static str)> {
        let codings: Vec<&str> = self.codings.iter().map(String::as_str).collect();
        match (codings.as_slice(), self.length) {
            ([], length) => Ok(length.filter(|length| *length > 0).map_or(Position::Head, Position::Body)),
            (_, Some(_)) => {
                Err((StatusCode::BAD_REQUEST, "the request has both Content-Length and Transfer-Encoding"))
            }
            (["chunked"], None) => Ok(Position::Last),
            (codings, None) if codings.iter().all(|coding| ["chunked", ""].contains(coding)) => {
                Err((StatusCode::BAD_REQUEST, "Transfer-Encoding is not chunked once"))
            }
            (_, None) => {
                Err((StatusCode::NOT_IMPLEMENTED, "no Transfer-Encoding other than chunked is supported"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status of the rejection, and the position of the byte, however the bytes are split.
    fn rejected(text: &str) -> Option<(u16, usize)> {
        let all = RequestFraming::default().on_bytes(text.as_bytes()).err();
        for size in 1..text.len() {
            let (mut framing, mut begin, mut found) = (RequestFraming::default(), 0, None);
            for part in text.as_bytes().chunks(size) {
                let bad = framing.on_bytes(part).err();
                found = found.or(bad.map(|bad| BadFraming { end: bad.end + begin, ..bad }));
                begin += part.len();
                if found.is_some() {
                    break;
                }
            }
            assert_eq!(found, all, "{text:?} in parts of {size}");
        }
        all.map(|bad| (bad.status.as_u16(), bad.end))
    }

    #[test]
    fn ambiguous_request_is_found_after_others() {
        let first =
            "POST / HTTP/1.1\r\ncontent-length: 39\r\n\r\nTransfer-Encoding: x\nContent-Length: 3\n\n";
        let second = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nCONTENT-length: 3\r\n\r\n";
        assert_eq!(rejected(first), None);
        let both = format!("{first}\r\n{first}{second}");
        assert_eq!(rejected(&both), Some((400, both.len() - 1)));
    }

    #[test]
    fn codings_other_than_chunked_are_rejected() {
        let status =
            |headers: &str| rejected(&format!("POST / HTTP/1.1\n{headers}\n\n")).map(|(status, _)| status);
        assert_eq!(status("Transfer-Encoding: Chunked"), None);
        assert_eq!(status("Transfer-Encoding: gzip"), Some(501));
        assert_eq!(status("Transfer-Encoding: gzip, chunked"), Some(501));
        assert_eq!(status("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked"), Some(501));
        assert_eq!(status("Transfer-Encoding: chunked, chunked"), Some(400));
        assert_eq!(status("Transfer-Encoding:"), Some(400));
        assert_eq!(status("Content-Length: 4\nTransfer-Encoding: chunked"), Some(400));
        assert_eq!(status("Content-Length: x\nTransfer-Encoding: gzip"), Some(400));
    }

    #[test]
    fn bytes_after_a_chunked_head_are_no_request() {
        let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(
            rejected(&format!("{chunked}0\r\n\r\nPOST / HTTP/1.1\r\ntransfer-encoding: x\r\n\r\n")),
            None
        );
    }
}
