//! Shell: the processes of a local system: start one, find it again, signal it.
//!
//! A pid file holds the pid *and* when that process started: a pid that now belongs to somebody else is
//! recognised, and nobody else's process is ever signalled.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{self, Signal};
use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate};
use tokio::time::sleep;

use super::folder::write_whole;
use super::member::Member;
use super::postgres;
use super::system::System;
use cli::note;

/// Start times are derived from the boot time, which some kernels report a second off now and then.
const START_TIME_SLACK_S: u64 = 2;
/// Looks at a process this often while waiting for it.
pub const POLL: Duration = Duration::from_millis(50);
/// Above this the broker, the only Go program here, collects its garbage sooner: a soft limit, far over what it
/// holds at 1,000 orders a second, that keeps the whole system small.
const BROKER_MEMORY: &str = "160MiB";
/// What is shown of a log when its process fails.
const TAIL_LINES: usize = 10;
const TAIL_BYTES: u64 = 16 * 1024;
/// With so much in it the file for standard error begins anew at the next start.
const MAX_STDERR_BYTES: u64 = 1024 * 1024;

/// Who listens on this machine answers at once.
const SOMEBODY_ANSWERS_WITHIN: Duration = Duration::from_millis(200);
/// What a process says of its end comes to its log and to its standard error, a moment apart.
const SAID_AND_LOGGED_WITHIN: Duration = Duration::from_secs(2);
/// Of a last word as much as says why.
const MOST_SAID_CHARS: usize = 400;

/// How long a dying process may keep its port, and how often that is looked at.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
const PORT_POLL: Duration = Duration::from_millis(20);

/// A process that runs.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    pub pid: u32,
    pub rss_bytes: u64,
    /// Time that it has spent on processors since it started.
    pub cpu_ms: u64,
    pub uptime_s: u64,
}

/// A process that was just started.
#[derive(Debug)]
pub struct Started {
    /// It, to be reaped when its starter lives on.
    pub child: Child,
    /// Where its own words begin.
    pub since: Since,
}

/// Where in its log, and in what came to its standard error, the words of a process begin; by default with the first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Since {
    log: u64,
    stderr: u64,
}

/// Starts a process in a group of its own, so that a Ctrl-C meant for this program does not reach it.
pub fn spawn(system: &System, member: Member) -> anyhow::Result<Started> {
    let (program, path) = (system.program_of(member), system.stderr_of(member));
    let stderr = open_stderr(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    let log = fs::metadata(system.log_of(member)).map_or(0, |log| log.len());
    let since = Since { log, stderr: stderr.metadata()?.len() };
    let go_memory_limit = std::env::var("GOMEMLIMIT").unwrap_or_else(|_| BROKER_MEMORY.to_owned());
    let mut command = match member {
        Member::POSTGRES => postgres::command(system, &program)?,
        _ => Command::new(&program),
    };
    let child = command
        .env("GOMEMLIMIT", go_memory_limit)
        .envs(system.environment_of(member)?)
        .args(system.arguments_of(member))
        .stdin(Stdio::null())
        .stdout(stderr.try_clone()?)
        .stderr(stderr)
        .process_group(0)
        .spawn()
        .with_context(|| unstartable(&program))?;
    record(system, member, child.id())?;
    Ok(Started { child, since })
}

/// A process says little there; over many starts it begins anew.
fn open_stderr(path: &Path) -> std::io::Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    if file.metadata()?.len() > MAX_STDERR_BYTES {
        file.set_len(0)?;
    }
    Ok(file)
}

/// What is said of a program that is not there or does not run.
pub fn unstartable(program: &Path) -> String {
    format!("{} cannot be started: run scripts/up.sh to build everything", program.display())
}

fn record(system: &System, member: Member, pid: u32) -> anyhow::Result<()> {
    // Even when it has ended already: its starter has not reaped it.
    let Some(seen) = observe(pid) else { bail!("{member} (pid {pid}) is not to be seen") };
    let path = system.pid_file_of(member);
    write_whole(&path, format!("{pid} {}\n", seen.started_at_s).as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// The process, if it still is the one that was started.
pub fn find(system: &System, member: Member) -> Option<Running> {
    let text = fs::read_to_string(system.pid_file_of(member)).ok()?;
    let (pid, started_at_s) = text.trim().split_once(' ')?;
    let started_at_s: u64 = started_at_s.parse().ok()?;
    let seen = observe(pid.parse().ok()?)?;
    (seen.is_alive && seen.started_at_s.abs_diff(started_at_s) <= START_TIME_SLACK_S).then_some(seen.process)
}

/// What the kernel says of a pid.
struct Observed {
    process: Running,
    is_alive: bool,
    /// Seconds since 1970.
    started_at_s: u64,
}

fn observe(pid: u32) -> Option<Observed> {
    let pid = Pid::from_u32(pid);
    let mut kernel = sysinfo::System::new().ok()?;
    let what = ProcessRefreshKind::nothing().with_memory().with_cpu().without_tasks();
    kernel.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    let seen = kernel.process(pid)?;
    // A process that nobody has reaped yet is dead all the same.
    let is_alive = !matches!(seen.status(), ProcessStatus::Zombie | ProcessStatus::Dead);
    let process = Running {
        pid: pid.as_u32(),
        rss_bytes: seen.memory(),
        cpu_ms: seen.accumulated_cpu_time(),
        uptime_s: seen.run_time(),
    };
    Some(Observed { process, is_alive, started_at_s: seen.start_time() })
}

/// Refuses to start a process whose port somebody else has.
pub fn check_port(system: &System, member: Member) -> anyhow::Result<()> {
    system.ports_of(member).into_iter().try_for_each(|port| match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) => bail!(
            "port {port}, which {member} needs, cannot be had ({error}): free it, or start the system with other ports: \
             --port-base PORT"
        ),
    })
}

