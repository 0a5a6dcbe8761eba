//! Log lines of a test.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// Lines logged on this thread, as JSON.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub fn listen() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let to = lines.clone();
        let lines_of = move || to.clone();
        let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(Level::DEBUG);
        let guard = tracing::subscriber::set_default(subscriber.with_writer(lines_of).finish());
        (lines, guard)
    }

    /// Lines since the last call.
    pub fn all(&self) -> Vec<Value> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock())).expect("text");
        text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect()
    }

    /// Number of times that these words were logged.
    pub fn count(&self, words: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock()).matches(words).count()
    }

    pub fn has(&self, words: &str) -> bool {
        self.count(words) > 0
    }
}
