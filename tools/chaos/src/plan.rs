//! Pure: the plan of a run: its disruptions and their times.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use strum::IntoStaticStr;

use devstack::component::Component;
use devstack::plan::{Layout, StoreKind};

/// Connection from one process to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    pub from: Component,
    pub to: Component,
}

/// Links of a system: from each process of a service to every broker, to its database, and to the services it calls.
pub fn links(layout: Layout) -> impl Iterator<Item = Link> {
    layout.services().flat_map(move |from| {
        let participant = from.participant();
        let brokers = layout.brokers().filter(move |_| from.has_stream());
        let database = (layout.store == StoreKind::Postgres).then_some(Component::POSTGRES);
        let calls = participant.into_iter().flat_map(|participant| participant.calls);
        let called = calls.filter_map(|name| name.parse().ok());
        brokers.chain(database).chain(called).map(move |to| Link { from, to })
    })
}

impl Link {
    /// Links of the same process to servers of the same kind.
    pub fn links(self, layout: Layout) -> impl Iterator<Item = Self> {
        links(layout).filter(move |link| link.from == self.from && link.to.kind() == self.to.kind())
    }
}

/// Kind and target of a disruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Disruption {
    /// SIGKILL; started again at the end.
    Kill(Component),
    /// Graceful stop; started again at the end.
    Restart(Component),
    /// SIGSTOP; SIGCONT at the end.
    Pause(Component),
    /// Stopped for nine tenths of the time, as on an overloaded machine.
    Starve(Component),
    /// Connections are closed, and none can be opened.
    Cut(Link),
    /// Connections stay, and data are delayed until the end.
    Silence(Link),
    /// All connections of one process to the brokers, to its database or to another service, for minutes.
    CutPath(Link),
    /// The disk of a broker or of a database is full. At the end the space is freed. Servers are restarted, which they need.
    FillDisk(Component),
    /// PostgreSQL accepts no writes.
    ReadOnly(Component),
    /// The broker's clock is two days ahead, as all processes see it.
    Jump(Component),
    /// At the beginning a copy of the database is taken. At the end the service is killed and started with the copy, which
    /// it must refuse, and then with its database.
    Restore(Component),
    /// Injected fault; cleared at the end.
    Fault(Component, FaultKind),
}

/// Injected faults that must not cause a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum FaultKind {
    /// Half of the attempts take half a second longer.
    Delay,
    /// Half of the messages are published twice.
    PublishTwice,
    /// The next five attempts fail.
    FailTransiently,
    Pause,
}

const FAULT_KINDS: [FaultKind; 4] =
    [FaultKind::Delay, FaultKind::PublishTwice, FaultKind::FailTransiently, FaultKind::Pause];

/// A process, or the two ends of a link.
type Target = (Component, Option<Component>);

impl Disruption {
    /// Targets, each of which has one disruption at a time.
    fn targets(self, layout: Layout) -> Vec<Target> {
        match self {
            Self::Kill(component)
            | Self::Restart(component)
            | Self::Pause(component)
            | Self::Starve(component)
            | Self::FillDisk(component)
            | Self::ReadOnly(component)
            | Self::Restore(component)
            // Reaches all replicas of the service.
            | Self::Fault(component, _) => vec![(component, None)],
            Self::Cut(Link { from, to }) | Self::Silence(Link { from, to }) => vec![(from, Some(to))],
            Self::CutPath(path) => path.links(layout).map(|Link { from, to }| (from, Some(to))).collect(),
            // Its clock, whatever else happens to it.
            Self::Jump(broker) => vec![(broker, Some(broker))],
        }
    }

    /// True if this keeps a process from publishing, or may do so.
    pub fn prevents_publishing(self, process: Component) -> bool {
        let concerns = |component: Component| {
            component == process
                || component == process.kind()
                || component == Component::POSTGRES
                || component.kind() == Component::NATS
        };
        match self {
            Self::Kill(component)
            | Self::Restart(component)
            | Self::Pause(component)
            | Self::Starve(component)
            | Self::FillDisk(component)
            | Self::ReadOnly(component)
            | Self::Jump(component)
            | Self::Restore(component)
            | Self::Fault(component, _) => concerns(component),
            Self::Cut(Link { from, to })
            | Self::Silence(Link { from, to })
            | Self::CutPath(Link { from, to }) => from == process && concerns(to),
        }
    }
}

