//! Pure: what people have been told, in one row that all instances of admin share: what follows from another look at
//! everything is decided on it, so that nobody is told twice and nothing is forgotten. Time is an argument.

use std::collections::{BTreeMap, VecDeque};

use contract::overview::grouped;
use jiff::{SignedDuration, Timestamp};
use saga_core::decider::{Decider, RetentionPolicy};
use saga_core::waiting::is_over;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::alerts::{CAUSE, Look};
use super::notice::{Line, Notice, NoticeKind};

/// The id of the one row.
pub const THE_TOLD: &str = "all";

/// What has grown by this factor since it was told is told again: so seldom that it is no storm, however much comes.
const GROWN: u64 = 10;

/// What is worse than what was told, or is for somebody else, waits this part of the quiet time; the next notice waits
/// all of it again, so that there are never more than two in that time.
const PART_OF_QUIET: i32 = 5;

/// Notices that are remembered, with what became of them.
const MOST_REMEMBERED: usize = 20;

/// Causes of dead letters that are known one by one. Of more than are shown nobody can say which are over, so that they
/// would pile up as others take their place; what there is besides is an alert of its own.
const MOST_CAUSES: usize = 1_000;

/// How often people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The least time between two notices; what is away for so long is over.
    pub quiet: SignedDuration,
    /// After so long somebody is told again of what is still so.
    pub remind: SignedDuration,
    /// How long something must last that may be over in a moment.
    pub patience: SignedDuration,
}

/// What has been told, and what is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// What is wrong, or was until a moment ago, by key.
    known: BTreeMap<String, Known>,
    /// The notice that is being sent: there is no other before it has arrived.
    under_way: Option<Notice>,
    /// When the last notice was decided.
    last_at: Option<Timestamp>,
    /// It did not wait for the quiet time: the next does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    was_early: bool,
    /// Whom it was for, by a digest of the address; absent for standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    told_to: Option<String>,
    /// The last notices, the newest first.
    recent: VecDeque<Sent>,
}

/// Something that is wrong, or was until a moment ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Known {
    /// What is wrong, in one line, as it was seen first.
    pub text: String,
    /// When it was seen first.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// From then on it is told: what may be over in a moment has to last.
    #[schema(value_type = String, format = DateTime)]
    pub tell_from: Timestamp,
    /// When somebody was told last, perhaps of an earlier time; absent while nobody was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub told_at: Option<Timestamp>,
    /// How much of it there was when somebody was told last; absent where it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_count: Option<u64>,
    /// Since when it is not to be seen any more; absent while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub gone_since: Option<Timestamp>,
}

/// A notice, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sent {
    /// Its id, which is its `webhook-id`.
    pub id: Uuid,
    /// Why it is sent.
    pub kind: NoticeKind,
    /// All of it in one line.
    pub text: String,
    /// When it was decided.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// When it had arrived; absent while it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub delivered_at: Option<Timestamp>,
    /// Why it was given up; what it told is told again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// What is asked of it.
#[derive(Debug, Clone)]
pub enum ToldCommand {
    /// Tell what this look found, if it is to be told now.
    Look(Look, Pace),
    /// Send a notice that says nothing but that it arrived.
    Test,
    /// This notice has arrived.
    Deliver(Uuid),
    /// This notice will not arrive, because of that.
    GiveUp(Uuid, String),
}

/// Why it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ToldRejection {
    /// Another test has not arrived yet.
    #[error("the test notice of {0} has not arrived yet")]
    TestUnderWay(Timestamp),
}

/// What happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ToldEvent {
    /// What is wrong is not what it was.
    Changed {
        /// What is wrong now, and was not: from when on it is told.
        came: Vec<(Line, Timestamp)>,
        /// What is to be seen again, after it was away for a moment.
        back: Vec<String>,
        /// What is not to be seen any more.
        left: Vec<String>,
        /// When.
        at: Timestamp,
    },
    /// Somebody is told this.
    Noticed(Notice),
    /// A test is sent.
    Tested(Notice),
    /// A notice has arrived.
    Delivered(Uuid, Timestamp),
    /// A notice will not arrive.
    GivenUp(Uuid, String),
}

impl Known {
    /// Whether it was away for so long that it is over.
    fn is_over(&self, pace: &Pace, now: Timestamp) -> bool {
        self.gone_since.is_some_and(|since| has_passed(pace.quiet, since, now))
    }

