//! Shell: what came of a replay, waited for.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use super::worth::{Effect, Of, Worth};
use crate::admin::{Admin, Done, Several, read, said};
use cli::exit::{self, ExitError, ItemError};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Of these a replay can be waited for together; more are a redrive's work.
const MOST: usize = 1_000;

#[derive(Debug, Deserialize)]
struct Standing {
    status: String,
    origin: String,
    saga: Option<String>,
    reason: String,
    effect: Option<Effect>,
    replay_value: Option<Worth>,
}

/// Waits for so long until none of these dead letters is being replayed any more, and tells what came of each. There is
/// one look at each at least.
///
/// # Errors
/// When admin fails.
pub async fn of_all(
    admin: &Admin,
    ids: impl IntoIterator<Item = String>,
    wait: Duration,
    mut several: Several,
) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    for id in ids {
        if several.tell(&id, of(admin, &id, began, wait).await).is_break() {
            break;
        }
    }
    several.end()
}

/// Waits until a dead letter is not being replayed any more, and tells what came of it.
///
/// # Errors
/// When it failed again, changed nothing, or is still under way when the time is over.
async fn of(admin: &Admin, id: &str, began: Instant, wait: Duration) -> anyhow::Result<Done> {
    loop {
        let answer = admin.ask(&["dlq", id], &()).await?;
        let now: Standing = read(answer.clone())?;
        match now.status.as_str() {
            "REPLAYING" if began.elapsed() < wait => sleep(PAUSE).await,
            "REPLAYING" => {
                let detail = "still being replayed; its service may be away: sagactl status tells";
                return Err(ItemError(detail.to_owned()).into());
            }
            "RESOLVED" => return resolved(id, answer, now.effect.as_ref()),
            status => {
                let of = Of::one(&now.origin, now.saga.as_ref());
                let worth =
                    now.replay_value.map(|worth| format!(" ({})", worth.told(of))).unwrap_or_default();
                let detail = format!("{status} again: {}{worth}", now.reason);
                return Err(ExitError::new(exit::REJECTED, detail).into());
            }
        }
    }
}

fn resolved(id: &str, answer: Value, effect: Option<&Effect>) -> anyhow::Result<Done> {
    match effect {
        Some(Effect::Done) | None => {
            let told = effect.map_or("it is handled", Effect::told_in_short);
            Ok(Done { answer, told: format!("{id} is RESOLVED: {told}") })
        }
        Some(effect @ (Effect::ChangedNothing | Effect::Rejected { .. })) => {
            Err(ExitError::new(exit::REJECTED, format!("RESOLVED, but {}", effect.told())).into())
        }
    }
}

/// Ids of what waits and matches, oldest last.
///
/// # Errors
/// When there are too many to wait for.
pub async fn matching(admin: &Admin, filter: &Value) -> anyhow::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Page {
        dead_letters: Vec<Item>,
        next: Option<String>,
    }
    #[derive(Deserialize)]
    struct Item {
        id: String,
    }
    let mut query = said(filter)?;
    query["status"] = "PENDING".into();
    query["limit"] = 200.into();
    let mut ids = Vec::new();
    loop {
        let page: Page = read(admin.ask(&["dlq"], &query).await?)?;
        ids.extend(page.dead_letters.into_iter().map(|item| item.id));
        if ids.len() > MOST {
            let detail = format!("more than {MOST} match: use sagactl dlq redrive, which watches them");
            return Err(ExitError::new(exit::REJECTED, detail).into());
        }
        let Some(next) = page.next else { return Ok(ids) };
        query["cursor"] = next.into();
    }
}
