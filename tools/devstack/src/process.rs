//! Shell: processes of a local system: starting, finding and signalling them.
//!
//! A pid file holds the pid and the start time of the process. A pid that was reused by another process is detected, and
//! that process is never signalled.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use cli::note;
use nix::sys::signal::{self, Signal};
use sysinfo::{Pid, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate};
use tokio::time::sleep;

use super::component::Component;
use super::data_dir::write_atomically;
use super::ports::{self, Holder};
use super::postgres;
use super::system::System;

/// Start times are derived from the boot time, which some kernels report a second off now and then.
const START_TIME_SLACK_S: u64 = 2;
/// Poll interval while a process is waited for.
pub const POLL: Duration = Duration::from_millis(50);
/// Soft limit on the memory of the broker, the only Go program: far over what it holds at 1,000 orders per second.
const BROKER_MEMORY: &str = "160MiB";
/// Size at which the file for standard error is truncated at the next start.
const MAX_STDERR_BYTES: u64 = 1024 * 1024;
/// A dying process may keep its port for a while.
pub const PORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the kernel keeps an ended connection (`TCP_TIMEWAIT_LEN`, 60 s).
const ENDED_CONNECTION_TIMEOUT: Duration = Duration::from_secs(65);
/// Stands in the pid file of a killed process, in place of its start time.
const KILLED: &str = "killed";
const PORT_POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
pub struct RunningProcess {
    pub pid: u32,
    pub rss_bytes: u64,
    /// Processor time since its start.
    pub cpu_ms: u64,
    pub uptime_s: u64,
}

/// A process that was just started.
#[derive(Debug)]
pub struct StartedProcess {
    /// To be reaped if its starter lives on.
    pub child: Child,
    /// Sizes of its log and of its standard error before the start.
    pub output_start: OutputStart,
}

/// Position in the log and in standard error at which the output of a process begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutputStart {
    pub log: u64,
    pub stderr: u64,
}

