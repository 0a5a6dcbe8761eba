//! Shell: replays of dead letters, and the wait for their effect.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use admin_api::bulk::{BulkOutcome, Rejected, ReplayMany};
use admin_api::dead_letters::{DeadLetterDetail, DeadLetterPage, Filter, ReplayOne, replayable_statuses};
use anyhow::Context as _;
use clap::Args;
use cli::exit::{self, ItemError, rejected};
use cli::print;
use saga_core::dead_letter::{DeadLetterStatus, ReplayEffect};
use tokio::time::sleep;
use uuid::Uuid;

use super::change::{outcome_text, print_rejections, report, status_outcome};
use super::replay_value::{effect_text, value_text};
use super::selection::{Selection, SelectionOptions, list_params};
use crate::admin::{Admin, Form, ItemOutcome, ItemResults, for_each};
use crate::args::{self, duration};

/// Pause between two checks of a replay.
const POLL: Duration = Duration::from_millis(200);

/// Maximum number of replays to wait for. More are the work of a redrive.
const MAX_AWAITED: usize = 1_000;

#[derive(Debug, Args)]
pub struct ReplayOptions {
    #[command(flatten)]
    selection: SelectionOptions,
    /// Replay even after three failed replays, or while a replay may be lost.
    #[arg(long, requires = "reason")]
    force: bool,
    /// Reason, for the audit log; required with a filter, and with --force.
    #[arg(long, value_parser = args::reason)]
    reason: Option<String>,
    /// Wait for the effect of all replays, 30s if no time is given. Exit code 0 if all took effect, 2 if one failed again or
    /// changed nothing, 1 if a result is not known in time.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    form: Form,
}

pub async fn run(admin: &Admin, options: ReplayOptions) -> anyhow::Result<ExitCode> {
    let ReplayOptions { selection, force, reason, wait, form } = options;
    match selection.selection()? {
        Selection::Ids(ids) => {
            let request = ReplayOne { force, reason, version: None };
            let replay = async |id: &str| {
                let replayed = admin.post(&["dlq", id, "replay"], &request).await;
                status_outcome(&replayed.context("not replayed")?)
            };
            match wait {
                None => for_each(ids, form, replay).await,
                Some(wait) => replay_and_wait(admin, ids, replay, wait, form).await,
            }
        }
        Selection::Matching(filter) => {
            let request = ReplayMany { ids: None, filter: None, reason, force };
            match wait {
                None => {
                    let request = ReplayMany { filter: Some(*filter), ..request };
                    report(&admin.post(&["dlq", "replay"], &request).await?, "replayed", form)
                }
                Some(wait) => replay_matching_and_wait(admin, *filter, request, wait, form).await,
            }
        }
    }
}

/// Replays all of them before it waits for any: a slow replay does not keep others waiting.
async fn replay_and_wait(
    admin: &Admin,
    ids: Vec<Uuid>,
    replay: impl AsyncFn(&str) -> anyhow::Result<ItemOutcome>,
    wait: Duration,
    form: Form,
) -> anyhow::Result<ExitCode> {
    let mut results = ItemResults::new(form);
    let mut replayed = Vec::new();
    for id in ids {
        match replay(&id.to_string()).await {
            Ok(outcome) => replayed.push((id, outcome)),
            Err(error) => {
                if results.record(&id.to_string(), Err(error)).is_break() {
                    // Admin fails, so the effects are unknown. The replays themselves are reported.
                    for (id, outcome) in replayed {
                        let _ = results.record(&id.to_string(), Ok(outcome));
                    }
                    return results.finish();
                }
            }
        }
    }
    wait_for_all(admin, replayed.into_iter().map(|(id, _)| id), wait, results).await
}