    /// Whether somebody was told since it came; of an earlier time somebody may have been told before.
    fn is_told(&self) -> bool {
        self.told_at.is_some_and(|told_at| told_at >= self.since)
    }

    /// How much of it was told, if that is little beside what there is now.
    fn outgrown(&self, now: Option<u64>) -> Option<u64> {
        self.told_count.filter(|told| now.is_some_and(|now| now >= (*told).max(1).saturating_mul(GROWN)))
    }

    fn is_to_be_told(&self, pace: &Pace, now: Timestamp) -> bool {
        // What is away and was not forgotten had lasted.
        !self.is_told() && (is_over(self.tell_from, now, pace.patience) || self.gone_since.is_some())
    }

    /// The same, once it is away; nothing of what was over in a moment, unless somebody still has to hear that what was
    /// told of it before is over.
    fn away(self, at: Timestamp) -> Option<Self> {
        if self.is_told() || self.tell_from < at {
            return Some(Self { gone_since: Some(at), ..self });
        }
        self.told_at.map(|told_at| Self { since: told_at, gone_since: Some(at), ..self })
    }
}

/// Whether so much time has passed since then; a clock that was put back far does not silence anybody.
fn has_passed(time: SignedDuration, since: Timestamp, now: Timestamp) -> bool {
    is_over(later(since, time), now, time)
}

fn before(at: Timestamp) -> Timestamp {
    at.saturating_sub(SignedDuration::from_micros(1)).unwrap_or(Timestamp::MIN)
}

fn later(at: Timestamp, time: SignedDuration) -> Timestamp {
    at.saturating_add(time).unwrap_or(Timestamp::MAX)
}

impl Told {
    /// What is wrong, or was until a moment ago, by key.
    #[must_use]
    pub const fn known(&self) -> &BTreeMap<String, Known> {
        &self.known
    }

    /// The last notices, the newest first.
    pub fn recent(&self) -> impl Iterator<Item = &Sent> {
        self.recent.iter()
    }

    /// The notice that is being sent.
    #[must_use]
    pub const fn under_way(&self) -> Option<&Notice> {
        self.under_way.as_ref()
    }

    /// Whether this look changes anything: most do not, and are not written down.
    #[must_use]
    pub fn is_changed_by(&self, look: &Look, pace: &Pace, now: Timestamp) -> bool {
        !self.looked(look, pace, Uuid::nil(), now).is_empty()
    }

    fn looked(&self, look: &Look, pace: &Pace, id: Uuid, now: Timestamp) -> Vec<ToldEvent> {
        let (mut after, mut events) = (self.clone(), Vec::new());
        if let Some(changed) = self.change(look, pace, now) {
            after.evolve(&changed);
            events.push(changed);
        }
        events.extend(after.notice(look, pace, id, now).map(ToldEvent::Noticed));
        events
    }

    /// What is otherwise than it was.
    fn change(&self, look: &Look, pace: &Pace, now: Timestamp) -> Option<ToldEvent> {
        let (mut came, mut back) = (Vec::new(), Vec::new());
        let mut causes = self.known.keys().filter(|key| key.starts_with(CAUSE)).count();
        for (key, alert) in &look.alerts {
            let is_new_cause = key.starts_with(CAUSE) && !self.known.contains_key(key);
            if is_new_cause && causes >= MOST_CAUSES {
                continue;
            }
            causes += usize::from(is_new_cause);
            match self.known.get(key) {
                Some(known) if known.gone_since.is_none() => {}
                // Nobody was told yet, or it was away for a moment only.
                Some(known) if !known.is_told() || !known.is_over(pace, now) => back.push(key.clone()),
                Some(_) | None => {
                    let (key, text) = (key.clone(), alert.text.clone());
                    let tell_from = if alert.may_pass { later(now, pace.patience) } else { now };
                    came.push((Line { key, text, count: alert.count, since: now, until: None }, tell_from));
                }
            }
        }
        let is_away = |key: &String| !look.alerts.contains_key(key) && look.knows(key);
        let seen = self.known.iter().filter(|(_, known)| known.gone_since.is_none());
        let left: Vec<_> = seen.map(|(key, _)| key.clone()).filter(is_away).collect();
        let is_same = came.is_empty() && back.is_empty() && left.is_empty();
        (!is_same).then_some(ToldEvent::Changed { came, back, left, at: now })
    }

