//! Shell: a writer of lines that redacts secrets, since errors and panics may quote what they could not read.

use std::io::{self, Write};

use saga_core::secrets::Secrets;

/// Writer whose every write is a whole line.
pub(super) struct RedactingWriter<W> {
    pub(super) secrets: Secrets,
    pub(super) to: W,
}

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match str::from_utf8(line) {
            Ok(text) if self.secrets.may_occur_in(text) => {
                self.to.write_all(self.secrets.blank_text(text).as_bytes())?;
            }
            Ok(_) | Err(_) => self.to.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_without_secrets() -> io::Result<()> {
        let secrets = Secrets { members: &["token"], prefixes: &["tok_"] };
        let mut writer = RedactingWriter { secrets, to: Vec::new() };
        writer.write_all(b"panicked: row holds \"{\\\"token\\\":\\\"4711\\\"}\"\n")?;
        writer.write_all(b"{\"message\":\"invalid type: string \\\"tok_1\\\"\",\"step\":\"a\"}\n")?;
        writer.write_all(b"a token is missing\n")?;
        let written = String::from_utf8_lossy(&writer.to);
        let lines: Vec<_> = written.lines().collect();
        assert_eq!(lines[0], r#"panicked: row holds "{\"token\":\"***\"}""#);
        assert_eq!(lines[1], r#"{"message":"invalid type: string \"***\"","step":"a"}"#);
        assert_eq!(lines[2], "a token is missing");
        Ok(())
    }
}