/// Replays what matches a filter now, and waits.
async fn replay_matching_and_wait(
    admin: &Admin,
    filter: Filter,
    request: ReplayMany,
    wait: Duration,
    form: Form,
) -> anyhow::Result<ExitCode> {
    // Admin would only say so if something matches.
    if request.reason.is_none() {
        return Err(rejected("reason: is required with a filter (add --reason)"));
    }
    let mut results = ItemResults::new(form);
    let ids = matching(admin, filter, request.force).await?;
    if ids.is_empty() {
        if !form.json {
            print(&outcome_text(&BulkOutcome::default(), "replayed"));
        }
        results.finish()?;
        return Ok(ExitCode::from(exit::NOT_FOUND));
    }
    let request = ReplayMany { ids: Some(ids.clone()), ..request };
    let outcome: BulkOutcome = admin.post(&["dlq", "replay"], &request).await?;
    print_rejections(&outcome, "replayed");
    for Rejected { id, detail, .. } in &outcome.rejected {
        results.reject(&id.to_string(), &format!("{id}: not replayed: {detail}"), exit::REJECTED);
    }
    let rejected: BTreeSet<Uuid> = outcome.rejected.iter().map(|rejection| rejection.id).collect();
    wait_for_all(admin, ids.into_iter().filter(|id| !rejected.contains(id)), wait, results).await
}

/// Waits until none of these dead letters is being replayed, and records the results. Each is checked at least once.
async fn wait_for_all(
    admin: &Admin,
    ids: impl IntoIterator<Item = Uuid>,
    wait: Duration,
    mut results: ItemResults,
) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    for id in ids {
        if results.record(&id.to_string(), wait_for(admin, id, start, wait).await).is_break() {
            break;
        }
    }
    results.finish()
}

/// Waits until a dead letter is no longer being replayed. Fails if the replay failed, changed nothing, or is still in flight
/// when the time is over.
async fn wait_for(admin: &Admin, id: Uuid, start: Instant, wait: Duration) -> anyhow::Result<ItemOutcome> {
    loop {
        let detail: DeadLetterDetail = admin.get(&["dlq", &id.to_string()], &()).await?;
        let dead_letter = &detail.item;
        match dead_letter.status {
            DeadLetterStatus::Replaying if start.elapsed() < wait => sleep(POLL).await,
            DeadLetterStatus::Replaying => {
                let problem = "still being replayed; check its service with sagactl status";
                return Err(ItemError(problem.to_owned()).into());
            }
            DeadLetterStatus::Resolved => {
                return match &dead_letter.effect {
                    None => ItemOutcome::new(&detail, format!("{id} is RESOLVED: it was processed")),
                    Some(effect @ ReplayEffect::TookEffect) => {
                        ItemOutcome::new(&detail, format!("{id} is RESOLVED: {}", effect_text(effect)))
                    }
                    Some(effect) => Err(rejected(format!("RESOLVED, but {}", effect_text(effect)))),
                };
            }
            status @ (DeadLetterStatus::Pending
            | DeadLetterStatus::Discarded
            | DeadLetterStatus::ResolvedManually) => {
                let value = value_text(dead_letter);
                let value = value.map(|value| format!(" (replay value: {value})")).unwrap_or_default();
                let (status, reason) = (status.as_str(), &dead_letter.reason);
                return Err(rejected(format!("{status} again: {reason}{value}")));
            }
        }
    }
}

/// Ids of dead letters that match a filter, and that a replay is accepted for.
async fn matching(admin: &Admin, filter: Filter, force: bool) -> anyhow::Result<Vec<Uuid>> {
    let statuses: Vec<_> = replayable_statuses(force).iter().map(|status| status.as_str()).collect();
    let mut params = list_params(filter, Some(statuses.join(",")), Some(200), None);
    let mut ids = Vec::new();
    loop {
        let page: DeadLetterPage = admin.get(&["dlq"], &params).await?;
        ids.extend(page.dead_letters.into_iter().map(|item| item.id));
        if ids.len() > MAX_AWAITED {
            return Err(rejected(format!(
                "more than {MAX_AWAITED} match: replay them with sagactl dlq redrive"
            )));
        }
        params.cursor = page.next;
        if params.cursor.is_none() {
            return Ok(ids);
        }
    }
}
