//! Pure: record of how the earlier processes of an instance ended, and of the messages that they died of.
//!
//! A message that kills its process would be redelivered for ever, and take others of its batch along each time. After two
//! crashes in a row, each batch with messages that may have been tried before is a [`trial`](RunRecord::begin_trial), which is
//! recorded first. Messages of a trial that killed the process are processed alone from then on. A message whose trials alone
//! keep killing the process is dead-lettered.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Time without a crash after which a series of crashes is over.
const SERIES_GAP: SignedDuration = SignedDuration::from_mins(10);

/// Crashes in a row from which trials are recorded. A single kill or power cut is no reason.
const CRASHES_BEFORE_TRIALS: u32 = 2;

/// Crashes in a row from which a person should know.
const CRASH_LOOP: u32 = 3;

/// Trials of one message alone that the process may die of. Two, as somebody may kill it during the first.
const MAX_DEADLY_TRIALS: u32 = 2;

/// Maximum number of messages that are remembered, and of those in one trial. More than in a usual batch.
const MAX_SUSPECTS: usize = 1_000;

/// Record of one instance, stored at each start and trial, and deleted by an orderly stop. A record that is there at a start
/// means that the process before has crashed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// Start of the last process.
    started_at: Timestamp,
    /// Number of crashes in the series.
    crashes: u32,
    /// Start after the first crash of the series.
    first_crash: Option<Timestamp>,
    /// Messages on trial, with the deaths that count if the process dies now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trial: Vec<Suspect>,
    /// Messages of trials of which the process has died.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suspects: Vec<Suspect>,
    /// Last message that was dead-lettered because the process kept dying of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_lettered: Option<Suspect>,
}

/// Message that may kill the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// Step that processes it.
    pub step: String,
    /// Id of the message.
    pub message: Uuid,
    /// Number of trials alone of which the process died.
    pub deaths: u32,
}

impl RunRecord {
    /// Record of a process that follows none, or one that has stopped in order.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { started_at: now, ..Self::default() }
    }

    /// Continues the record of a process that has crashed.
    #[must_use]
    pub fn after_crash(mut self, now: Timestamp) -> Self {
        if now.duration_since(self.started_at) > SERIES_GAP {
            self = Self { trial: self.trial, ..Self::default() };
        }
        let mut trial = std::mem::take(&mut self.trial);
        self.suspects.retain(|known| !trial.iter().any(|new| new.is(&known.step, known.message)));
        self.suspects.append(&mut trial);
        let surplus = self.suspects.len().saturating_sub(MAX_SUSPECTS);
        self.suspects.drain(..surplus);
        let crashes = self.crashes.saturating_add(1);
        let first_crash = self.first_crash.or(Some(now));
        Self { started_at: now, crashes, first_crash, ..self }
    }

    /// True if messages that may have been tried before are processed in trials.
    #[must_use]
    pub fn requires_trials(&self, now: Timestamp) -> bool {
        self.crashes >= CRASHES_BEFORE_TRIALS && self.is_fresh(now)
    }

    /// True if the last process started within a day. Older records of other instances are deleted.
    #[must_use]
    pub fn is_recent(&self, now: Timestamp) -> bool {
        now.duration_since(self.started_at) <= SignedDuration::from_hours(24)
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.started_at) <= SERIES_GAP
    }

    /// True if the process has died in a trial with this message, which is to be processed alone.
    #[must_use]
    pub fn is_suspect(&self, step: &str, message: Uuid) -> bool {
        self.suspects.iter().any(|suspect| suspect.is(step, message))
    }

    /// Number of processes that have died of this message, if it is to be dead-lettered.
    #[must_use]
    pub fn deadly(&self, step: &str, message: Uuid) -> Option<u32> {
        let deaths = self.deaths(step, message);
        (deaths >= MAX_DEADLY_TRIALS).then_some(deaths)
    }

    fn deaths(&self, step: &str, message: Uuid) -> u32 {
        self.suspects.iter().find(|suspect| suspect.is(step, message)).map_or(0, |suspect| suspect.deaths)
    }

    /// Begins the trial of messages, given with their steps. To be stored before they are processed. `is_alone` if there is one,
    /// and nothing else in its batch.
    pub fn begin_trial<'a>(&mut self, messages: impl IntoIterator<Item = (&'a str, Uuid)>, is_alone: bool) {
        let of = |(step, message): (&str, Uuid)| {
            let deaths = self.deaths(step, message) + u32::from(is_alone);
            Suspect { step: step.to_owned(), message, deaths }
        };
        self.trial = messages.into_iter().take(MAX_SUSPECTS).map(of).collect();
    }

    /// Ends the trial of messages whose outcome is stored.
    pub fn end_trial(&mut self) {
        let ended = std::mem::take(&mut self.trial);
        self.suspects.retain(|suspect| !ended.iter().any(|one| one.is(&suspect.step, suspect.message)));
    }

    /// Records that a message was processed.
    pub fn processed(&mut self, step: &str, message: Uuid) {
        self.suspects.retain(|suspect| !suspect.is(step, message));
    }

    /// Records that a message was dead-lettered. A replay is tried like any other message.
    pub fn dead_lettered(&mut self, step: &str, message: Uuid) {
        if let Some(at) = self.suspects.iter().position(|suspect| suspect.is(step, message)) {
            self.dead_lettered = Some(self.suspects.swap_remove(at));
        }
    }

    /// Describes a series of crashes that a person should know of.
    #[must_use]
    pub fn crash_loop(&self, now: Timestamp) -> Option<String> {
        let first = self.first_crash.filter(|_| self.crashes >= CRASH_LOOP && self.is_fresh(now))?;
        let deadliest = self.suspects.iter().max_by_key(|suspect| suspect.deaths);
        let cause = match (&self.dead_lettered, deadliest) {
            (None, Some(suspect)) if suspect.deaths > 0 => suspect.to_string(),
            (None, Some(Suspect { step, .. })) => {
                format!("it died of one of {} messages, the last at {step}", self.suspects.len())
            }
            (Some(suspect), _) => format!("{suspect}, which is dead-lettered now"),
            (None, None) => "which message it dies of is not known".to_owned(),
        };
        Some(format!("ended {} times without a stop since {first:.0}; {cause}", self.crashes))
    }
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, message, deaths } = self;
        let times = if *deaths == 1 { "once".to_owned() } else { format!("{deaths} times") };
        write!(f, "it died {times} of message {message} at {step} alone")
    }
}

