//! Pure: replay values and effects of replays for people.

use admin_api::dead_letters::DeadLetterItem;
use admin_api::replay_value::{ReplayValue, ReplayValues};
use cli::time::clock;
use saga_core::dead_letter::{DeadLetterOrigin, ReplayEffect};

/// Explains whether a replay would still change anything; `None` if admin does not know.
pub fn value_text(dead_letter: &DeadLetterItem) -> Option<String> {
    let ReplayValue { awaited, saga_status, until } = dead_letter.replay_value?;
    Some(match (dead_letter.origin, dead_letter.saga) {
        (DeadLetterOrigin::Foreign, _) => {
            "none: a foreign message, which no saga waits for; discard it (sagactl dlq discard)".to_owned()
        }
        (_, None) => "it belongs to no saga, and its effect is missing until it is processed".to_owned(),
        (_, Some(_)) => {
            let status = saga_status.map(|status| format!(" ({})", status.as_str())).unwrap_or_default();
            match (awaited, until) {
                (true, Some(until)) => format!("its saga{status} waits for it until {}", clock(until)),
                (true, None) => format!("its saga{status} waits for it"),
                (false, _) => format!("none: its saga{status} no longer waits for it"),
            }
        }
    })
}

/// Summarises the replay values of many dead letters.
pub fn values_text(values: &ReplayValues) -> String {
    let until = match (values.first_until, values.last_until) {
        (Some(first), Some(last)) => {
            format!(", the first until {}, the last until {}", clock(first), clock(last))
        }
        _ => String::new(),
    };
    let ended = match values.ended {
        0 => String::new(),
        ended => format!("; a replay of {ended} changes nothing, as their sagas no longer wait"),
    };
    format!("{} are awaited{until}{ended}", values.awaited)
}

pub fn effect_text(effect: &ReplayEffect) -> String {
    match effect {
        ReplayEffect::TookEffect => "it took effect".to_owned(),
        ReplayEffect::ChangedNothing => {
            "it changed nothing: the saga had ended, or the work was done by other means".to_owned()
        }
        ReplayEffect::Rejected { reason } => format!("it changed nothing: {reason}"),
    }
}