    /// What is to be told now: nothing before the last notice has arrived, and the quiet time after it is over, or part
    /// of it for what cannot wait. Another receiver has heard nothing of what is still so.
    fn notice(&self, look: &Look, pace: &Pace, id: Uuid, now: Timestamp) -> Option<Notice> {
        let is_within = |time| self.last_at.is_some_and(|last| !has_passed(time, last, now));
        let is_quiet = is_within(pace.quiet);
        if self.under_way.is_some() || is_within(pace.quiet / PART_OF_QUIET) || (is_quiet && self.was_early) {
            return None;
        }
        let is_elsewhere = self.told_to != look.to;
        let (mut new, mut still, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        let (mut is_old, mut is_unripe, mut cannot_wait) = (false, false, false);
        for (key, known) in &self.known {
            let line = |until| {
                let alert = look.alerts.get(key);
                let text = alert.map_or(&known.text, |alert| &alert.text).clone();
                let count = alert.and_then(|alert| alert.count);
                Line { key: key.clone(), text, count, since: known.since, until }
            };
            match known.told_at.filter(|_| known.is_told()) {
                None if known.is_to_be_told(pace, now) => {
                    cannot_wait |= look.alerts.get(key).is_some_and(|alert| alert.is_grave);
                    new.push(line(known.gone_since));
                }
                None => is_unripe = true,
                Some(_) if known.is_over(pace, now) => gone.push(line(known.gone_since)),
                Some(told_at) => {
                    let line = line(known.gone_since);
                    if is_elsewhere && line.until.is_none() {
                        cannot_wait = true;
                        new.push(line);
                        continue;
                    }
                    if let Some(told) = known.outgrown(line.count) {
                        let was = format!("{} (it was {} when it was told last)", line.text, grouped(told));
                        cannot_wait = true;
                        new.push(Line { text: was, ..line });
                        continue;
                    }
                    is_old |= line.until.is_none() && has_passed(pace.remind, told_at, now);
                    still.push(line);
                }
            }
        }
        // Another receiver has not heard of what is away for a moment either: should that come back, it is new.
        if is_elsewhere && !new.is_empty() {
            gone.append(&mut still);
        }
        let all_is_over = !is_unripe && new.iter().chain(&still).all(|line: &Line| line.until.is_some());
        let kind = if is_quiet && !cannot_wait {
            return None;
        } else if !new.is_empty() {
            if all_is_over { NoticeKind::OverByNow } else { NoticeKind::NeedsHuman }
        } else if is_old {
            NoticeKind::Reminder
        } else if still.is_empty() && !is_unripe && !gone.is_empty() {
            NoticeKind::WellAgain
        } else {
            return None;
        };
        Some(Notice { id, kind, at: now, new, still, gone, is_early: is_quiet, to: look.to.clone() })
    }

    fn remember(&mut self, notice: &Notice) {
        let Notice { id, kind, at, .. } = *notice;
        let sent = Sent { id, kind, text: notice.in_words(), at, delivered_at: None, given_up: None };
        self.recent.push_front(sent);
        self.recent.truncate(MOST_REMEMBERED);
    }

    fn sent(&mut self, id: Uuid) -> Option<&mut Sent> {
        self.recent.iter_mut().find(|sent| sent.id == id)
    }

    fn take_change(&mut self, came: &[(Line, Timestamp)], back: &[String], left: &[String], at: Timestamp) {
        for (line, tell_from) in came {
            let (text, since, tell_from) = (line.text.clone(), line.since, *tell_from);
            let told_at = self.known.get(&line.key).and_then(|known| known.told_at);
            // Told while the clock was ahead, it would seem to be told already.
            let told_at = told_at.map(|told_at| told_at.min(before(since)));
            let known = Known { text, since, tell_from, told_at, told_count: None, gone_since: None };
            self.known.insert(line.key.clone(), known);
        }
        for key in back {
            self.known.entry(key.clone()).and_modify(|known| known.gone_since = None);
        }
        for key in left {
            let away = self.known.remove(key).and_then(|known| known.away(at));
            self.known.extend(away.map(|known| (key.clone(), known)));
        }
    }

    fn take_notice(&mut self, notice: &Notice) {
        let told = |known: &mut Known| {
            // Seen while the clock was ahead, it would be told again and again until that time comes.
            (known.told_at, known.since) = (Some(notice.at), known.since.min(notice.at));
        };
        for line in notice.new.iter().chain(&notice.still) {
            self.known.entry(line.key.clone()).and_modify(told);
        }
        // What is still so is only spelt out by a reminder: beside what is new nobody sees how much it is.
        let is_reminder = notice.kind == NoticeKind::Reminder;
        for line in notice.new.iter().chain(notice.still.iter().filter(|_| is_reminder)) {
            self.known.entry(line.key.clone()).and_modify(|known| known.told_count = line.count);
        }
        for line in &notice.gone {
            self.known.remove(&line.key);
        }
        (self.last_at, self.was_early) = (Some(notice.at), notice.is_early);
        self.told_to.clone_from(&notice.to);
        self.remember(notice);
        self.under_way = Some(notice.clone());
    }

    /// Nobody has heard what a notice says: all of it is to be told again.
    fn take_back(&mut self, notice: &Notice) {
        let is_reminder = notice.kind == NoticeKind::Reminder;
        for Line { key, since, .. } in notice.new.iter().chain(notice.still.iter().filter(|_| is_reminder)) {
            // It had lasted, even if it has come back since for a moment.
            let again =
                |known: &mut Known| (known.told_at, known.since, known.tell_from) = (None, *since, *since);
            self.known.entry(key.clone()).and_modify(again);
        }
        for Line { key, text, since, until, .. } in &notice.gone {
            let (text, told_at) = (text.clone(), Some(notice.at));
            let (told_count, gone_since) = (None, *until);
            let known = Known { text, since: *since, tell_from: *since, told_at, told_count, gone_since };
            self.known.entry(key.clone()).or_insert(known);
        }
    }

    /// The notice that is being sent, if it is this one, which is over now.
    fn ended(&mut self, id: Uuid) -> Option<Notice> {
        self.under_way.take_if(|notice| notice.id == id)
    }
}

impl Decider for Told {
    const KIND: &'static str = "told";
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    /// With the id of what asks, which a notice that follows has too, and the time at which it is decided.
    type Command = (ToldCommand, Uuid, Timestamp);
    type Event = ToldEvent;
    type Rejection = ToldRejection;

