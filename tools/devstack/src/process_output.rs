//! Shell: the last output of a process: the end of its log and of its standard error.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::command_line;
use super::component::Component;
use super::process::OutputStart;
use super::system::System;

const TAIL_LINES: usize = 10;
const TAIL_BYTES: u64 = 16 * 1024;
/// A listener on this machine accepts at once.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// A fatal error is written to the log and to standard error, a moment apart.
const SAME_MOMENT: Duration = Duration::from_secs(2);
/// Maximum length of an error that is shown.
const MAX_ERROR_CHARS: usize = 400;

/// Reason why a process does not run, if it is known: its port is taken, or the last line of its standard error.
pub fn why_down(system: &System, component: Component) -> Option<String> {
    let port = system.port_of(component);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    if TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok() {
        return Some(format!("another program listens at its port {port}: free it"));
    }
    let (stderr, log) = (system.stderr_of(component), system.log_of(component));
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let failed_at = modified(&stderr)?;
    // A newer log means that the error belongs to an earlier start.
    if modified(&log).is_some_and(|logged_at| logged_at > failed_at + SAME_MOMENT) {
        return None;
    }
    let line = tail(&stderr, 0).pop().filter(|line| !line.trim().is_empty() && !is_notification(line))?;
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let shown: String = line.chars().take(MAX_ERROR_CHARS).collect();
    Some(if shown.len() < line.len() { format!("{shown}…") } else { of_this_system(system, &shown) })
}

/// Completes the commands that a service prints: it does not know the folder of its system.
fn of_this_system(system: &System, text: &str) -> String {
    text.replace("sagactl start ", &format!("{} ", command_line::for_system(system.folder(), "start")))
}

/// True for a notification of admin, which begins with a timestamp and goes to standard output without a webhook.
fn is_notification(line: &str) -> bool {
    line.split(' ').next().is_some_and(|word| word.parse::<jiff::Timestamp>().is_ok())
}

/// End of the log and of standard error of a process, for an error message.
pub fn last_output(system: &System, component: Component, start: OutputStart) -> String {
    let (log, stderr) = (system.log_of(component), system.stderr_of(component));
    let lines = [tail(&log, start.log), tail(&stderr, start.stderr)].concat();
    let text = match lines.is_empty() {
        true => "  (nothing)".to_owned(),
        false => format!("  {}", of_this_system(system, &lines.join("\n  "))),
    };
    format!("the end of {} and {}:\n{text}", log.display(), stderr.display())
}

/// Last lines of a file after `start`. A file that is shorter than `start` was rotated and is read from its beginning.
fn tail(path: &Path, start: u64) -> Vec<String> {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let start = if start > length { 0 } else { start };
        file.seek(SeekFrom::Start(start.max(length.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_is_not_taken_for_the_reason_of_an_exit() {
        assert!(is_notification(
            "2026-11-25T04:31:04.291268422Z somebody is needed: 1 dead letter at payment-processing"
        ));
        for cause in ["admin: settings: http.bind: taken", "thread 'main' panicked at src/lib.rs:1:1:", ""] {
            assert!(!is_notification(cause), "{cause}");
        }
    }
}
