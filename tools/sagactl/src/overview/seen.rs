//! Pure: what there was to see, of processes and of what admin says.

use std::collections::BTreeMap;

use contract::overview::{Overview, Reason, ServiceLook};

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

    /// Why somebody is needed, as admin says: but of a process that does not run it is known that it does not answer.
    pub fn reasons(&self) -> impl Iterator<Item = &Reason> {
        let reasons = self.overview.iter().flat_map(|overview| &overview.reasons);
        reasons.filter(|reason| !matches!(reason, Reason::Silent { service, .. } if self.is_down(service)))
    }

    /// What admin says of a service.
    pub fn of(&self, service: &str) -> Option<&ServiceLook> {
        let mut services = self.overview.iter().flat_map(|overview| &overview.services);
        services.find(|look| look.service == service)
    }

    /// What is broken on purpose, a line for each service; `call` is how commands begin.
    pub fn faults(&self, call: &str) -> Vec<String> {
        let services = self.overview.iter().flat_map(|overview| &overview.services);
        let line = |look: &ServiceLook| {
            let (faults, ends) =
                (look.faults_in_words()?, if look.faults.len() == 1 { "it" } else { "them" });
            Some(format!("{faults}; `{call} faults clear {}` ends {ends}", look.service))
        };
        services.filter_map(line).collect()
    }

    /// Whether this process does not run, as far as that is known.
    pub fn is_down(&self, name: &str) -> bool {
        self.down.iter().flatten().any(|down| down == name)
    }
}