/// Starts a process in a group of its own, so that Ctrl-C does not reach it.
pub fn spawn(system: &System, component: Component) -> anyhow::Result<StartedProcess> {
    let (program, path) = (system.program_of(component), system.stderr_of(component));
    let stderr = open_stderr(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    let log = fs::metadata(system.log_of(component)).map_or(0, |log| log.len());
    let output_start = OutputStart { log, stderr: stderr.metadata()?.len() };
    let go_memory_limit = std::env::var("GOMEMLIMIT").unwrap_or_else(|_| BROKER_MEMORY.to_owned());
    let mut command = match component {
        Component::POSTGRES => postgres::command(system, &program)?,
        _ => Command::new(&program),
    };
    let child = command
        .env("GOMEMLIMIT", go_memory_limit)
        .envs(system.environment_of(component)?)
        .args(system.arguments_of(component))
        .stdin(Stdio::null())
        .stdout(stderr.try_clone()?)
        .stderr(stderr)
        .process_group(0)
        .spawn()
        .with_context(|| cannot_start(&program))?;
    write_pid_file(system, component, child.id())?;
    Ok(StartedProcess { child, output_start })
}

fn open_stderr(path: &Path) -> std::io::Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    if file.metadata()?.len() > MAX_STDERR_BYTES {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Error text for a program that is missing or cannot run.
pub fn cannot_start(program: &Path) -> String {
    format!("{} cannot be started: run scripts/up.sh to build everything", program.display())
}

fn write_pid_file(system: &System, component: Component, pid: u32) -> anyhow::Result<()> {
    // A process that ended at once is still visible: its starter has not reaped it.
    let Some(seen) = observe(pid) else { bail!("{component} (pid {pid}) cannot be observed") };
    let path = system.pid_file_of(component);
    write_atomically(&path, format!("{pid} {}\n", seen.started_at_s).as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// Finds the process that was started last, if it still runs.
pub fn find(system: &System, component: Component) -> Option<RunningProcess> {
    let text = fs::read_to_string(system.pid_file_of(component)).ok()?;
    let (pid, started_at_s) = text.trim().split_once(' ')?;
    let started_at_s: u64 = started_at_s.parse().ok()?;
    let seen = observe(pid.parse().ok()?)?;
    (seen.is_alive && seen.started_at_s.abs_diff(started_at_s) <= START_TIME_SLACK_S).then_some(seen.process)
}

/// State of a pid in the kernel.
struct Observation {
    process: RunningProcess,
    is_alive: bool,
    started_at_s: u64,
}

fn observe(pid: u32) -> Option<Observation> {
    let pid = Pid::from_u32(pid);
    let mut kernel = sysinfo::System::new().ok()?;
    let refresh = ProcessRefreshKind::nothing().with_memory().with_cpu().without_tasks();
    kernel.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, refresh);
    let seen = kernel.process(pid)?;
    // A process that was not reaped yet is dead all the same.
    let is_alive = !matches!(seen.status(), ProcessStatus::Zombie | ProcessStatus::Dead);
    let process = RunningProcess {
        pid: pid.as_u32(),
        rss_bytes: seen.memory(),
        cpu_ms: seen.accumulated_cpu_time(),
        uptime_s: seen.run_time(),
    };
    Some(Observation { process, is_alive, started_at_s: seen.start_time() })
}

/// Port of a process that something else holds.
struct TakenPort {
    port: u16,
    error: std::io::Error,
}

impl TakenPort {
    fn describe(&self, component: Component, holder: &Holder) -> String {
        let Self { port, error } = self;
        format!(
            "port {port} of {component} is not free ({error}): {holder}; free it, or start the system with other ports: \
             --port-base PORT"
        )
    }
}

fn taken_port(system: &System, component: Component) -> Option<TakenPort> {
    system.ports_of(component).into_iter().find_map(|port| {
        let error = ports::check_free(port).err()?;
        Some(TakenPort { port, error })
    })
}

/// Waits until the ports of a process are free. The kernel keeps the sockets of a killed process until its last threads
/// have finished their writes, for `dying` at most, and ended connections for a minute.
pub async fn wait_for_ports(system: &System, component: Component, dying: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    while component == Component::POSTGRES && postgres::is_locked(system) && began.elapsed() < dying {
        sleep(PORT_POLL).await;
    }
    let mut is_told = false;
    while let Some(taken) = taken_port(system, component) {
        if began.elapsed() < dying {
            sleep(PORT_POLL).await;
            continue;
        }
        let holder = ports::holder_of(taken.port);
        match holder {
            Holder::EndedConnection if began.elapsed() < ENDED_CONNECTION_TIMEOUT => {
                if !std::mem::replace(&mut is_told, true) {
                    note(&format!("  {component:<11} waits for port {}: {holder}", taken.port));
                }
                sleep(POLL).await;
            }
            Holder::EndedConnection | Holder::Process { .. } | Holder::Unknown => {
                bail!("{}", taken.describe(component, &holder))
            }
        }
    }
    Ok(())
}

/// Records that an operator has killed a process. It still counts as one that has died.
pub fn mark_killed(system: &System, component: Component, killed: RunningProcess) -> anyhow::Result<()> {
    let path = system.pid_file_of(component);
    write_atomically(&path, format!("{} {KILLED}\n", killed.pid).as_bytes())
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// True if it was stopped or killed by an operator, and not started since.
pub fn was_ended(system: &System, component: Component) -> bool {
    let text = fs::read_to_string(system.pid_file_of(component));
    text.map_or_else(
        |error| error.kind() == ErrorKind::NotFound,
        |text| text.split_whitespace().nth(1) == Some(KILLED),
    )
}

/// True if it was started and not stopped since. If it does not run, it has died.
pub fn has_pid_file(system: &System, component: Component) -> bool {
    system.pid_file_of(component).exists()
}

/// Deletes the pid file of a process that was stopped.
pub fn delete_pid_file(system: &System, component: Component) {
    let path = system.pid_file_of(component);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        note(&format!("{} cannot be deleted: {error}", path.display()));
    }
}

/// Signals a process, if it runs.
pub fn signal(system: &System, component: Component, signal: Signal) -> anyhow::Result<()> {
    find(system, component).map_or(Ok(()), |running| send(running, signal))
}

/// Signals a process that was just [found](find). A process that ended meanwhile is no error.
pub fn send(running: RunningProcess, signal: Signal) -> anyhow::Result<()> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(running.pid)?);
    match signal::kill(pid, signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => bail!("{signal} cannot be sent to pid {pid}: {error}"),
    }
}

/// Waits until the process has ended. Returns `false` after the time limit.
pub async fn wait_until_gone(system: &System, component: Component, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while find(system, component).is_some() {
        if Instant::now() >= until {
            return false;
        }
        sleep(POLL).await;
    }
    true
}
