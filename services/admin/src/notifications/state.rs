//! Pure: the state of the notifications, in one row that all instances of admin share. Time is an argument.
//!
//! A finding is reported once it has lasted long enough, and again after a while as long as it is open. There is one
//! notification at a time, and a minimum interval between two. An urgent finding waits for neither: its notification replaces
//! the one in flight. Findings count as reported only when the notification is delivered: after a permanent failure they are
//! reported again. What is only left to clean up is not reported, and ends what was reported. An acknowledged finding causes no
//! reminder. It is reported again when it has become much worse.

use std::collections::{BTreeMap, VecDeque};

use admin_api::actor::Actor;
use admin_api::notifications::{Acknowledgement, NotificationKind, SentNotification};
use admin_api::overview::{Finding, FindingCode};
use jiff::{SignedDuration, Timestamp};
use saga_core::decider::{Decider, RetentionPolicy};
use saga_core::waiting::is_over;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::content::{Line, Notification};
use super::open_finding::{Delivery, Open, is_escalated};

/// Id of the only row.
pub const NOTIFICATION_STATE: &str = "all";

/// Cause for which a notification in flight is given up.
const REPLACED: &str = "a later notification replaces it";

/// Notifications that are remembered with their delivery.
const MAX_RECENT: usize = 20;

/// Maximum number of open causes of dead letters. Causes that overviews do not list any more stay open for long.
const MAX_CAUSES: usize = 1_000;

/// Time after which a finding that is gone is forgotten, although a receiver has not learned that. It may not exist any more.
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// Intervals between notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// Minimum time between two notifications, unless a finding is urgent, and time after which a missing finding is gone.
    pub min_interval: SignedDuration,
    /// Time after which an open finding is reported again.
    pub remind_after: SignedDuration,
    /// Time that a finding must last which may pass by itself.
    pub grace_period: SignedDuration,
    /// The same for an urgent finding.
    pub urgent_grace_period: SignedDuration,
}

/// The findings of one overview.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    pub findings: Vec<Finding>,
    /// Prefixes of keys that could not be evaluated. Findings with such a key may still be open.
    pub unknown: Vec<String>,
    /// Digest of the receiver's address; `None` for standard output.
    pub receiver: Option<String>,
    /// Name of the system.
    pub system: String,
}

