//! Pure: what is done to a system, and when.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use strum::IntoStaticStr;

use devstack::member::Member;
use devstack::plan::{Layout, StoreKind};

/// A way from one process to another that can be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Who connects.
    pub from: Member,
    /// To whom.
    pub to: Member,
}

/// All links of a system: from each process of a service to every broker, to its database, and to whomever it calls.
pub fn links(layout: Layout) -> impl Iterator<Item = Link> {
    layout.services().flat_map(move |from| {
        let participant = from.participant();
        let brokers = layout.brokers().filter(move |_| from.takes_part());
        let database = (layout.store == StoreKind::Postgres).then_some(Member::POSTGRES);
        let calls = participant.into_iter().flat_map(|participant| participant.calls);
        let called = calls.filter_map(|name| name.parse().ok());
        brokers.chain(database).chain(called).map(move |to| Link { from, to })
    })
}

/// What is broken, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Harm {
    /// SIGKILL, and started again in the end.
    Kill(Member),
    /// Told to end, and started again in the end.
    Restart(Member),
    /// SIGSTOP, and SIGCONT in the end.
    Pause(Member),
    /// Stopped nine tenths of the time, as on a machine that has no time for it.
    Starve(Member),
    /// Connections break, and none can be made.
    Cut(Link),
    /// Connections stay, and nothing comes through until the end.
    Silence(Link),
    /// The disk of a broker is full. When there is room again it is restarted, as `up` does.
    FillDisk(Member),
    /// A fault is injected into a service, and cleared in the end.
    Fault(Member, Trouble),
}

/// A fault, none of which may leave a message to a human.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Trouble {
    /// Every second try takes half a second longer.
    Delay,
    /// Half of what is published reaches the broker twice.
    PublishTwice,
    /// The next five tries fail.
    FailTransiently,
    /// No step takes messages.
    Pause,
}

const TROUBLES: [Trouble; 4] =
    [Trouble::Delay, Trouble::PublishTwice, Trouble::FailTransiently, Trouble::Pause];

/// A process, or a link by its two ends.
type Victim = (Member, Option<Member>);

impl Harm {
    /// Whom it is done to: one thing at a time.
    fn victim(self) -> Victim {
        match self {
            Self::Kill(member)
            | Self::Restart(member)
            | Self::Pause(member)
            | Self::Starve(member)
            | Self::FillDisk(member)
            // What is injected reaches all of a service: of several, none is left alone for it.
            | Self::Fault(member, _) => (member, None),
            Self::Cut(Link { from, to }) | Self::Silence(Link { from, to }) => (from, Some(to)),
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: &str = self.into();
        match self {
            Self::Kill(member)
            | Self::Restart(member)
            | Self::Pause(member)
            | Self::Starve(member)
            | Self::FillDisk(member) => write!(f, "{} {member}", what.replace('_', " ")),
            Self::Fault(member, trouble) => {
                let trouble: &str = trouble.into();
                write!(f, "{what} {trouble} at {member}")
            }
            Self::Cut(Link { from, to }) | Self::Silence(Link { from, to }) => {
                write!(f, "{what} {from} → {to}")
            }
        }
    }
}

/// Something that is done for a while. Times are counted from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disruption {
    /// When it begins.
    pub at: Duration,
    /// When it is over.
    pub until: Duration,
    /// What it is.
    pub harm: Harm,
}

/// From the begin of one disruption to the next one's: this, and up to as much again as the second.
const PAUSE_MS: (u64, u64) = (250, 3_500);
/// A disruption lasts the first, and up to as much again as the second.
const LASTS_MS: (u64, u64) = (100, 12_000);
/// Whoever was disrupted is left alone for this long: a process that comes back gets to do something.
const REST: Duration = Duration::from_secs(2);

/// Brokers whose disks are filled: of a cluster one, as it goes on without that.
pub fn disks(layout: Layout) -> impl Iterator<Item = Member> {
    layout.brokers().take(1)
}

