//! Shell: asks admin how everything is, and this machine for the processes, when the system is a local one.

use std::path::Path;
use std::time::Duration;

use admin_api::overview::Overview;
use reqwest::Url;

use super::seen::Seen;
use crate::admin::{Admin, address, read};
use cli::exit;
use client::access::Access;
use devstack::command_line;
use devstack::processes::Processes;
use devstack::{Component, System, status};

/// Admin bounds its own look, and answers before.
const WITHIN: Duration = Duration::from_millis(1_900);

/// Who is asked.
pub struct Asked {
    /// The processes of a local system; of one elsewhere nothing is known of them.
    system: Option<System>,
    admin: Admin,
    /// How commands for this system begin.
    pub call: String,
}

impl Asked {
    /// The local system in this folder.
    ///
    /// # Errors
    /// When there is none.
    pub fn here(folder: &Path, access: &Access) -> anyhow::Result<Self> {
        let system = System::open_or_suggest_admin(folder)?;
        let admin =
            Admin::at(address(&system.url_of(Component::ADMIN)).map_err(exit::rejected)?, access, None)?;
        Ok(Self {
            system: Some(system),
            admin,
            call: command_line::for_system(folder, "").trim_end().to_owned(),
        })
    }

    /// A system elsewhere, of which its admin tells.
    ///
    /// # Errors
    /// When no client can be made.
    pub fn elsewhere(admin: Url, access: &Access) -> anyhow::Result<Self> {
        let call = command_line::for_admin(&admin);
        Ok(Self { system: None, admin: Admin::at(admin, access, None)?, call })
    }

    /// One look, bounded in time whatever is down.
    ///
    /// # Errors
    /// When nobody can be asked at all: the system is elsewhere, and its admin does not answer.
    pub async fn look(&self) -> anyhow::Result<(Seen, Option<Processes>)> {
        let (processes, overview) = tokio::join!(self.processes(), self.overview());
        let processes = processes?;
        let (overview, problem) = match overview {
            Ok(overview) => (Some(overview), None),
            Err(error) if processes.is_none() => return Err(error),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let down = processes.as_ref().map(Processes::down);
        let why_down = processes.as_ref().map(Processes::why_down).unwrap_or_default();
        Ok((Seen { down, why_down, overview, problem }, processes))
    }

    /// The processes of a local system; of one elsewhere nothing is known of them.
    pub async fn processes(&self) -> anyhow::Result<Option<Processes>> {
        match &self.system {
            Some(system) => status::processes(system).await.map(Some),
            None => Ok(None),
        }
    }

    /// What admin says.
    pub async fn overview(&self) -> anyhow::Result<Overview> {
        read(self.admin.ask_soon(&["overview"], WITHIN).await?)
    }

    /// What admin measures, in the text format of Prometheus.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        self.admin.metrics_soon(WITHIN).await
    }
}