/// As [`check_port`], but a process that was just killed may take a moment to let go: the kernel counts it as
/// dead while its last threads still finish a write, and keeps its sockets until they have; and nobody may have reaped it yet.
pub async fn wait_for_port(system: &System, member: Member) -> anyhow::Result<()> {
    let until = Instant::now() + PORT_PATIENCE;
    while member == Member::POSTGRES && postgres::is_held(system) && Instant::now() < until {
        sleep(PORT_POLL).await;
    }
    loop {
        match check_port(system, member) {
            Err(_) if Instant::now() < until => sleep(PORT_POLL).await,
            checked => return checked,
        }
    }
}

/// Whether it was started and never said to be stopped: a process that is recorded and does not run has died.
pub fn is_recorded(system: &System, member: Member) -> bool {
    system.pid_file_of(member).exists()
}

/// Forgets a process that was stopped, or a stale file.
pub fn forget(system: &System, member: Member) {
    let path = system.pid_file_of(member);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        note(&format!("{} cannot be deleted: {error}", path.display()));
    }
}

/// Signals a process that was just [found](find). One that is gone meanwhile is no error.
pub fn send(running: Running, signal: Signal) -> anyhow::Result<()> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(running.pid)?);
    match signal::kill(pid, signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => bail!("{signal} cannot be sent to pid {pid}: {error}"),
    }
}

/// Waits until the process is gone; `false` when it is still there in the end.
pub async fn wait_until_gone(system: &System, member: Member, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while find(system, member).is_some() {
        if Instant::now() >= until {
            return false;
        }
        sleep(POLL).await;
    }
    true
}

/// Why a process that does not run cannot be started, or has ended, as far as that is known: somebody else has its port,
/// or what came to its standard error last, where one that cannot go on says why.
pub fn why_down(system: &System, member: Member) -> Option<String> {
    let port = system.port_of(member);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    if TcpStream::connect_timeout(&address, SOMEBODY_ANSWERS_WITHIN).is_ok() {
        return Some(format!("somebody else listens at port {port}, which it needs: free it"));
    }
    let (stderr, log) = (system.stderr_of(member), system.log_of(member));
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let said_at = changed(&stderr)?;
    // One that ran well since then has logged something since then.
    if changed(&log).is_some_and(|logged_at| logged_at > said_at + SAID_AND_LOGGED_WITHIN) {
        return None;
    }
    let line = tail(&stderr, 0).pop().filter(|line| !line.trim().is_empty() && !is_notice(line))?;
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let shown: String = line.chars().take(MOST_SAID_CHARS).collect();
    Some(if shown.len() < line.len() { format!("{shown}…") } else { shown })
}

/// Whether a line is a notice of admin, which goes to standard output where no webhook is set: it begins with its time, and
/// says nothing of why the process ended.
fn is_notice(line: &str) -> bool {
    line.split(' ').next().is_some_and(|word| word.parse::<jiff::Timestamp>().is_ok())
}

/// What a process wrote last: the end of its log, and then of what came to its standard error, where one that cannot go
/// on says why.
pub fn last_words(system: &System, member: Member, since: Since) -> String {
    let (log, stderr) = (system.log_of(member), system.stderr_of(member));
    let lines = [tail(&log, since.log), tail(&stderr, since.stderr)].concat();
    let words = if lines.is_empty() {
        "  (it wrote nothing)".to_owned()
    } else {
        format!("  {}", lines.join("\n  "))
    };
    format!("the end of {} and {}:\n{words}", log.display(), stderr.display())
}

/// The last lines of a file behind `start`; all of a file that has begun anew since are.
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
    fn a_notice_of_admin_is_not_why_it_ended() {
        assert!(is_notice(
            "2026-11-25T04:31:04.291268422Z somebody is needed: 1 dead letter at payment-processing"
        ));
        for cause in ["admin: settings: http.bind: taken", "thread 'main' panicked at src/lib.rs:1:1:", ""] {
            assert!(!is_notice(cause), "{cause}");
        }
    }
}
