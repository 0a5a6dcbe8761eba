//! Shell: the log: what is logged, where it goes, and that nobody waits for it.
//!
//! Lines wait in a bounded queue, and a thread of their own writes them. When the disk, or whoever reads, cannot keep up
//! and the queue is full, lines are lost and counted rather than the service held up: what must not be lost is in its
//! database. What was logged before a normal stop is written by the end of it.

mod rotating;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use serde::{Deserialize, Serialize};
use tracing::{Dispatch, error, warn};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::rotating::RotatingFile;
use super::metrics::{Metrics, names};

/// Lines that may wait to be written: what the busiest service says in seconds, and a few megabytes of memory.
const QUEUE_LINES: usize = 10_000;
/// So much is written at once.
const WRITTEN_BYTES: usize = 64 * 1024;
/// The target of the client's own lines.
const NATS_CLIENT: &str = "async_nats";
/// How often lost lines are looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What is logged, how, and where it goes (section `log`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Levels, in the syntax of `tracing_subscriber::EnvFilter`. The lines about inputs have the target
    /// [`saga::step`](crate::runtime::log_line::TARGET). The client of NATS is silent unless it is named (`async_nats`).
    pub filter: String,
    /// `json` for machines, `text` for people.
    pub format: LogFormat,
    /// The file that it goes to; standard error when there is none.
    pub file: Option<PathBuf>,
    /// The file begins anew before it is larger than this …
    pub max_bytes: u64,
    /// … and so many of the full ones are kept beside it, as `FILE.1` (the newest), `FILE.2` and so on.
    pub keep: usize,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people: level, sentence and fields of an event in one line, without colours.
    Text,
}

impl Default for LogSettings {
    fn default() -> Self {
        let max_bytes = 8 * 1024 * 1024;
        Self { filter: "info".to_owned(), format: LogFormat::Text, file: None, max_bytes, keep: 3 }
    }
}

/// A log that is being written. Dropping it waits until all that was logged is written, for a second at most.
pub(super) struct Log {
    lost: ErrorCounter,
    _writing: WorkerGuard,
}

/// Starts the log of this process. From then on a panic is a line of it, too.
///
/// # Errors
/// When the filter is none, or the file cannot be written.
pub(super) fn start(settings: &LogSettings) -> anyhow::Result<Log> {
    let to: Box<dyn Write + Send> = match &settings.file {
        Some(path) => {
            let file = RotatingFile::open(path.clone(), settings.max_bytes, settings.keep);
            Box::new(file.with_context(|| format!("log.file {}", path.display()))?)
        }
        None => Box::new(io::stderr()),
    };
    // What is written together is written at once; the thread empties it when no line waits any more.
    let to: Box<dyn Write + Send> = Box::new(BufWriter::with_capacity(WRITTEN_BYTES, to));
    let (subscriber, log) = writing(settings, to)?;
    subscriber.try_init()?;
    std::panic::set_hook(Box::new(|panic| {
        let (said, thread) = (panic.payload_as_str().unwrap_or("no words"), std::thread::current());
        let at = panic.location().map(tracing::field::display);
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        error!(thread = thread.name(), at, backtrace, "panicked: {said}");
    }));
    Ok(log)
}

fn writing(settings: &LogSettings, to: Box<dyn Write + Send>) -> anyhow::Result<(Dispatch, Log)> {
    let filter = filter(&settings.filter)
        .map_err(|error| anyhow!("settings: log.filter is {:?}: {error}", settings.filter))?;
    let queue = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE_LINES);
    let (queue, guard) = queue.thread_name("log").finish(to);
    let log = Log { lost: queue.error_counter(), _writing: guard };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(queue);
    let subscriber = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).into(),
        LogFormat::Text => lines.with_ansi(false).into(),
    };
    Ok((subscriber, log))
}

