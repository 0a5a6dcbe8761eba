//! Shell: whether the books balance, asked when a run is over.

use crate::http::Http;
use crate::local::{Member, Reach};
use crate::output::note;
use crate::reconciliation::{self, LONGEST_WAIT, Reconciliation};

/// Asks; whoever reads along is told for how long.
pub async fn ask(reach: &Reach, json: bool) -> anyhow::Result<Reconciliation> {
    if !json {
        note(&format!("asking whether the books balance, for {}s at most", LONGEST_WAIT.as_secs()));
    }
    let (http, admin) = (Http::by(&reach.entry)?, reach.url_of(Member::ADMIN));
    reconciliation::ask(&http, &admin, LONGEST_WAIT).await
}