impl fmt::Display for Disruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: &str = self.into();
        match self {
            Self::Kill(component)
            | Self::Restart(component)
            | Self::Pause(component)
            | Self::Starve(component)
            | Self::FillDisk(component)
            | Self::ReadOnly(component)
            | Self::Jump(component)
            | Self::Restore(component) => write!(f, "{} {component}", what.replace('_', " ")),
            Self::Fault(component, kind) => {
                let kind: &str = kind.into();
                write!(f, "{what} {kind} at {component}")
            }
            Self::Cut(Link { from, to })
            | Self::Silence(Link { from, to })
            | Self::CutPath(Link { from, to }) => {
                write!(f, "{} {from} → {to}", what.replace('_', " "))
            }
        }
    }
}

/// Disruption with its period. Times count from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedDisruption {
    pub at: Duration,
    pub until: Duration,
    pub disruption: Disruption,
}

/// Time between the starts of two disruptions: minimum, and range of the random part.
const PAUSE_MS: (u64, u64) = (250, 3_500);
/// Length of a disruption: minimum, and range of the random part.
const LENGTH_MS: (u64, u64) = (100, 12_000);
/// Length of a cut path: minimum, and range of the random part.
const PATH_LENGTH_MS: (u64, u64) = (60_000, 90_000);
/// Maximum length of a disruption.
pub const MAX_LENGTH: Duration = Duration::from_millis(PATH_LENGTH_MS.0 + PATH_LENGTH_MS.1);
/// Minimum length of a disruption by a copy: the service must have moved on.
const COPY_LENGTH: Duration = Duration::from_secs(10);
/// Pause between two disruptions of one target.
const REST: Duration = Duration::from_secs(2);

/// Processes whose disks are filled: one broker, without which a cluster keeps working; and the database server, or the
/// two services with the most to lose.
pub fn disks(layout: Layout) -> impl Iterator<Item = Component> {
    let databases: &[_] = match layout.store {
        StoreKind::Postgres => &[Component::POSTGRES],
        StoreKind::Sqlite => &[Component::ORDER, Component::INVENTORY],
    };
    layout.brokers().take(1).chain(databases.iter().copied())
}

/// Disruptions of a run of this length, in the order in which they begin; the last is over when the run is.
/// `random(n)` returns a number below `n`, which is at least 1.
pub fn of(layout: Layout, length: Duration, mut random: impl FnMut(u64) -> u64) -> Vec<PlannedDisruption> {
    let services: Vec<_> = Component::services().filter(|service| service.has_stream()).collect();
    let (processes, links): (Vec<_>, Vec<_>) = (layout.components().collect(), links(layout).collect());
    let disks: Vec<_> = disks(layout).collect();
    let mut busy_until: BTreeMap<Target, Duration> = BTreeMap::new();
    let (mut plan, mut at) = (Vec::new(), Duration::ZERO);
    loop {
        at += Duration::from_millis(PAUSE_MS.0 + random(PAUSE_MS.1));
        if at >= length {
            return plan;
        }
        // A random upper bound makes half of them shorter than a fifth of the longest.
        let most = 1 + random(LENGTH_MS.1);
        let until = at + Duration::from_millis(LENGTH_MS.0 + random(most));
        let how = random(15);
        let disruption = match how {
            0..=2 => Disruption::Kill(one_of(&processes, &mut random)),
            3 => Disruption::Restart(one_of(&processes, &mut random)),
            4 | 5 => Disruption::Pause(one_of(&processes, &mut random)),
            6 => Disruption::Starve(one_of(&processes, &mut random)),
            7 | 8 => Disruption::Cut(one_of(&links, &mut random)),
            9 => Disruption::Silence(one_of(&links, &mut random)),
            10 => Disruption::FillDisk(one_of(&disks, &mut random)),
            11 => Disruption::CutPath(one_of(&links, &mut random)),
            12 => Disruption::Jump(Component::NATS),
            13 if layout.store == StoreKind::Postgres => Disruption::ReadOnly(Component::POSTGRES),
            13 => Disruption::Restore(one_of(&services, &mut random)),
            _ => Disruption::Fault(one_of(&services, &mut random), one_of(&FAULT_KINDS, &mut random)),
        };
        let until = match disruption {
            Disruption::CutPath(_) => at + Duration::from_millis(PATH_LENGTH_MS.0 + random(PATH_LENGTH_MS.1)),
            Disruption::Restore(_) => until.max(at + COPY_LENGTH),
            Disruption::Kill(_)
            | Disruption::Restart(_)
            | Disruption::Pause(_)
            | Disruption::Starve(_)
            | Disruption::Cut(_)
            | Disruption::Silence(_)
            | Disruption::FillDisk(_)
            | Disruption::ReadOnly(_)
            | Disruption::Jump(_)
            | Disruption::Fault(..) => until,
        };
        let targets = disruption.targets(layout);
        let is_free = |target| busy_until.get(target).is_none_or(|until| *until <= at);
        if targets.iter().all(is_free) && until <= length {
            busy_until.extend(targets.into_iter().map(|target| (target, until + REST)));
            plan.push(PlannedDisruption { at, until, disruption });
        }
    }
}

