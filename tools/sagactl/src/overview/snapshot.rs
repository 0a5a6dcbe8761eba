//! Pure: what there was to see, of processes and of what admin says.

use std::collections::BTreeMap;

use admin_api::overview::{Finding, FindingCode, Overview, ServiceStatus};

/// What there was to see.
#[derive(Debug, Default)]
pub struct Seen {
    /// Processes of the local system that do not run; `None` when the system is elsewhere.
    pub down: Option<Vec<String>>,
    /// Of those, by name, why they do not run, as far as that is known.
    pub why_down: BTreeMap<String, String>,
    /// What admin says; `None` when it does not answer.
    pub overview: Option<Overview>,
    /// Why it does not.
    pub problem: Option<String>,
}

impl Seen {
    /// Whether there is something that does not mend itself, or nobody knows.
    pub fn needs_human(&self) -> bool {
        let is_down = self.down.as_ref().is_some_and(|down| !down.is_empty());
        is_down || self.overview.as_ref().is_none_or(|overview| overview.needs_human)
    }

    /// Findings of admin, without those of processes that do not run, which are unreachable of course.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let findings = self.overview.iter().flat_map(|overview| &overview.findings);
        let is_down = |finding: &Finding| finding.service.as_ref().is_some_and(|name| self.is_down(name));
        findings.filter(move |finding| finding.code != FindingCode::Unreachable || !is_down(finding))
    }

    /// Status of a service, as admin reports it.
    pub fn service(&self, name: &str) -> Option<&ServiceStatus> {
        self.overview.iter().flat_map(|overview| &overview.services).find(|status| status.service == name)
    }

    /// What is broken on purpose, a line for each service; `call` is how commands begin.
    pub fn faults(&self, call: &str) -> Vec<String> {
        let services = self.overview.iter().flat_map(|overview| &overview.services);
        let line = |look: &ServiceStatus| {
            let (faults, ends) = (look.faults_text()?, if look.faults.len() == 1 { "it" } else { "them" });
            Some(format!("{faults}; `{call} faults clear {}` ends {ends}", look.service))
        };
        services.filter_map(line).collect()
    }

    /// Whether this process does not run, as far as that is known.
    pub fn is_down(&self, name: &str) -> bool {
        self.down.iter().flatten().any(|down| down == name)
    }
}
