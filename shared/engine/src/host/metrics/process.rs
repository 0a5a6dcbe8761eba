//! Shell: metrics of this process, read from the kernel at each scrape.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use saga_core::metric::Metric;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::names;

/// Collector of the process metrics. Exports nothing where the kernel reports nothing.
#[derive(Debug, Default)]
pub(super) struct Process(Mutex<Option<System>>);

struct Seen {
    cpu: Duration,
    memory: u64,
    files: Option<usize>,
    max_files: Option<usize>,
    started_at_s: u64,
}

impl Process {
    fn read(&self) -> Option<Seen> {
        let pid = Pid::from_u32(std::process::id());
        let mut kernel = self.0.lock();
        let kernel = match &mut *kernel {
            Some(kernel) => kernel,
            none @ None => none.insert(System::new().ok()?),
        };
        let what = ProcessRefreshKind::nothing().with_memory().with_cpu().without_tasks();
        kernel.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
        let process = kernel.process(pid)?;
        Some(Seen {
            cpu: Duration::from_millis(process.accumulated_cpu_time()),
            memory: process.memory(),
            files: process.open_files(),
            max_files: process.open_files_limit(),
            started_at_s: process.start_time(),
        })
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(seen) = self.read() else { return Ok(()) };
        show(&mut encoder, &names::CPU, &ConstCounter::new(seen.cpu.as_secs_f64()))?;
        show(&mut encoder, &names::MEMORY, &gauge(seen.memory))?;
        show(&mut encoder, &names::PROCESS_START, &gauge(seen.started_at_s))?;
        for (metric, count) in [(&names::OPEN_FILES, seen.files), (&names::MAX_OPEN_FILES, seen.max_files)] {
            if let Some(count) = count {
                show(&mut encoder, metric, &gauge(count as u64))?;
            }
        }
        Ok(())
    }
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

fn show(encoder: &mut DescriptorEncoder<'_>, metric: &Metric, value: &impl EncodeMetric) -> std::fmt::Result {
    let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
    value.encode(encoder.encode_descriptor(name, metric.help, None, value.metric_type())?)
}
