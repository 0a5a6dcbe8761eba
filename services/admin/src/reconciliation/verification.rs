//! Shell: compares the rows of all services with the fold of their events. Pages of ledgers include the result for their
//! rows; all other rows are asked for.

use futures::future::join_all;
use saga_engine::host::queries::Folds;
use saga_engine::store::{VerificationPart, VerificationReport};

use super::request::{Answered, Request};
use crate::ledgers::checkpoint::Checkpoint;
use crate::service_client::all;
use crate::topology::NAME;
use admin_api::reconciliation::Unanswered;

/// Events that one call verifies: as much work as a page of a ledger.
const EVENTS_PER_CALL: u64 = 10_000;
/// Maximum number of differing rows that are named for each service.
const MAX_DIFFERING: usize = 100;

/// Rows of a service to verify.
enum Rows {
    /// All rows, or the rest of them.
    All(VerificationPart),
    /// Rows that have changed after this position.
    Changed(i64),
}

impl Rows {
    /// Returns the rest after a part.
    fn after(self, next: String) -> Self {
        match self {
            Self::All(part) => Self::All(VerificationPart { after: Some(next), ..part }),
            // An invalid position would restart without end.
            Self::Changed(since) => Self::Changed(next.parse().unwrap_or(i64::MAX).max(since)),
        }
    }

    /// Returns the query for a service.
    fn query(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::All(VerificationPart { after, events, excluded_kinds }) => {
                let after = after.clone().map(|after| ("after", after));
                let excluded = (!excluded_kinds.is_empty()).then(|| ("exclude", excluded_kinds.join(",")));
                [("events", events.to_string())].into_iter().chain(after).chain(excluded).collect()
            }
            Self::Changed(since) => {
                vec![("events", EVENTS_PER_CALL.to_string()), ("since", since.to_string())]
            }
        }
    }
}

impl Request<'_> {
    /// Verifies every row that has changed since a checkpoint.
    pub async fn changed_rows(&self, checkpoint: &Checkpoint) -> Vec<ServiceFolds> {
        let of = |service: &'static str| {
            let since = checkpoint.positions.get(service).map_or(0, |position| position.event);
            self.verify(service, Rows::Changed(since))
        };
        join_all(all().into_iter().chain([NAME]).map(of)).await
    }

    /// Verifies every row of a service, except those of one kind.
    pub async fn all_rows(&self, service: &'static str, excluded: Option<String>) -> ServiceFolds {
        let excluded_kinds = excluded.into_iter().collect();
        let first = VerificationPart { after: None, events: EVENTS_PER_CALL, excluded_kinds };
        self.verify(service, Rows::All(first)).await
    }

    /// Verifies rows part by part. When a part fails, the results so far are returned with the error.
    async fn verify(&self, service: &'static str, mut rows: Rows) -> ServiceFolds {
        let mut folds = VerificationReport::default();
        loop {
            let asked = async {
                match (service, &rows) {
                    (NAME, Rows::All(part)) => Ok(self.app.store.verify_part(part.clone()).await?),
                    (NAME, Rows::Changed(since)) => {
                        Ok(self.app.store.verify_changed(*since, EVENTS_PER_CALL).await?)
                    }
                    (_, rows) => self.services.query(service, "/internal/verify", rows.query()).await,
                }
            };
            match self.in_time(service, "its rows", asked).await {
                Ok(part) => match add(&mut folds, part) {
                    Some(next) => rows = rows.after(next),
                    None => return (service, folds, None),
                },
                Err(missing) => return (service, folds, Some(missing)),
            }
        }
    }
}

/// Result of a verification of a service, and the error that ended it early.
pub(super) type ServiceFolds = (&'static str, VerificationReport, Option<Unanswered>);

/// Adds the result of a part, and returns the start of the next.
pub(super) fn add(
    folds: &mut VerificationReport,
    VerificationReport { rows, events, differing, next, .. }: VerificationReport,
) -> Option<String> {
    (folds.rows, folds.events) = (folds.rows + rows, folds.events + events);
    name(&mut folds.differing, differing);
    next
}

/// Adds names of differing rows up to the maximum.
fn name(named: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    let room = MAX_DIFFERING.saturating_sub(named.len());
    named.extend(more.into_iter().take(room));
}

/// Verification results of the pages of a ledger.
#[derive(Default)]
pub(super) struct Checked {
    folds: Folds,
    /// A page is missing, or has no result.
    is_partial: bool,
}

impl Checked {
    /// Records that not every page was read.
    pub const fn mark_partial(&mut self) {
        self.is_partial = true;
    }

    /// Takes a page, and returns the start of the next.
    pub fn take<T>(&mut self, page: &Answered<T>) -> Option<String> {
        let page = page.as_ref().ok();
        match page.and_then(|page| page.folds.as_ref()) {
            Some(Folds { kind, rows, differing }) => {
                self.folds.kind.clone_from(kind);
                self.folds.rows += rows;
                name(&mut self.folds.differing, differing.iter().cloned());
            }
            None => self.is_partial = true,
        }
        page?.next.clone()
    }

    /// Kind of the rows, as long as every page has a result.
    pub fn kind(&self) -> Option<String> {
        (!self.is_partial).then(|| self.folds.kind.clone())
    }

    /// Returns the result after the last page, and true if every row of the kind was verified.
    pub fn all(self) -> (VerificationReport, bool) {
        let Folds { kind: _, rows, differing } = self.folds;
        (VerificationReport { rows, differing, ..VerificationReport::default() }, !self.is_partial)
    }
}
