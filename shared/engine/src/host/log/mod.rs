//! Shell: the log, written by a thread of its own so that nobody waits for it.
//!
//! Lines wait in a bounded queue. When the disk or the reader cannot keep up, lines are dropped and counted, and the
//! service goes on. A normal stop writes the queued lines first.

mod redacting;
mod rotating;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use saga_core::secrets::Secrets;
use serde::{Deserialize, Serialize};
use tracing::{Dispatch, error, warn};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::redacting::RedactingWriter;
use self::rotating::RotatingFile;
use super::metrics::{Metrics, names};

/// Capacity of the queue in lines: some seconds of the busiest service, and a few megabytes.
const QUEUE_LINES: usize = 10_000;
/// Size of the write buffer.
const WRITTEN_BYTES: usize = 64 * 1024;
/// Log target of the NATS client.
const NATS_CLIENT: &str = "async_nats";
/// Interval at which dropped lines are counted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Level, format and file of the log (section `log`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Levels, in the syntax of `tracing_subscriber::EnvFilter`. Lines about inputs have the target
    /// [`saga::step`](crate::runtime::log_line::TARGET). The NATS client logs only if the filter names it
    /// (`async_nats`).
    pub filter: String,
    /// Format of the lines: `json` for machines, `text` for people.
    pub format: LogFormat,
    /// Log file; standard error by default.
    pub file: Option<PathBuf>,
    /// Maximum size of the file in bytes. A full file is rotated.
    pub max_bytes: u64,
    /// Number of rotated files to keep, as `FILE.1` (the newest), `FILE.2` and so on.
    pub keep: usize,
}

/// Format of the lines of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// JSON, one object per line.
    Json,
    /// Plain text: level, message and fields on one line, without colours.
    Text,
}

impl Default for LogSettings {
    fn default() -> Self {
        let max_bytes = 8 * 1024 * 1024;
        Self { filter: "info".to_owned(), format: LogFormat::Text, file: None, max_bytes, keep: 3 }
    }
}

/// Running log. Dropping it writes the queued lines, within a second.
pub(super) struct Log {
    dropped: ErrorCounter,
    _writing: WorkerGuard,
}

/// Starts the log of this process, which also logs panics. Its lines hold none of `secrets`.
///
/// # Errors
/// When the filter is invalid, or the file cannot be written.
pub(super) fn start(settings: &LogSettings, secrets: Secrets) -> anyhow::Result<Log> {
    let to: Box<dyn Write + Send> = match &settings.file {
        Some(path) => {
            let file = RotatingFile::open(path.clone(), settings.max_bytes, settings.keep);
            Box::new(file.with_context(|| format!("log.file {}", path.display()))?)
        }
        None => Box::new(io::stderr()),
    };
    // The thread flushes the buffer when no line waits.
    let to = BufWriter::with_capacity(WRITTEN_BYTES, to);
    let to: Box<dyn Write + Send> = Box::new(RedactingWriter { secrets, to });
    let (subscriber, log) = writing(settings, to)?;
    subscriber.try_init()?;
    std::panic::set_hook(Box::new(|panic| {
        let (message, thread) = (panic.payload_as_str().unwrap_or("no message"), std::thread::current());
        let at = panic.location().map(tracing::field::display);
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        error!(thread = thread.name(), at, backtrace, "panicked: {message}");
    }));
    Ok(log)
}

fn writing(settings: &LogSettings, to: Box<dyn Write + Send>) -> anyhow::Result<(Dispatch, Log)> {
    let filter = filter(&settings.filter)
        .map_err(|error| anyhow!("settings: log.filter is {:?}: {error}", settings.filter))?;
    let queue = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE_LINES);
    let (queue, guard) = queue.thread_name("log").finish(to);
    let log = Log { dropped: queue.error_counter(), _writing: guard };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(queue);
    let subscriber = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).into(),
        LogFormat::Text => lines.with_ansi(false).into(),
    };
    Ok((subscriber, log))
}

