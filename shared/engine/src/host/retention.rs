//! Shell: how long things are kept (section `retention`).

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use saga_core::decider::RetentionPolicy;
use saga_core::row::RowKind;
use serde::{Deserialize, Serialize};

use super::archive::Period;
use crate::runtime::signed;
use crate::store::{Cutoffs, Departures};

/// How long finished things are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionSettings {
    /// Inbox marks. At least as long as the broker keeps facts, or an old one would be handled twice.
    #[serde(with = "humantime_serde")]
    pub inbox: Duration,
    /// Answers under idempotency keys.
    #[serde(with = "humantime_serde")]
    pub idempotency_key: Duration,
    /// Facts that the broker has, to be published again should it lose them; counted from their publication.
    #[serde(with = "humantime_serde")]
    pub published: Duration,
    /// Dead letters that were resolved or given up; those that wait for somebody are kept whatever it says. A step knows by
    /// them what it has handled, as by its inbox marks.
    pub dead_letter: RetentionPeriod,
    /// Finished rows, with all their events, and old events of rows that live on and whose history has no end. What others
    /// may still ask of leaves `bus.retention` later.
    pub history: RetentionPeriod,
    /// The folder to which events and dead letters go when they leave the database; without one they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<PathBuf>,
    /// What one file of the archive holds.
    pub archive_period: Period,
    /// Entries that go in one small transaction.
    pub chunk: usize,
    /// Pause between looks.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
}

/// How long something is kept: a time such as `90d`, or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RetentionPeriod {
    /// It never goes.
    #[default]
    Forever,
    /// It goes when it is older.
    For(Duration),
}

/// No two clocks differ by more, where one service says when a saga began and another when it ended.
const CLOCKS_DIFFER: Duration = Duration::from_mins(1);

const FOR_EVER: &str = "forever";

impl TryFrom<String> for RetentionPeriod {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.trim() {
            FOR_EVER => Ok(Self::Forever),
            time => humantime_serde::re::humantime::parse_duration(time)
                .map(Self::For)
                .map_err(|why| format!("{text:?} is neither {FOR_EVER:?} nor a time such as \"90d\": {why}")),
        }
    }
}

impl From<RetentionPeriod> for String {
    fn from(kept: RetentionPeriod) -> Self {
        kept.to_string()
    }
}

impl Display for RetentionPeriod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => formatter.write_str(FOR_EVER),
            Self::For(time) => humantime_serde::re::humantime::format_duration(*time).fmt(formatter),
        }
    }
}

impl RetentionPeriod {
    /// What is older than this goes.
    fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Forever => Timestamp::MIN,
            Self::For(time) => before(now, time),
        }
    }

    fn is_at_least(self, time: Duration) -> bool {
        match self {
            Self::Forever => true,
            Self::For(kept) => kept >= time,
        }
    }
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    now.checked_sub(signed(age)).unwrap_or(Timestamp::MIN)
}

impl RetentionSettings {
    /// What may be deleted at this time.
    #[must_use]
    pub fn cutoffs(&self, now: Timestamp) -> Cutoffs {
        Cutoffs {
            inbox: before(now, self.inbox),
            keys: before(now, self.idempotency_key),
            published: before(now, self.published),
        }
    }

    /// What may leave the database of a service with these rows at this time, for the archive if there is one. What is said
    /// by those whose rows leave first may be `delivered` so much later.
    #[must_use]
    pub fn departures(&self, now: Timestamp, rows: &[RowKind], delivered: Duration) -> Departures {
        let waits = rows.iter().any(|kind| kind.retention == RetentionPolicy::PurgeRows);
        let delivered = if waits { delivered } else { Duration::ZERO };
        let (history, ahead) = match self.history {
            RetentionPeriod::Forever => (Timestamp::MIN, Duration::ZERO),
            RetentionPeriod::For(time) => {
                (before(now, time.saturating_add(delivered)), CLOCKS_DIFFER.min(time / 2))
            }
        };
        // The clock by which a saga began may have been ahead of the one that its events go by.
        let began = history.checked_add(signed(ahead)).unwrap_or(history);
        Departures { history, began, dead_letters: self.dead_letter.before(now) }
    }

    /// Why this cannot be; `delivered` is how long the broker keeps facts.
    pub(super) fn check(&self, delivered: Duration) -> Result<(), &'static str> {
        let rules = [
            (self.chunk >= 1, "chunk must be at least 1"),
            (!self.every.is_zero(), "every must be longer than 0s"),
            (
                self.inbox >= delivered,
                "inbox must not be shorter than bus.retention: a fact delivered late would be handled twice",
            ),
            (
                self.dead_letter.is_at_least(self.inbox),
                "dead_letter must not be shorter than retention.inbox: a fact delivered late would be handled again",
            ),
            (
                self.history.is_at_least(self.inbox),
                "history must not be shorter than retention.inbox: what is delivered late is looked up in it",
            ),
            (
                self.history.is_at_least(self.idempotency_key),
                "history must not be shorter than retention.idempotency_key: what is asked again is looked up in it",
            ),
        ];
        rules.iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, why)| Err(*why))
    }
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            inbox: Duration::from_hours(24 * 8),
            idempotency_key: Duration::from_hours(24),
            published: Duration::from_hours(24),
            dead_letter: RetentionPeriod::For(Duration::from_hours(24 * 30)),
            history: RetentionPeriod::Forever,
            archive: None,
            archive_period: Period::Month,
            chunk: 500,
            every: Duration::from_mins(1),
        }
    }
}
