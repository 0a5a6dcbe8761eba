//! Shell: settings of retention (section `retention`).

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use saga_core::decider::RetentionPolicy;
use saga_core::row::RowKind;
use serde::{Deserialize, Serialize};

use super::archive::Period;
use crate::runtime::signed;
use crate::store::{RetentionCutoffs, TrimCutoffs};

/// Retention of finished rows, dead letters and bookkeeping.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionSettings {
    /// Retention of inbox marks. At least `bus.retention`, or a late redelivery would be processed twice.
    #[serde(with = "humantime_serde")]
    pub inbox: Duration,
    /// Retention of answers under idempotency keys.
    #[serde(with = "humantime_serde")]
    pub idempotency_key: Duration,
    /// Retention of published outbox entries, which can be published again if the broker loses them. Counted from their
    /// publication.
    #[serde(with = "humantime_serde")]
    pub published: Duration,
    /// Retention of resolved and discarded dead letters, and of admin's views of them. Unresolved ones are always kept. At
    /// least `retention.inbox`, because dead letters also mark messages as processed.
    pub dead_letter: RetentionPeriod,
    /// Retention of finished rows with their events, and of old events of rows whose history has no end. Rows that
    /// other services may still ask for are kept for `bus.retention` longer.
    pub history: RetentionPeriod,
    /// Folder for purged events and dead letters. Without it they are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<PathBuf>,
    /// Period that one archive file covers.
    pub archive_period: Period,
    /// Number of entries purged in one transaction.
    pub chunk: usize,
    /// Interval at which old rows are purged.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
}

/// Retention period: a time such as `90d`, or `forever`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RetentionPeriod {
    /// Rows are kept and never purged.
    #[default]
    Forever,
    /// Purged when older than this.
    For(Duration),
}

/// Maximum difference between the clocks of the services that date the start and the end of a saga.
const CLOCKS_DIFFER: Duration = Duration::from_mins(1);

const FOREVER: &str = "forever";

impl TryFrom<String> for RetentionPeriod {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.trim() {
            FOREVER => Ok(Self::Forever),
            time => humantime_serde::re::humantime::parse_duration(time)
                .map(Self::For)
                .map_err(|why| format!("{text:?} is neither {FOREVER:?} nor a time such as \"90d\": {why}")),
        }
    }
}

impl From<RetentionPeriod> for String {
    fn from(period: RetentionPeriod) -> Self {
        period.to_string()
    }
}

impl Display for RetentionPeriod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => formatter.write_str(FOREVER),
            Self::For(time) => humantime_serde::re::humantime::format_duration(*time).fmt(formatter),
        }
    }
}

impl RetentionPeriod {
    /// Returns the time before which rows are purged.
    fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Forever => Timestamp::MIN,
            Self::For(time) => before(now, time),
        }
    }

    fn is_at_least(self, time: Duration) -> bool {
        match self {
            Self::Forever => true,
            Self::For(period) => period >= time,
        }
    }
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    now.checked_sub(signed(age)).unwrap_or(Timestamp::MIN)
}

impl RetentionSettings {
    /// Returns the times before which bookkeeping rows are trimmed.
    #[must_use]
    pub fn cutoffs(&self, now: Timestamp) -> TrimCutoffs {
        TrimCutoffs {
            inbox: before(now, self.inbox),
            keys: before(now, self.idempotency_key),
            published: before(now, self.published),
        }
    }

    /// Returns the times before which rows may be purged. Where other services may still ask for rows, they are kept
    /// for `delivered` longer.
    #[must_use]
    pub fn purge_cutoffs(&self, now: Timestamp, rows: &[RowKind], delivered: Duration) -> RetentionCutoffs {
        let waits = rows.iter().any(|kind| kind.retention == RetentionPolicy::PurgeRows);
        let delivered = if waits { delivered } else { Duration::ZERO };
        let (history, ahead) = match self.history {
            RetentionPeriod::Forever => (Timestamp::MIN, Duration::ZERO),
            RetentionPeriod::For(time) => {
                (before(now, time.saturating_add(delivered)), CLOCKS_DIFFER.min(time / 2))
            }
        };
        // The clock that dated the start of a saga may have been ahead of the clock that dated its events.
        let began = history.checked_add(signed(ahead)).unwrap_or(history);
        RetentionCutoffs { history, began, dead_letters: self.dead_letter.before(now) }
    }

    /// Returns the reason for which the settings are impossible. `delivered` is the broker's retention of messages.
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
