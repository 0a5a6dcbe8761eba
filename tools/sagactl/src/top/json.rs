//! Pure: the same for programs.

use serde_json::{Map, Value, json};

use super::pace::{Rate, Told};
use super::quantile::Quantile;
use super::state::State;

/// How fast sagas go: `null` where it is not known.
pub fn pace(told: Option<&Told>) -> Value {
    let Some(Told { over, started, ended }) = told else { return Value::Null };
    let ended = ended.iter().map(|(outcome, ended)| {
        let told = json!({
            "per_s": tenths(ended.rate), "p50_ms": ms(ended.p50), "p99_ms": ms(ended.p99),
        });
        (outcome.clone(), told)
    });
    json!({
        "over_ms": u64::try_from(over.as_millis()).unwrap_or(u64::MAX),
        "started_per_s": started.map(tenths),
        "ended": ended.collect::<Map<_, _>>(),
    })
}

/// Adds to what is told of each process which part of a processor it takes.
pub fn with_cpu(mut told: Value, state: &State) -> Value {
    for process in told["processes"].as_array_mut().into_iter().flatten() {
        let rate = process["name"].as_str().and_then(|name| state.cpu.get(name));
        process["cpu_percent"] = rate.map_or(Value::Null, |rate| tenths(*rate).into());
    }
    told
}

#[expect(clippy::float_arithmetic, reason = "for programs, to a tenth")]
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn tenths(rate: Rate) -> f64 {
    rate.tenths as f64 / 10.0
}

/// What took longer than anybody measures took at least so long.
fn ms(quantile: Option<Quantile>) -> Option<u64> {
    let (Quantile::About(length) | Quantile::Beyond(length)) = quantile?;
    u64::try_from(length.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::top::pace::Ended;

    #[test]
    fn what_is_not_known_is_null_and_rates_are_numbers() {
        assert_eq!(pace(None), Value::Null);
        let ended = Ended {
            rate: Rate { tenths: 498 },
            p50: Some(Quantile::About(Duration::from_millis(34))),
            p99: Some(Quantile::Beyond(Duration::from_secs(60))),
        };
        let over = Duration::from_millis(1_004);
        let told = Told { over, started: None, ended: [("completed".to_owned(), ended)].into() };
        let completed = json!({"per_s": 49.8, "p50_ms": 34, "p99_ms": 60_000});
        let wanted = json!({"over_ms": 1_004, "started_per_s": null, "ended": {"completed": completed}});
        assert_eq!(pace(Some(&told)), wanted);
    }
}