impl Observation {
    fn of(&self, key: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.key == key)
    }

    fn is_gone(&self, key: &str) -> bool {
        match self.of(key) {
            Some(finding) => finding.to_clean_up,
            None => !self.unknown.iter().any(|prefix| key.starts_with(prefix)),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationState {
    /// Findings by key: open ones, and those that were gone a moment ago.
    open: BTreeMap<String, Open>,
    /// Notification that is being delivered.
    in_flight: Option<Notification>,
    /// Time of the last notification.
    last_at: Option<Timestamp>,
    /// Last notifications, newest first.
    recent: VecDeque<SentNotification>,
}

#[derive(Debug, Clone)]
pub enum NotificationCommand {
    /// Takes the findings of an overview, and sends a notification if one is due.
    Observe(Observation, Intervals),
    /// Sends a test notification, with the name of the system.
    Test(String),
    /// Records who works on a finding, and for how long; with no time, that nobody does.
    Acknowledge { key: String, by: Actor, time: SignedDuration },
    /// Records that a notification was delivered.
    Deliver(Uuid),
    /// Records that a notification cannot be delivered, and why.
    GiveUp(Uuid, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotificationRejection {
    #[error("the test notification of {0} has not been delivered yet")]
    TestInFlight(Timestamp),
    #[error("no finding of this key is open: it may have ended, or has not been noticed yet")]
    NotOpen,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum NotificationEvent {
    /// Findings have changed.
    Changed {
        opened: Vec<(String, Open)>,
        reopened: Vec<String>,
        cleared: Vec<String>,
        at: Timestamp,
    },
    /// A notification is to be delivered.
    Sent(Notification),
    /// A test notification is to be delivered.
    Tested(Notification),
    Delivered(Uuid, Timestamp),
    GivenUp(Uuid, String),
    /// A finding is acknowledged, or its acknowledgement has ended.
    Acknowledged(String, Option<Acknowledgement>),
}

impl NotificationState {
    pub const fn open(&self) -> &BTreeMap<String, Open> {
        &self.open
    }

    /// Acknowledgement of a finding that holds at this time.
    pub fn acknowledged(&self, key: &str, now: Timestamp) -> Option<&Acknowledgement> {
        self.open.get(key)?.acknowledged(now)
    }

    /// Last notifications, newest first.
    pub fn recent(&self) -> impl Iterator<Item = &SentNotification> {
        self.recent.iter()
    }

    pub const fn in_flight(&self) -> Option<&Notification> {
        self.in_flight.as_ref()
    }

    /// True if this observation changes anything. Most do not, and are not stored.
    pub fn is_changed_by(&self, seen: &Observation, intervals: &Intervals, now: Timestamp) -> bool {
        !self.observe(seen, intervals, Uuid::nil(), now).is_empty()
    }

    fn observe(
        &self,
        seen: &Observation,
        intervals: &Intervals,
        id: Uuid,
        now: Timestamp,
    ) -> Vec<NotificationEvent> {
        let (mut after, mut events) = (self.clone(), Vec::new());
        if let Some(changed) = self.changes(seen, intervals, now) {
            after.evolve(&changed);
            events.push(changed);
        }
        events.extend(after.due(seen, intervals, id, now).map(NotificationEvent::Sent));
        events
    }

    /// Compares the open findings with an observation.
    fn changes(&self, seen: &Observation, intervals: &Intervals, at: Timestamp) -> Option<NotificationEvent> {
        let (mut opened, mut reopened) = (Vec::new(), Vec::new());
        let cause = format!("{}:", FindingCode::DeadLetters);
        let mut causes = self.open.keys().filter(|key| key.starts_with(&cause)).count();
        for finding in seen.findings.iter().filter(|finding| !finding.to_clean_up) {
            let key = finding.key.clone();
            match self.open.get(&key) {
                Some(Open { cleared_at: None, .. }) => {}
                // It was gone only for a moment, or was not reported yet.
                Some(open @ Open { cleared_at: Some(gone), .. })
                    if !open.is_reported() || !has_passed(intervals.min_interval, *gone, at) =>
                {
                    reopened.push(key);
                }
                None if finding.code == FindingCode::DeadLetters && causes >= MAX_CAUSES => {}
                Some(_) | None => {
                    causes += usize::from(finding.code == FindingCode::DeadLetters);
                    let grace = match (finding.may_pass, finding.urgent) {
                        (false, _) => SignedDuration::ZERO,
                        (true, false) => intervals.grace_period,
                        (true, true) => intervals.urgent_grace_period.min(intervals.grace_period),
                    };
                    opened.push((key, Open::new(finding, at, later(at, grace))));
                }
            }
        }
        let open = self.open.iter().filter(|(_, open)| open.cleared_at.is_none());
        let cleared: Vec<_> = open.map(|(key, _)| key.clone()).filter(|key| seen.is_gone(key)).collect();
        let is_same = opened.is_empty() && reopened.is_empty() && cleared.is_empty();
        (!is_same).then_some(NotificationEvent::Changed { opened, reopened, cleared, at })
    }

    /// Returns the notification that is due now.
    fn due(
        &self,
        seen: &Observation,
        intervals: &Intervals,
        id: Uuid,
        now: Timestamp,
    ) -> Option<Notification> {
        let receiver = seen.receiver.as_ref();
        let (mut new, mut still, mut cleared) = (vec![], vec![], vec![]);
        let (mut is_urgent, mut needs_reminder, mut all_gone) = (false, false, true);
        for (key, open) in &self.open {
            let finding = seen.of(key);
            match (open.cleared_at, open.report_to(receiver)) {
                // Others were notified of it, and learn its end.
                (Some(_), None) if open.is_reported() => {}
                (Some(at), _) if has_passed(intervals.min_interval, at, now) => {
                    cleared.push(open.line(key, finding));
                }
                (Some(_), _) => all_gone = false,
                (None, Some(last))
                    if !finding.is_some_and(|finding| is_escalated(last.urgent_count, finding)) =>
                {
                    let is_acknowledged = open.acknowledged(now).is_some();
                    needs_reminder |= !is_acknowledged && has_passed(intervals.remind_after, last.at, now);
                    still.push(open.line(key, finding));
                }
                (None, None) if open.acknowledged(now).is_some() => all_gone = false,
                (None, _) if is_over(open.report_from, now, intervals.grace_period) => {
                    is_urgent |= finding.is_some_and(|finding| self.is_urgent(key, finding));
                    new.push(open.line(key, finding));
                }
                (None, _) => all_gone = false,
            }
        }
        new.sort_by_key(|line| !line.urgent);
        let kind = if !new.is_empty() {
            NotificationKind::NeedsHuman
        } else if needs_reminder {
            NotificationKind::Reminder
        } else if still.is_empty() && all_gone && !cleared.is_empty() {
            NotificationKind::Recovered
        } else {
            return None;
        };
        let is_early = self.last_at.is_some_and(|last| !has_passed(intervals.min_interval, last, now));
        let is_blocked = !is_urgent && (self.in_flight.is_some() || is_early);
        let (system, to) = (seen.system.clone(), seen.receiver.clone());
        (!is_blocked).then_some(Notification { id, system, kind, at: now, new, still, cleared, to })
    }

    /// True if a finding that is to be reported is urgent, and the notification in flight does not say so.
    fn is_urgent(&self, key: &str, finding: &Finding) -> bool {
        let in_flight = self.in_flight.iter().flat_map(|sent| &sent.new).find(|line| line.key == key);
        is_escalated(in_flight.and_then(Line::urgent_count), finding)
    }

    fn change(&mut self, opened: &[(String, Open)], reopened: &[String], cleared: &[String], at: Timestamp) {
        self.open.extend(opened.iter().cloned());
        for key in reopened {
            self.open.entry(key.clone()).and_modify(|open| open.cleared_at = None);
        }
        for key in cleared {
            let open = self.open.remove(key);
            // One that passed before it was due is forgotten.
            let was_due = |open: &Open| open.is_reported() || open.report_from < at;
            self.open.extend(open.filter(was_due).map(|mut open| {
                open.cleared_at = Some(at);
                (key.clone(), open)
            }));
        }
    }

    /// Marks the findings of a delivered notification as reported.
    fn mark_reported(&mut self, notification: &Notification) {
        let (to, at) = (notification.to.as_ref(), notification.at);
        for line in notification.new.iter().chain(&notification.still) {
            let delivery = Delivery { at, urgent_count: line.urgent_count() };
            self.open.entry(line.key.clone()).and_modify(|open| open.add_report(to, delivery));
        }
        for line in &notification.cleared {
            // One that has come back meanwhile is new.
            self.open.entry(line.key.clone()).and_modify(|open| open.remove_report(to));
            let is_gone = |open: &Open| open.cleared_at.is_some() && !open.is_reported();
            if self.open.get(&line.key).is_some_and(is_gone) {
                self.open.remove(&line.key);
            }
        }
        self.open.retain(|_, open| open.cleared_at.is_none_or(|gone| at.duration_since(gone) < FORGET_AFTER));
    }

    fn remember(&mut self, notification: &Notification) {
        let Notification { id, kind, at, .. } = *notification;
        let text = notification.text();
        let (delivered_at, given_up, failure, next_attempt) = (None, None, None, None);
        let sent = SentNotification { id, kind, text, at, delivered_at, given_up, failure, next_attempt };
        self.recent.push_front(sent);
        self.recent.truncate(MAX_RECENT);
    }

    fn recent_mut(&mut self, id: Uuid) -> Option<&mut SentNotification> {
        self.recent.iter_mut().find(|sent| sent.id == id)
    }

    /// True if a later notification replaces this one.
    pub fn is_replaced(&self, id: Uuid) -> bool {
        self.recent.iter().any(|sent| sent.id == id && sent.given_up.as_deref() == Some(REPLACED))
    }

    fn is_undelivered(&self, id: Uuid) -> bool {
        let is_it =
            |sent: &SentNotification| sent.id == id && sent.delivered_at.is_none() && sent.given_up.is_none();
        self.recent.iter().any(is_it) || self.in_flight.as_ref().is_some_and(|it| it.id == id)
    }
}

/// True once this time has passed. A clock that was put back far delays nothing.
fn has_passed(time: SignedDuration, since: Timestamp, now: Timestamp) -> bool {
    is_over(later(since, time), now, time)
}

fn later(at: Timestamp, time: SignedDuration) -> Timestamp {
    at.saturating_add(time).unwrap_or(Timestamp::MAX)
}

impl Decider for NotificationState {
    const KIND: &'static str = "notifications";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    /// With the id of the input, which a resulting notification has too, and the time of the decision.
    type Command = (NotificationCommand, Uuid, Timestamp);
    type Event = NotificationEvent;
    type Rejection = NotificationRejection;

    fn decide(
        &self,
        (command, id, now): &Self::Command,
    ) -> Result<Vec<NotificationEvent>, NotificationRejection> {
        Ok(match command {
            NotificationCommand::Observe(seen, intervals) => self.observe(seen, intervals, *id, *now),
            NotificationCommand::Test(system) => {
                let is_test = |sent: &&SentNotification| {
                    sent.kind == NotificationKind::Test && self.is_undelivered(sent.id)
                };
                if let Some(open) = self.recent.iter().find(is_test) {
                    return Err(NotificationRejection::TestInFlight(open.at));
                }
                vec![NotificationEvent::Tested(Notification::test(*id, system.clone(), *now))]
            }
            NotificationCommand::Acknowledge { key, by, time } => {
                let is_open = self.open.get(key).is_some_and(|open| open.cleared_at.is_none());
                let acknowledged = Acknowledgement { by: by.clone(), at: *now, until: later(*now, *time) };
                let acknowledged = Some(acknowledged).filter(|_| time.is_positive());
                match is_open {
                    true => vec![NotificationEvent::Acknowledged(key.clone(), acknowledged)],
                    false => return Err(NotificationRejection::NotOpen),
                }
            }
            NotificationCommand::Deliver(id) if self.is_undelivered(*id) => {
                vec![NotificationEvent::Delivered(*id, *now)]
            }
            NotificationCommand::GiveUp(id, why) if self.is_undelivered(*id) => {
                vec![NotificationEvent::GivenUp(*id, why.clone())]
            }
            NotificationCommand::Deliver(_) | NotificationCommand::GiveUp(..) => vec![],
        })
    }

    fn evolve(&mut self, event: &NotificationEvent) {
        match event {
            NotificationEvent::Changed { opened, reopened, cleared, at } => {
                self.change(opened, reopened, cleared, *at);
            }
            NotificationEvent::Sent(notification) => {
                self.last_at = Some(notification.at);
                // Its findings are in this one too.
                if let Some(replaced) = self.in_flight.replace(notification.clone())
                    && let Some(sent) = self.recent_mut(replaced.id)
                {
                    sent.given_up = Some(REPLACED.to_owned());
                }
                self.remember(notification);
            }
            NotificationEvent::Tested(notification) => self.remember(notification),
            NotificationEvent::Delivered(id, at) => {
                if let Some(notification) = self.in_flight.take_if(|sent| sent.id == *id) {
                    self.mark_reported(&notification);
                }
                if let Some(sent) = self.recent_mut(*id) {
                    sent.delivered_at = Some(*at);
                }
            }
            NotificationEvent::Acknowledged(key, acknowledged) => {
                let open = self.open.entry(key.clone());
                open.and_modify(|open| open.set_acknowledged(acknowledged.clone()));
            }
            NotificationEvent::GivenUp(id, why) => {
                self.in_flight.take_if(|sent| sent.id == *id);
                if let Some(sent) = self.recent_mut(*id) {
                    sent.given_up = Some(why.clone());
                }
            }
        }
    }

    fn event_name(event: &NotificationEvent) -> &'static str {
        event.into()
    }
}
