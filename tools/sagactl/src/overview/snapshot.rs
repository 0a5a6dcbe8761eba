//! Pure: state of a system at one time.

use std::collections::BTreeMap;

use admin_api::overview::{Finding, FindingCode, Overview, ServiceStatus};

#[derive(Debug, Default)]
pub struct Snapshot {
    /// Local processes that do not run; `None` for a remote system.
    pub down: Option<Vec<String>>,
    /// Reasons, by name, why processes do not run, where they are known.
    pub why_down: BTreeMap<String, String>,
    /// Overview of admin; `None` if it does not answer.
    pub overview: Option<Overview>,
    /// Error of an admin that does not answer.
    pub problem: Option<String>,
}

impl Snapshot {
    /// True if there is a problem that does not resolve itself, or the state is unknown.
    pub fn needs_human(&self) -> bool {
        let is_down = self.down.as_ref().is_some_and(|down| !down.is_empty());
        is_down || self.overview.as_ref().is_none_or(|overview| overview.needs_human)
    }

    /// Lists admin's findings, without those about processes that do not run: these cannot be reached.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let findings = self.overview.iter().flat_map(|overview| &overview.findings);
        let is_down = |finding: &Finding| finding.service.as_ref().is_some_and(|name| self.is_down(name));
        findings.filter(move |finding| finding.code != FindingCode::Unreachable || !is_down(finding))
    }

    /// Finding about a service that does not answer.
    pub fn unreachable(&self, name: &str) -> Option<&Finding> {
        let mut findings = self.overview.iter().flat_map(|overview| &overview.findings);
        findings.find(|finding| {
            finding.code == FindingCode::Unreachable && finding.service.as_deref() == Some(name)
        })
    }

    pub fn service(&self, name: &str) -> Option<&ServiceStatus> {
        self.overview.iter().flat_map(|overview| &overview.services).find(|status| status.service == name)
    }

    /// Describes injected faults, one line for each service. `command` is the start of commands.
    pub fn faults(&self, command: &str) -> Vec<String> {
        let services = self.overview.iter().flat_map(|overview| &overview.services);
        let line = |status: &ServiceStatus| {
            let (faults, them) =
                (status.faults_text()?, if status.faults.len() == 1 { "it" } else { "them" });
            Some(format!("{faults}; `{command} faults clear {}` clears {them}", status.service))
        };
        services.filter_map(line).collect()
    }

    /// True if this local process does not run.
    pub fn is_down(&self, name: &str) -> bool {
        self.down.iter().flatten().any(|down| down == name)
    }
}