    fn decide(&self, (command, id, now): &Self::Command) -> Result<Vec<ToldEvent>, ToldRejection> {
        let is_open = |id: &Uuid| {
            let is_it =
                |sent: &&Sent| sent.id == *id && sent.delivered_at.is_none() && sent.given_up.is_none();
            self.recent.iter().any(|sent| is_it(&sent))
                || self.under_way.as_ref().is_some_and(|it| it.id == *id)
        };
        Ok(match command {
            ToldCommand::Look(look, pace) => self.looked(look, pace, *id, *now),
            ToldCommand::Test => {
                let is_test = |sent: &&Sent| sent.kind == NoticeKind::Test && is_open(&sent.id);
                if let Some(open) = self.recent.iter().find(is_test) {
                    return Err(ToldRejection::TestUnderWay(open.at));
                }
                vec![ToldEvent::Tested(Notice::test(*id, *now))]
            }
            ToldCommand::Deliver(notice) if is_open(notice) => vec![ToldEvent::Delivered(*notice, *now)],
            ToldCommand::GiveUp(notice, why) if is_open(notice) => {
                vec![ToldEvent::GivenUp(*notice, why.clone())]
            }
            ToldCommand::Deliver(_) | ToldCommand::GiveUp(..) => vec![],
        })
    }

    fn evolve(&mut self, event: &ToldEvent) {
        match event {
            ToldEvent::Changed { came, back, left, at } => self.take_change(came, back, left, *at),
            ToldEvent::Noticed(notice) => self.take_notice(notice),
            ToldEvent::Tested(notice) => self.remember(notice),
            ToldEvent::Delivered(id, at) => {
                self.ended(*id);
                if let Some(sent) = self.sent(*id) {
                    sent.delivered_at = Some(*at);
                }
            }
            ToldEvent::GivenUp(id, why) => {
                if let Some(notice) = self.ended(*id) {
                    self.take_back(&notice);
                }
                if let Some(sent) = self.sent(*id) {
                    sent.given_up = Some(why.clone());
                }
            }
        }
    }

    fn event_name(event: &ToldEvent) -> &'static str {
        event.into()
    }
}