/// Parses the filter. Silences the NATS client unless the filter names it: it logs at every try what the connection
/// logs once.
fn filter(levels: &str) -> anyhow::Result<EnvFilter> {
    // A word that is no level would pass for a target, and silence everything else.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let names_level = |directive: &str| is_level(directive.rsplit('=').next().unwrap_or_default().trim());
    ensure!(levels.split(',').any(names_level), "it names no level (error, warn, info, debug, trace or off)");
    let filter = EnvFilter::try_new(levels)?;
    Ok(match levels.contains(NATS_CLIENT) {
        true => filter,
        false => filter.add_directive(format!("{NATS_CLIENT}=off").parse()?),
    })
}

impl Log {
    /// Returns the counter of dropped lines.
    pub(super) fn dropped(&self) -> DroppedLines {
        DroppedLines(self.dropped.clone())
    }
}

/// Lines that were dropped because the queue was full.
pub(super) struct DroppedLines(ErrorCounter);

impl DroppedLines {
    /// Counts dropped lines in the metrics, and logs them once there is room, until dropped.
    pub(super) async fn report(self, metrics: Metrics) {
        let mut reported = 0;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let new = self.0.dropped_lines().saturating_sub(reported);
            if new > 0 {
                metrics.add(&names::LOG_DROPPED_LINES, &[], new as u64);
                warn!(lines = new, "the log could not keep up: lines were dropped");
            }
            reported += new;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tracing::info;

    use super::*;

    /// Writer that blocks until it is released.
    struct Stuck {
        released: mpsc::Receiver<()>,
        lines: mpsc::Sender<String>,
    }

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Released for good once the other end is dropped.
            let _ = self.released.recv();
            let _ = self.lines.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The client logs at every try, twice a second.
    #[test]
    fn nats_client_logs_only_when_filter_names_it() {
        let logged = |levels: &str| {
            let (lines, written) = mpsc::channel();
            // Released from the start.
            let (_, released) = mpsc::channel();
            let settings = LogSettings { filter: levels.to_owned(), ..LogSettings::default() };
            let to = Box::new(Stuck { released, lines });
            let (subscriber, log) = writing(&settings, to).expect("a log");
            tracing::dispatcher::with_default(&subscriber, || {
                error!(target: "async_nats::connector", "authorization violation");
                info!("ours");
            });
            drop(log);
            written.try_iter().collect::<String>()
        };
        assert!(logged("info").contains("ours") && !logged("info").contains("authorization violation"));
        assert!(logged("info,async_nats=error").contains("authorization violation"));
    }

    #[test]
    fn filter_without_level_is_rejected() {
        for levels in ["info", "WARN", "off", "3", "saga_engine=debug", "saga_engine,info", "[hear]=trace"] {
            assert!(filter(levels).is_ok(), "{levels}");
        }
        for levels in ["nonsense", "info!", "saga_engine=loud"] {
            assert!(filter(levels).is_err(), "{levels:?}");
        }
    }

    #[test]
    fn logging_never_blocks_and_dropped_lines_are_counted() {
        let (release, released) = mpsc::channel();
        let (lines, written) = mpsc::channel();
        let to = Box::new(Stuck { released, lines });
        let (subscriber, log) = writing(&LogSettings::default(), to).expect("a log");
        // One line more is with the writer.
        let most = QUEUE_LINES + 1;
        tracing::dispatcher::with_default(&subscriber, || (0..most + 5).for_each(|number| info!(number)));
        let dropped = log.dropped.dropped_lines();
        assert!((5..=6).contains(&dropped), "{dropped} lines are lost");
        drop(release);
        drop(log);
        let written: Vec<String> = written.try_iter().collect();
        assert_eq!(written.len() + dropped, most + 5, "what is not lost is written before the log is gone");
        assert!(written[0].contains("number=0"), "{}", written[0]);
    }
}
