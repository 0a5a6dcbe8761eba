//! Shell: latency of fsync, the lower bound of a durable write.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Size of a database page.
const PAGE: usize = 4096;
/// The first writes, which grow the file, take longer.
const WARM_UP: usize = 20;

/// Appends pages with an fsync each. Latencies are in microseconds.
pub fn measure(folder: &Path, length: Duration) -> anyhow::Result<Value> {
    let path = folder.join("fsync");
    let mut file = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    let mut latencies = Histogram::<u64>::new(3)?;
    let (page, began) = ([7_u8; PAGE], Instant::now());
    let mut count = 0;
    while began.elapsed() < length || count <= WARM_UP {
        file.write_all(&page)?;
        let written = Instant::now();
        file.sync_data()?;
        if count >= WARM_UP {
            latencies.record(u64::try_from(written.elapsed().as_micros())?)?;
        }
        count += 1;
    }
    let at = |quantile| latencies.value_at_quantile(quantile);
    Ok(json!({ "p50_us": at(0.5), "p99_us": at(0.99), "count": latencies.len() }))
}
