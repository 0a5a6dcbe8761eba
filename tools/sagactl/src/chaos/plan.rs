//! Pure: what is done to a system, and when.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use strum::IntoStaticStr;

use crate::local::member::Member;
use crate::local::plan::{Layout, StoreKind};

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
        let has_stream = participant.is_some_and(|participant| participant.has_stream);
        let brokers = layout.brokers().filter(move |_| has_stream);
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
    /// SIGSTOP, and SIGCONT in the end.
    Pause(Member),
    /// Connections break, and none can be made.
    Cut(Link),
    /// Connections stay, and nothing comes through until the end.
    Silence(Link),
}

/// A process, or a link by its two ends.
type Victim = (Member, Option<Member>);

impl Harm {
    /// Whom it is done to: one thing at a time.
    fn victim(self) -> Victim {
        match self {
            Self::Kill(member) | Self::Pause(member) => (member, None),
            Self::Cut(Link { from, to }) | Self::Silence(Link { from, to }) => (from, Some(to)),
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what: &str = self.into();
        match self {
            Self::Kill(member) | Self::Pause(member) => write!(f, "{what} {member}"),
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

/// Disruptions of a run of this length, in the order in which they begin; the last is over when the run is.
/// `dice(n)` answers with a number below `n`, which is at least 1.
pub fn of(layout: Layout, length: Duration, mut dice: impl FnMut(u64) -> u64) -> Vec<Disruption> {
    let (processes, links): (Vec<_>, Vec<_>) = (layout.members().collect(), links(layout).collect());
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
        let how = dice(5);
        let harm = match how {
            0 | 1 => Harm::Kill(one_of(&processes, &mut dice)),
            2 => Harm::Pause(one_of(&processes, &mut dice)),
            3 => Harm::Cut(one_of(&links, &mut dice)),
            _ => Harm::Silence(one_of(&links, &mut dice)),
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
        let plan = plan(layout, 1);
        for member in layout.members() {
            for harm in [Harm::Kill(member), Harm::Pause(member)] {
                assert!(plan.iter().any(|disruption| disruption.harm == harm), "{harm}");
            }
        }
        for link in links(layout) {
            let is_cut = |disruption: &Disruption| matches!(disruption.harm, Harm::Cut(it) | Harm::Silence(it) if it == link);
            assert!(plan.iter().any(is_cut), "{link:?}");
        }
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
