//! Shell: processor time of a run: of the generator and of the system.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use devstack::{Component, Usage};

#[derive(Debug, Clone, Default)]
pub struct CpuTime {
    pub generator: Duration,
    /// Usage of each process of a local system.
    pub system: BTreeMap<Component, Usage>,
}

impl CpuTime {
    pub fn now(system: BTreeMap<Component, Usage>) -> Self {
        let generator = getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
            let micros = (usage.user_time() + usage.system_time()).num_microseconds();
            Duration::from_micros(u64::try_from(micros).unwrap_or_default())
        });
        Self { generator, system }
    }

    /// Processor time since `before`; of a process that was restarted, since its start.
    pub fn since(&self, before: &Self) -> Cost {
        let spent = |(component, usage): (&Component, &Usage)| {
            let before = before.system.get(component).map_or(0, |usage| usage.cpu_ms);
            (*component, usage.cpu_ms.checked_sub(before).unwrap_or(usage.cpu_ms))
        };
        Cost {
            generator: self.generator.saturating_sub(before.generator),
            cpu_ms: self.system.iter().map(spent).collect(),
        }
    }
}

/// Processor time between two moments.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    pub generator: Duration,
    pub cpu_ms: BTreeMap<Component, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_a_difference_or_counts_from_a_restart() {
        let at = |generator, cpu_ms| CpuTime {
            generator: Duration::from_millis(generator),
            system: [(Component::ORDER, Usage { rss_mib: 1.0, cpu_ms })].into(),
        };
        let cost = at(30, 700).since(&at(10, 500));
        assert_eq!((cost.generator, cost.cpu_ms[&Component::ORDER]), (Duration::from_millis(20), 200));
        assert_eq!(at(30, 100).since(&at(10, 500)).cpu_ms[&Component::ORDER], 100, "it was restarted");
        assert!(CpuTime::now(BTreeMap::new()).generator > Duration::ZERO);
    }
}
