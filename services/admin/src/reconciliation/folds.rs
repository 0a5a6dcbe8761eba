//! Shell: whether the rows of the services are the folds of their events: what the pages of their ledgers say of that, and
//! what they answer of all other rows.

use futures::future::join_all;
use saga_engine::host::queries::Folds;
use saga_engine::store::{VerificationPart, VerificationReport};

use super::answers::{Answered, Asking};
use super::closing::Closing;
use super::under_way::Unanswered;
use crate::other_services::all;

/// Events of which a service answers at once whether they make its rows: as much work as a page of a ledger is, which may
/// wait for it.
const FOLDED_AT_ONCE: u64 = 10_000;
/// Rows of a service that differ from their events and are named, at most.
const DIFFERING: usize = 100;

/// Rows of a service that are to be held against their events.
enum Rows {
    /// All of them, or what of them is left.
    All(VerificationPart),
    /// Those that have changed behind this position.
    Changed(i64),
}

impl Rows {
    /// What is left of them after a part.
    fn behind(self, next: String) -> Self {
        match self {
            Self::All(part) => Self::All(VerificationPart { after: Some(next), ..part }),
            // A position that is none would begin anew without end.
            Self::Changed(since) => Self::Changed(next.parse().unwrap_or(i64::MAX).max(since)),
        }
    }
}

impl Asking<'_> {
    /// Every row of every service that has changed since a closing.
    pub async fn changed_rows(&self, closing: &Closing) -> Vec<ServiceFolds> {
        let of = |service: &'static str| {
            let since = closing.places.get(service).map_or(0, |at| at.event);
            self.hold(service, Rows::Changed(since))
        };
        join_all(all().into_iter().chain([crate::NAME]).map(of)).await
    }

    /// Every row of a service, but for those of one kind, if that is checked otherwise.
    pub async fn all_rows(&self, service: &'static str, but: Option<String>) -> ServiceFolds {
        let but = but.into_iter().collect();
        self.hold(service, Rows::All(VerificationPart { after: None, events: FOLDED_AT_ONCE, but })).await
    }

    /// Part by part: each is answered within the time of one answer, however much there is. What was found stays found,
    /// should a part not come.
    async fn hold(&self, service: &'static str, mut rows: Rows) -> ServiceFolds {
        let mut folds = VerificationReport::default();
        loop {
            let asked = async {
                match (service, &rows) {
                    (crate::NAME, Rows::All(part)) => Ok(self.app.store.verify_part(part.clone()).await?),
                    (crate::NAME, Rows::Changed(since)) => {
                        Ok(self.app.store.verify_changed(*since, FOLDED_AT_ONCE).await?)
                    }
                    (_, Rows::All(part)) => self.services.folds(service, part.clone()).await,
                    (_, Rows::Changed(since)) => {
                        self.services.changed_folds(service, *since, FOLDED_AT_ONCE).await
                    }
                }
            };
            match self.in_time(service, "its rows", asked).await {
                Ok(part) => match add(&mut folds, part) {
                    Some(next) => rows = rows.behind(next),
                    None => return (service, folds, None),
                },
                Err(missing) => return (service, folds, Some(missing)),
            }
        }
    }
}

/// What came of holding the rows of a service against their events, and whether it did not answer for some.
pub(super) type ServiceFolds = (&'static str, VerificationReport, Option<Unanswered>);

/// Adds a part of a check to what came of others. Answers where the next one begins.
pub(super) fn add(
    folds: &mut VerificationReport,
    VerificationReport { rows, events, differing, next, .. }: VerificationReport,
) -> Option<String> {
    (folds.rows, folds.events) = (folds.rows + rows, folds.events + events);
    name(&mut folds.differing, differing);
    next
}

/// Names more rows that differ, as long as there is room.
fn name(named: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    let room = DIFFERING.saturating_sub(named.len());
    named.extend(more.into_iter().take(room));
}

/// What the pages of a ledger say of their rows and their events.
#[derive(Default)]
pub(super) struct Checked {
    folds: Folds,
    /// Some page did not come, or is of a build that does not say.
    is_partial: bool,
}

impl Checked {
    /// Nobody reads on: not every row was checked.
    pub const fn leave_off(&mut self) {
        self.is_partial = true;
    }

    /// Takes note of a page. Answers where the next one starts.
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

    /// The kind of the rows, as long as every page says that they were checked.
    pub fn kind(&self) -> Option<String> {
        (!self.is_partial).then(|| self.folds.kind.clone())
    }

    /// What it came to, once there is no next page, and whether every row of the kind was checked.
    pub fn all(self) -> (VerificationReport, bool) {
        let Folds { kind: _, rows, differing } = self.folds;
        (VerificationReport { rows, differing, ..VerificationReport::default() }, !self.is_partial)
    }
}
