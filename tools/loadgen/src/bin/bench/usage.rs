//! Shell: resource usage of processes: processor time, context switches, bytes written.

use std::fs;

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use crate::proc::{cpu_us, number_in, switches};

/// Parses `order=123`.
pub fn named_pid(text: &str) -> Result<(String, u32), String> {
    let (name, pid) = text.split_once('=').ok_or("write it like order=123")?;
    Ok((name.to_owned(), pid.parse().map_err(|_| format!("{pid:?} is no process id"))?))
}

/// Usage of each process since its start, and its memory.
pub fn read(processes: &[(String, u32)]) -> anyhow::Result<Value> {
    let mut all = Map::new();
    for (name, pid) in processes {
        let what = || format!("{name} (pid {pid}) cannot be read");
        let io = fs::read_to_string(format!("/proc/{pid}/io")).with_context(what)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(what)?;
        let (voluntary, involuntary) = switches(*pid).with_context(what)?;
        all.insert(
            name.clone(),
            json!({
                "cpu_us": cpu_us(*pid).with_context(what)?,
                "switches_voluntary": voluntary,
                "switches_involuntary": involuntary,
                "bytes_written": number_in(&io, "write_bytes"),
                "write_calls": number_in(&io, "syscw"),
                "rss_kib": number_in(&status, "VmRSS"),
            }),
        );
    }
    Ok(Value::Object(all))
}

/// Usage per saga between two results, and the memory of the later one.
pub fn per_saga(before: &Value, after: &Value, sagas: u64) -> Value {
    let of = |name: &str, now: &Value| {
        let used = |what: &str| {
            let number = |of: &Value| of[what].as_u64().unwrap_or_default();
            thousandths(number(now).saturating_sub(number(&before[name])), sagas)
        };
        json!({
            "cpu_us": used("cpu_us"),
            "switches_voluntary": used("switches_voluntary"),
            "switches_involuntary": used("switches_involuntary"),
            "bytes_written": used("bytes_written"),
            "write_calls": used("write_calls"),
            "rss_kib": now["rss_kib"],
        })
    };
    let all = after.as_object().into_iter().flatten();
    Value::Object(all.map(|(name, now)| (name.clone(), of(name, now))).collect())
}

#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "shown to people, far below 2^52")]
fn thousandths(count: u64, sagas: u64) -> f64 {
    (count as f64 * 1_000.0 / sagas.max(1) as f64).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_divided_by_the_sagas_in_between() {
        let own = read(&[("own".to_owned(), std::process::id())]).expect("it runs");
        assert!(own["own"]["rss_kib"].as_u64() > Some(0), "{own:#}");
        let (before, after) =
            (json!({"a": {"cpu_us": 1_000}}), json!({"a": {"cpu_us": 3_001, "rss_kib": 7}}));
        let used = per_saga(&before, &after, 2);
        assert_eq!((&used["a"]["cpu_us"], &used["a"]["rss_kib"]), (&1000.5.into(), &7.into()));
        assert_eq!(used["a"]["switches_voluntary"], 0.0);
        assert!(named_pid("order").is_err() && named_pid("order=x").is_err());
        assert_eq!(named_pid("order=7"), Ok(("order".to_owned(), 7)));
    }
}
