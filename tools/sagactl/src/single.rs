//! Shell: stopping, starting and killing one process, while the others go on.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

use crate::http::Http;
use crate::member::Member;
use crate::system::{self, System};
use crate::{nats, process, readiness, stop};

/// How long a dying process may keep its port, and how often that is looked at.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
const PORT_POLL: Duration = Duration::from_millis(20);

/// `sagactl stop NAME`. Nothing to do is success.
pub async fn stop(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = system::lock(system.folder()).await?;
    if process::find(system, member).is_none() {
        eprintln!("{member} is not running");
    }
    stop::one(system, member).await?;
    Ok(ExitCode::SUCCESS)
}

/// `sagactl start NAME`. Nothing to do is success.
pub async fn start(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = system::lock(system.folder()).await?;
    if let Some(running) = process::find(system, member) {
        eprintln!("{member} runs already (pid {})", running.pid);
        return Ok(ExitCode::SUCCESS);
    }
    wait_for_port(system, member).await?;
    if member == Member::Nats {
        nats::configure(system)?;
    }
    let mut started = [(member, process::spawn(system, member)?)];
    if let Err(error) = readiness::wait(&Http::new()?, system, &mut started).await {
        stop::one(system, member).await?;
        return Err(error);
    }
    Ok(ExitCode::SUCCESS)
}

/// `sagactl kill NAME`.
pub async fn kill(system: &System, member: Member) -> anyhow::Result<ExitCode> {
    let _lock = system::lock(system.folder()).await?;
    let Some(running) = process::find(system, member) else { bail!("{member} is not running") };
    stop::kill(system, member).await?;
    eprintln!("  {:<10} killed (pid {})", member.name(), running.pid);
    Ok(ExitCode::SUCCESS)
}

/// Refuses to start a process whose port somebody else has.
pub fn check_port(system: &System, member: Member) -> anyhow::Result<()> {
    let port = system.port_of(member);
    match std::net::TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) => bail!(
            "port {port}, which {member} needs, cannot be had ({error}): free it, or start the system with --port-base"
        ),
    }
}

/// As [`check_port`], but a process that was just killed may take a moment to let go: the kernel counts it as
/// dead while its last threads still finish a write, and keeps its sockets until they have.
async fn wait_for_port(system: &System, member: Member) -> anyhow::Result<()> {
    let until = Instant::now() + PORT_PATIENCE;
    loop {
        match check_port(system, member) {
            Err(_) if Instant::now() < until => tokio::time::sleep(PORT_POLL).await,
            checked => return checked,
        }
    }
}
