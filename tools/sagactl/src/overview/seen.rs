//! Pure: what there was to see, of processes and of what admin says.

use contract::overview::Overview;

/// What there was to see.
#[derive(Debug)]
pub struct Seen {
    /// Processes of the local system that do not run; `None` when the system is elsewhere.
    pub down: Option<Vec<String>>,
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

    /// Whether this process does not run, as far as that is known.
    pub fn is_down(&self, name: &str) -> bool {
        self.down.iter().flatten().any(|down| down == name)
    }
}
