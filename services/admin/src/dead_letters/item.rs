//! Pure: a dead letter as lists and answers to commands show it.

use admin_api::dead_letters::DeadLetterItem;
use uuid::Uuid;

use super::view::DeadLetterView;

/// Returns `None` until the service has reported the dead letter.
pub fn item_of(id: Uuid, dead_letter: &DeadLetterView) -> Option<DeadLetterItem> {
    let report = dead_letter.report()?.clone();
    Some(DeadLetterItem {
        id,
        status: dead_letter.status()?,
        service: report.service,
        step: report.step,
        origin: report.origin,
        message_id: report.message_id,
        message_type: report.message_type,
        saga: report.saga,
        reason: report.reason,
        fingerprint: report.fingerprint,
        attempts: report.attempts,
        replays: report.replays,
        first_failed_at: report.first_failed_at,
        last_failed_at: report.last_failed_at,
        redrive: dead_letter.tag().map(|tag| tag.redrive),
        edited: dead_letter.is_edited(),
        effect: dead_letter.effect().cloned(),
        replay_value: None,
        version: dead_letter.version(),
    })
}