fn one_of<T: Copy>(of: &[T], random: &mut impl FnMut(u64) -> u64) -> T {
    let index = usize::try_from(random(of.len() as u64)).unwrap_or_default();
    of[index.min(of.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_mins(10);

    fn plan(layout: Layout, seed: u64) -> Vec<PlannedDisruption> {
        let mut state = seed;
        // SplitMix64 (Steele, Lea, Flood 2014): good enough, and the same everywhere.
        of(layout, LENGTH, move |sides| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % sides
        })
    }

    #[test]
    fn plan_is_deterministic_and_covers_every_target() {
        let layout = Layout::default();
        assert_eq!(plan(layout, 1), plan(layout, 1));
        assert_ne!(plan(layout, 1), plan(layout, 2));
        let plans: Vec<_> = (1..6).flat_map(|seed| plan(layout, seed)).collect();
        for component in layout.components() {
            for disruption in [
                Disruption::Kill(component),
                Disruption::Restart(component),
                Disruption::Pause(component),
                Disruption::Starve(component),
            ] {
                assert!(plans.iter().any(|planned| planned.disruption == disruption), "{disruption}");
            }
        }
        for link in links(layout) {
            let is_cut = |planned: &PlannedDisruption| matches!(planned.disruption, Disruption::Cut(it) | Disruption::Silence(it) if it == link);
            assert!(plans.iter().any(is_cut), "{link:?}");
        }
        let is_fill =
            |planned: &PlannedDisruption| planned.disruption == Disruption::FillDisk(Component::NATS);
        assert!(plans.iter().any(is_fill));
    }

    #[test]
    fn each_replica_has_a_link_to_each_broker_and_to_its_database() {
        let layout = Layout { store: StoreKind::Postgres, replicas: 3, nats_nodes: 3 };
        let links: Vec<_> = links(layout).collect();
        let of = |to: Component| links.iter().filter(|link| link.to.kind() == to).count();
        // Four services of three replicas take part in the messaging, five have databases.
        assert_eq!((of(Component::NATS), of(Component::POSTGRES)), (4 * 3 * 3, 5 * 3));
    }

    #[test]
    fn targets_have_one_disruption_at_a_time_and_all_end_in_time() {
        for seed in 0..20 {
            let plan = plan(Layout::default(), seed);
            assert!(plan.is_sorted_by_key(|planned| planned.at));
            assert!(plan.iter().all(|planned| planned.at < planned.until && planned.until <= LENGTH));
            assert!(plan.iter().all(|planned| planned.until - planned.at <= MAX_LENGTH));
            for (index, one) in plan.iter().enumerate() {
                let targets = one.disruption.targets(Layout::default());
                let others = plan[index + 1..].iter().filter(|other| {
                    let of_other = other.disruption.targets(Layout::default());
                    of_other.iter().any(|target| targets.contains(target))
                });
                assert!(others.into_iter().all(|other| other.at >= one.until + REST), "seed {seed}: {one:?}");
            }
        }
    }
}