/// What is logged. The client of NATS says with every try what the connection says once, and is heard only by who asks
/// for it by name.
fn filter(levels: &str) -> anyhow::Result<EnvFilter> {
    // Where a directive names a target and no level, that target is meant: a word that is neither logs nothing at all.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let says_a_level = |directive: &str| is_level(directive.rsplit('=').next().unwrap_or_default().trim());
    ensure!(
        levels.split(',').any(says_a_level),
        "it names no level (error, warn, info, debug, trace or off)"
    );
    let filter = EnvFilter::try_new(levels)?;
    Ok(match levels.contains(NATS_CLIENT) {
        true => filter,
        false => filter.add_directive(format!("{NATS_CLIENT}=off").parse()?),
    })
}

impl Log {
    /// What tells of the lines that this log loses.
    pub(super) fn dropped(&self) -> DroppedLines {
        DroppedLines(self.lost.clone())
    }
}

/// The lines that were lost, because the queue was full.
pub(super) struct DroppedLines(ErrorCounter);

impl DroppedLines {
    /// Counts them, and says so once there is room for it, until dropped.
    pub(super) async fn report(self, metrics: Metrics) {
        let mut told = 0;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let new = self.0.dropped_lines().saturating_sub(told);
            if new > 0 {
                metrics.add(&names::LOG_DROPPED_LINES, &[], new as u64);
                warn!(lines = new, "the log could not keep up, and lines of it are lost");
            }
            told += new;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tracing::info;

    use super::*;

    /// Writes nothing until it is told to.
    struct Stuck {
        goes_on: mpsc::Receiver<()>,
        lines: mpsc::Sender<String>,
    }

    impl Write for Stuck {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Once its other end is gone, nothing holds it any more.
            let _ = self.goes_on.recv();
            let _ = self.lines.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// It tries twice a second, and the connection says what is wrong once.
    #[test]
    fn the_client_of_nats_is_heard_by_who_asks_for_it() {
        let heard = |levels: &str| {
            let (lines, written) = mpsc::channel();
            // Nobody tells it to go on: it does not wait.
            let (_, goes_on) = mpsc::channel();
            let settings = LogSettings { filter: levels.to_owned(), ..LogSettings::default() };
            let to = Box::new(Stuck { goes_on, lines });
            let (subscriber, log) = writing(&settings, to).expect("a log");
            tracing::dispatcher::with_default(&subscriber, || {
                error!(target: "async_nats::connector", "authorization violation");
                info!("ours");
            });
            drop(log);
            written.try_iter().collect::<String>()
        };
        assert!(heard("info").contains("ours") && !heard("info").contains("authorization violation"));
        assert!(heard("info,async_nats=error").contains("authorization violation"));
    }

    #[test]
    fn a_filter_names_a_level() {
        for levels in ["info", "WARN", "off", "3", "saga_engine=debug", "saga_engine,info", "[hear]=trace"] {
            assert!(filter(levels).is_ok(), "{levels}");
        }
        for levels in ["nonsense", "info!", "saga_engine=loud"] {
            assert!(filter(levels).is_err(), "{levels:?}");
        }
    }

    #[test]
    fn who_logs_waits_for_nobody_and_what_found_no_room_is_counted() {
        let (go_on, goes_on) = mpsc::channel();
        let (lines, written) = mpsc::channel();
        let to = Box::new(Stuck { goes_on, lines });
        let (subscriber, log) = writing(&LogSettings::default(), to).expect("a log");
        // One more is with the writer.
        let most = QUEUE_LINES + 1;
        tracing::dispatcher::with_default(&subscriber, || (0..most + 5).for_each(|number| info!(number)));
        let lost = log.lost.dropped_lines();
        assert!((5..=6).contains(&lost), "{lost} lines are lost");
        drop(go_on);
        drop(log);
        let written: Vec<String> = written.try_iter().collect();
        assert_eq!(written.len() + lost, most + 5, "what is not lost is written before the log is gone");
        assert!(written[0].contains("number=0"), "{}", written[0]);
    }
}