/// Disruptions of a run of this length, in the order in which they begin; the last is over when the run is.
/// `dice(n)` answers with a number below `n`, which is at least 1.
pub fn of(layout: Layout, length: Duration, mut dice: impl FnMut(u64) -> u64) -> Vec<Disruption> {
    let services: Vec<_> = Member::services().filter(|service| service.takes_part()).collect();
    let (processes, links): (Vec<_>, Vec<_>) = (layout.members().collect(), links(layout).collect());
    let disks: Vec<_> = disks(layout).collect();
    let mut left_alone: BTreeMap<Victim, Duration> = BTreeMap::new();
    let (mut plan, mut at) = (Vec::new(), Duration::ZERO);
    loop {
        at += Duration::from_millis(PAUSE_MS.0 + dice(PAUSE_MS.1));
        if at >= length {
            return plan;
        }
        // One throw bounds the other: half of them are shorter than a fifth of the longest.
        let most = 1 + dice(LASTS_MS.1);
        let until = at + Duration::from_millis(LASTS_MS.0 + dice(most));
        let how = dice(12);
        let harm = match how {
            0..=2 => Harm::Kill(one_of(&processes, &mut dice)),
            3 => Harm::Restart(one_of(&processes, &mut dice)),
            4 | 5 => Harm::Pause(one_of(&processes, &mut dice)),
            6 => Harm::Starve(one_of(&processes, &mut dice)),
            7 | 8 => Harm::Cut(one_of(&links, &mut dice)),
            9 => Harm::Silence(one_of(&links, &mut dice)),
            10 => Harm::FillDisk(one_of(&disks, &mut dice)),
            _ => Harm::Fault(one_of(&services, &mut dice), one_of(&TROUBLES, &mut dice)),
        };
        let is_free = left_alone.get(&harm.victim()).is_none_or(|until| *until <= at);
        if is_free && until <= length {
            left_alone.insert(harm.victim(), until + REST);
            plan.push(Disruption { at, until, harm });
        }
    }
}

fn one_of<T: Copy>(of: &[T], dice: &mut impl FnMut(u64) -> u64) -> T {
    let index = usize::try_from(dice(of.len() as u64)).unwrap_or_default();
    of[index.min(of.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_mins(10);

    fn plan(layout: Layout, seed: u64) -> Vec<Disruption> {
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
    fn a_plan_follows_from_its_dice_and_breaks_everything_there_is() {
        let layout = Layout::default();
        assert_eq!(plan(layout, 1), plan(layout, 1));
        assert_ne!(plan(layout, 1), plan(layout, 2));
        let plans: Vec<_> = (1..6).flat_map(|seed| plan(layout, seed)).collect();
        for member in layout.members() {
            for harm in [Harm::Kill(member), Harm::Restart(member), Harm::Pause(member), Harm::Starve(member)]
            {
                assert!(plans.iter().any(|disruption| disruption.harm == harm), "{harm}");
            }
        }
        for link in links(layout) {
            let is_cut = |disruption: &Disruption| matches!(disruption.harm, Harm::Cut(it) | Harm::Silence(it) if it == link);
            assert!(plans.iter().any(is_cut), "{link:?}");
        }
        let is_fill = |disruption: &Disruption| disruption.harm == Harm::FillDisk(Member::NATS);
        assert!(plans.iter().any(is_fill));
    }

    #[test]
    fn each_process_of_a_large_system_has_its_own_way_to_each_broker_and_to_its_database() {
        let layout = Layout { store: StoreKind::Postgres, replicas: 3, nats_nodes: 3 };
        let links: Vec<_> = links(layout).collect();
        let of = |to: Member| links.iter().filter(|link| link.to.kind() == to).count();
        // Four services of three replicas take part in the messaging, five have databases.
        assert_eq!((of(Member::NATS), of(Member::POSTGRES)), (4 * 3 * 3, 5 * 3));
    }

    #[test]
    fn nobody_is_disrupted_twice_at_once_and_all_is_over_in_time() {
        for seed in 0..20 {
            let plan = plan(Layout::default(), seed);
            assert!(plan.is_sorted_by_key(|disruption| disruption.at));
            assert!(
                plan.iter().all(|disruption| disruption.at < disruption.until && disruption.until <= LENGTH)
            );
            for (index, one) in plan.iter().enumerate() {
                let others =
                    plan[index + 1..].iter().filter(|other| other.harm.victim() == one.harm.victim());
                assert!(others.into_iter().all(|other| other.at >= one.until + REST), "seed {seed}: {one:?}");
            }
        }
    }
}
