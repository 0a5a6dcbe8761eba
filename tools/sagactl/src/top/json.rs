//! Pure: rates of processes and sagas as JSON.

use serde_json::{Map, Value, json};

use super::quantile::Quantile;
use super::saga_rates::{Rate, RateReport};
use super::state::State;

/// Adds CPU usage of processes and rates of sagas to the JSON of a snapshot.
pub fn with_rates(mut snapshot: Value, state: &State) -> Value {
    for process in snapshot["processes"].as_array_mut().into_iter().flatten() {
        let rate = process["name"].as_str().and_then(|name| state.cpu.get(name));
        process["cpu_percent"] = rate.map_or(Value::Null, |rate| tenths(*rate).into());
    }
    snapshot["saga_rates"] = saga_rates(state.saga_rates.report().as_ref());
    snapshot
}

/// Rates of sagas; `null` if they are unknown.
fn saga_rates(report: Option<&RateReport>) -> Value {
    let Some(RateReport { period, started, ended }) = report else { return Value::Null };
    let ended = ended.iter().map(|(outcome, ended)| {
        let ended = json!({
            "per_s": tenths(ended.rate), "p50_ms": ms(ended.p50), "p99_ms": ms(ended.p99),
        });
        (outcome.clone(), ended)
    });
    json!({
        "period_ms": u64::try_from(period.as_millis()).unwrap_or(u64::MAX),
        "started_per_s": started.map(tenths),
        "ended": ended.collect::<Map<_, _>>(),
    })
}

#[expect(clippy::float_arithmetic, reason = "for programs, to a tenth")]
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn tenths(rate: Rate) -> f64 {
    rate.tenths as f64 / 10.0
}

/// Milliseconds of a quantile; beyond the longest measured duration, that duration.
fn ms(quantile: Option<Quantile>) -> Option<u64> {
    let (Quantile::About(duration) | Quantile::Beyond(duration)) = quantile?;
    u64::try_from(duration.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::top::saga_rates::EndedRate;

    #[test]
    fn unknown_rates_are_null_and_others_numbers() {
        assert_eq!(saga_rates(None), Value::Null);
        let ended = EndedRate {
            rate: Rate { tenths: 498 },
            p50: Some(Quantile::About(Duration::from_millis(34))),
            p99: Some(Quantile::Beyond(Duration::from_secs(60))),
        };
        let period = Duration::from_millis(1_004);
        let report = RateReport { period, started: None, ended: [("completed".to_owned(), ended)].into() };
        let completed = json!({"per_s": 49.8, "p50_ms": 34, "p99_ms": 60_000});
        let wanted = json!({"period_ms": 1_004, "started_per_s": null, "ended": {"completed": completed}});
        assert_eq!(saga_rates(Some(&report)), wanted);
    }
}
