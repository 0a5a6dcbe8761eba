//! Shell: reads the state of a system from its admin and, for a local one, from its processes.

use std::path::Path;
use std::time::Duration;

use admin_api::overview::Overview;
use cli::exit;
use client::access::Access;
use devstack::processes::Processes;
use devstack::{Component, System, command_line, status};
use reqwest::Url;

use super::snapshot::Snapshot;
use crate::admin::{Admin, address};

/// Time limit of a request. Admin answers an overview before.
const TIMEOUT: Duration = Duration::from_millis(1_900);

pub struct Source {
    /// Local system; `None` for a remote one, whose processes are unknown.
    system: Option<System>,
    admin: Admin,
    /// Start of every command for this system.
    pub command: String,
}

impl Source {
    /// Creates the source for the local system in a folder.
    pub fn local(folder: &Path, access: &Access) -> anyhow::Result<Self> {
        let system = System::open_or_suggest_admin(folder)?;
        let url = address(&system.url_of(Component::ADMIN)).map_err(exit::rejected)?;
        let command = command_line::for_system(folder, "").trim_end().to_owned();
        Ok(Self { system: Some(system), admin: Admin::new(url, access, None)?, command })
    }

    pub fn remote(admin: Url, access: &Access) -> anyhow::Result<Self> {
        let command = command_line::for_admin(&admin);
        Ok(Self { system: None, admin: Admin::new(admin, access, None)?, command })
    }

    /// Takes a snapshot. Fails if admin rejects the request, or if the system is remote and its admin does not answer.
    pub async fn snapshot(&self) -> anyhow::Result<(Snapshot, Option<Processes>)> {
        let (processes, overview) = tokio::join!(self.processes(), self.overview());
        let processes = processes?;
        let (overview, problem) = match overview {
            Ok(overview) => (Some(overview), None),
            Err(error) if processes.is_none() || exit::code_of(&error) == exit::REJECTED => {
                return Err(error);
            }
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let down = processes.as_ref().map(Processes::down);
        let why_down = processes.as_ref().map(Processes::why_down).unwrap_or_default();
        Ok((Snapshot { down, why_down, overview, problem }, processes))
    }

    /// Reads the processes of a local system.
    pub async fn processes(&self) -> anyhow::Result<Option<Processes>> {
        match &self.system {
            Some(system) => status::processes(system).await.map(Some),
            None => Ok(None),
        }
    }

    pub async fn overview(&self) -> anyhow::Result<Overview> {
        self.admin.get_within(&["overview"], TIMEOUT).await
    }

    /// Reads admin's metrics in the text format of Prometheus.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        self.admin.metrics(TIMEOUT).await
    }
}
