//! Shell: what a run costs: the time on processors of the generator and of what it measures.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use devstack::{Member, Usage};

/// What has been spent so far.
#[derive(Debug, Clone, Default)]
pub struct Spent {
    /// By this process.
    pub generator: Duration,
    /// By each process of the system, as far as that can be seen.
    pub system: BTreeMap<Member, Usage>,
}

impl Spent {
    pub fn now(system: BTreeMap<Member, Usage>) -> Self {
        // It knows of itself; and of a machine that would not tell, nothing is said.
        let generator = getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
            let micros = (usage.user_time() + usage.system_time()).num_microseconds();
            Duration::from_micros(u64::try_from(micros).unwrap_or_default())
        });
        Self { generator, system }
    }

    /// What has been spent since; of a process that was started meanwhile, since it was.
    pub fn since(&self, before: &Self) -> Cost {
        let spent = |(member, usage): (&Member, &Usage)| {
            let before = before.system.get(member).map_or(0, |usage| usage.cpu_ms);
            (*member, usage.cpu_ms.checked_sub(before).unwrap_or(usage.cpu_ms))
        };
        Cost {
            generator: self.generator.saturating_sub(before.generator),
            cpu_ms: self.system.iter().map(spent).collect(),
        }
    }
}

/// What was spent between two moments.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    pub generator: Duration,
    pub cpu_ms: BTreeMap<Member, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_what_was_spent_in_between() {
        let at = |generator, cpu_ms| Spent {
            generator: Duration::from_millis(generator),
            system: [(Member::ORDER, Usage { rss_mib: 1.0, cpu_ms })].into(),
        };
        let cost = at(30, 700).since(&at(10, 500));
        assert_eq!((cost.generator, cost.cpu_ms[&Member::ORDER]), (Duration::from_millis(20), 200));
        assert_eq!(at(30, 100).since(&at(10, 500)).cpu_ms[&Member::ORDER], 100, "it was started anew");
        assert!(Spent::now(BTreeMap::new()).generator > Duration::ZERO);
    }
}