impl Suspect {
    fn is(&self, step: &str, message: Uuid) -> bool {
        self.step == step && self.message == message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    const MESSAGE: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    #[test]
    fn message_is_deadly_after_two_trials_alone_and_others_are_not() {
        let mut record = RunRecord::new(at(0));
        assert!(!record.requires_trials(at(0)));
        record = record.after_crash(at(10));
        assert!(!record.requires_trials(at(10)), "one crash is no reason");
        record = record.after_crash(at(20));
        assert!(record.requires_trials(at(20)));
        let both = [("step", OTHER), ("step", MESSAGE)];
        record.begin_trial(both, false);
        record = record.after_crash(at(25));
        let text = record.crash_loop(at(26)).expect("three crashes");
        assert!(text.ends_with("it died of one of 2 messages, the last at step"), "{text}");
        for second in [30, 40] {
            assert!(record.is_suspect("step", MESSAGE) && !record.is_suspect("other", MESSAGE));
            for one in both {
                assert_eq!(record.deadly(one.0, one.1), None);
            }
            record.begin_trial([("step", OTHER)], true);
            record.end_trial();
            assert!(!record.is_suspect("step", OTHER));
            record.begin_trial([("step", MESSAGE)], true);
            record = record.after_crash(at(second));
        }
        let text = record.crash_loop(at(41)).expect("five crashes");
        assert!(text.starts_with("ended 5 times without a stop since 1970-01-01T00:00:10Z"), "{text}");
        assert_eq!((record.deadly("step", MESSAGE), record.deadly("step", OTHER)), (Some(2), None));
        record.dead_lettered("step", MESSAGE);
        let text = record.crash_loop(at(42)).expect("still a crash loop");
        assert!(text.ends_with("2 times of message 00000000-0000-0000-0000-000000000001 at step alone, which is dead-lettered now"), "{text}");
        assert_eq!(record.deadly("step", MESSAGE), None, "a replay is tried again");
    }

    #[test]
    fn processed_message_is_suspect_no_longer_and_the_deadliest_is_named() {
        let mut record = RunRecord::new(at(0));
        record.begin_trial([("step", OTHER), ("step", MESSAGE)], false);
        record = record.after_crash(at(1)).after_crash(at(2));
        record.begin_trial([("step", MESSAGE)], true);
        record = record.after_crash(at(3));
        let text = record.crash_loop(at(4)).expect("three crashes");
        assert!(
            text.ends_with("it died once of message 00000000-0000-0000-0000-000000000001 at step alone"),
            "{text}"
        );
        record.processed("step", MESSAGE);
        assert!(!record.is_suspect("step", MESSAGE) && record.is_suspect("step", OTHER));
    }

    #[test]
    fn series_ends_after_ten_minutes() {
        let crashed = (1..4).fold(RunRecord::new(at(0)), |record, second| record.after_crash(at(second)));
        assert!(crashed.crash_loop(at(4)).is_some() && crashed.requires_trials(at(4)));
        assert_eq!((crashed.crash_loop(at(700)), crashed.requires_trials(at(700))), (None, false));
        let later = crashed.clone().after_crash(at(700));
        assert_eq!((later.crash_loop(at(700)), later.crashes), (None, 1));
        assert_eq!(crashed.after_crash(at(603)).crashes, 4, "ten minutes after the last start");
    }

    #[test]
    fn message_on_trial_is_suspect_in_the_next_series() {
        let mut record = RunRecord::new(at(0));
        record.begin_trial([("step", MESSAGE)], true);
        let later = record.after_crash(at(700));
        assert!(later.is_suspect("step", MESSAGE) && !later.is_suspect("step", OTHER));
    }

    #[test]
    fn record_is_recent_for_a_day() {
        let record = RunRecord::new(at(0));
        assert!(record.is_recent(at(86_400)) && !record.is_recent(at(86_401)));
    }
}
