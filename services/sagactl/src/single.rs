//! Shell: stopping, starting and killing one process, while the others go on.

use std::process::ExitCode;

use anyhow::bail;

use crate::http::Http;
use crate::member::Member;
use crate::system::{self, System};
use crate::{nats, process, readiness, stop};

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
    check_port(system, member)?;
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
