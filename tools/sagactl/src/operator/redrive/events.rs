//! Pure: server-sent events (WHATWG HTML, 9.2.6), as far as admin uses them: what stands behind `data:`.

use anyhow::bail;

/// An event of admin is about a kilobyte.
const LONGEST: usize = 1 << 20;

/// Takes a stream apart.
#[derive(Debug, Default)]
pub struct Events {
    rest: Vec<u8>,
    data: String,
}

impl Events {
    /// The data of all events that are complete with these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> anyhow::Result<Vec<String>> {
        self.rest.extend_from_slice(bytes);
        let mut complete = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                if !self.data.is_empty() {
                    complete.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        if self.rest.len() + self.data.len() > LONGEST {
            bail!("an event of more than {LONGEST} bytes");
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        ": hello\n\nevent: progress\ndata: {\"a\":\ndata: 1}\n\r\nid: 7\ndata:x\n\n:\n\ndata: half";

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        for size in 1..=STREAM.len() {
            let mut events = Events::default();
            let cut = STREAM.as_bytes().chunks(size);
            let heard: Vec<_> = cut.flat_map(|bytes| events.push(bytes).expect("events")).collect();
            assert_eq!(heard, ["{\"a\":\n1}", "x"], "cut into {size}");
        }
    }

    #[test]
    fn a_stream_without_end_is_given_up() {
        let mut events = Events::default();
        assert!((0..2_000).any(|_| events.push(&[b'x'; 1_000]).is_err()));
    }
}
