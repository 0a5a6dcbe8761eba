//! Pure: which notifications follow from findings: none is lost, none is repeated, and flapping is no storm.

use std::collections::{BTreeMap, BTreeSet};

use admin::notifications::content::{Line, Notification};
use admin::notifications::settings::WebhookSettings;
use admin::notifications::state::{
    Intervals, NotificationCommand, NotificationEvent, NotificationRejection, NotificationState, Observation,
};
use admin_api::notifications::NotificationKind;
use admin_api::overview::{Finding, FindingCode, Impact};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use saga_core::decider::Decider as _;
use uuid::Uuid;

pub const INTERVALS: Intervals = Intervals {
    min_interval: SignedDuration::from_secs(60),
    remind_after: SignedDuration::from_secs(3_600),
    grace_period: SignedDuration::from_secs(30),
    urgent_grace_period: SignedDuration::from_secs(3),
};

/// Prefix of findings that may pass.
const PASSING: &str = "unreachable:";

/// Prefix of urgent findings.
const URGENT: &str = "urgent:";

/// Prefix of urgent findings that may pass.
const URGENT_PASSING: &str = "urgent:passing:";

pub fn finding(key: &str) -> Finding {
    let is_of_dead_letters = key.starts_with("dead_letters:");
    let code = if is_of_dead_letters { FindingCode::DeadLetters } else { FindingCode::Unreachable };
    Finding {
        key: key.to_owned(),
        urgent: key.starts_with(URGENT),
        may_pass: key.starts_with(PASSING) || key.starts_with(URGENT_PASSING),
        ..Finding::new(code, "", format!("{key} is wrong"))
    }
}

pub fn seen(keys: &[&str]) -> Observation {
    Observation {
        findings: keys.iter().copied().map(finding).collect(),
        system: "shop".to_owned(),
        ..Observation::default()
    }
}

#[derive(Default)]
pub struct Notifier {
    pub state: NotificationState,
    pub second: i64,
    id: u128,
}

impl Notifier {
    pub fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(self.second)
    }

    /// Executes a command, and returns the resulting notification.
    pub fn execute(&mut self, command: NotificationCommand) -> Option<Notification> {
        self.try_execute(command).expect("accepted")
    }

    /// Executes a command, unless it is rejected.
    pub fn try_execute(
        &mut self,
        command: NotificationCommand,
    ) -> Result<Option<Notification>, NotificationRejection> {
        self.id += 1;
        let events = self.state.decide(&(command, Uuid::from_u128(self.id), self.now()))?;
        let mut notification = None;
        for event in events {
            self.state.evolve(&event);
            if let NotificationEvent::Sent(sent) | NotificationEvent::Tested(sent) = event {
                assert!(notification.replace(sent).is_none(), "one at a time");
            }
        }
        Ok(notification)
    }

    /// Observes at this second. The resulting notification is not delivered yet.
    fn observe(&mut self, second: i64, keys: &[&str]) -> Option<Notification> {
        self.observe_all(second, seen(keys))
    }

    fn observe_all(&mut self, second: i64, seen: Observation) -> Option<Notification> {
        self.second = second;
        self.execute(NotificationCommand::Observe(seen, INTERVALS))
    }

    /// Observes, and delivers the resulting notification: its kind and new findings.
    pub fn delivers(&mut self, second: i64, keys: &[&str]) -> Option<(NotificationKind, Vec<String>)> {
        self.delivers_all(second, seen(keys))
    }

    pub fn delivers_all(
        &mut self,
        second: i64,
        seen: Observation,
    ) -> Option<(NotificationKind, Vec<String>)> {
        let notification = self.observe_all(second, seen)?;
        self.execute(NotificationCommand::Deliver(notification.id));
        Some((notification.kind, keys_of(&notification.new)))
    }
}

fn keys_of(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| line.key.clone()).collect()
}

pub fn needed(keys: &[&str]) -> Option<(NotificationKind, Vec<String>)> {
    Some((NotificationKind::NeedsHuman, keys.iter().map(|key| (*key).to_owned()).collect()))
}

pub const RECOVERED: Option<(NotificationKind, Vec<String>)> = Some((NotificationKind::Recovered, vec![]));
pub const REMINDER: Option<(NotificationKind, Vec<String>)> = Some((NotificationKind::Reminder, vec![]));

#[test]
fn finding_is_reported_once_and_its_end_after_the_minimum_interval() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &[]), None);
    assert_eq!(notifier.delivers(5, &["a"]), needed(&["a"]));
    assert_eq!(notifier.delivers(10, &["a"]), None);
    assert_eq!(notifier.delivers(500, &["a"]), None);
    assert_eq!(notifier.delivers(505, &[]), None, "it may come back");
    assert_eq!(notifier.delivers(564, &[]), None);
    assert_eq!(notifier.delivers(565, &[]), RECOVERED);
    assert!(notifier.state.open().is_empty());
    assert_eq!(notifier.delivers(1_000, &[]), None);
    assert_eq!(notifier.delivers(1_005, &["a"]), needed(&["a"]), "it came back");
}

/// A bank with another ledger is urgent, and no call may be open.
#[test]
fn urgent_finding_that_counts_nothing_is_reported_once() {
    let mut notifier = Notifier::default();
    let empty = || {
        let mut seen = seen(&["urgent:a"]);
        seen.findings[0].count = Some(0);
        seen
    };
    assert_eq!(notifier.delivers_all(0, empty()), needed(&["urgent:a"]));
    for second in [2, 4, 70] {
        assert_eq!(notifier.delivers_all(second, empty()), None);
    }
}

#[test]
fn findings_within_the_minimum_interval_are_reported_together_after_it() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    assert_eq!(notifier.delivers(5, &["a", "b"]), None);
    assert_eq!(notifier.delivers(10, &["a", "b", "c"]), None);
    let notification = notifier.observe(60, &["a", "b", "c"]).expect("a notification");
    assert_eq!(keys_of(&notification.new), ["b", "c"]);
    assert_eq!(notification.text(), "shop: a human is needed: b is wrong; c is wrong; 1 reported before");
}

#[test]
fn flapping_finding_is_reported_once() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    for second in 1..2_000 {
        let keys: &[&str] = if second % 50 < 25 { &["a"] } else { &[] };
        assert_eq!(notifier.delivers(second, keys), None, "after {second} s");
    }
}

#[test]
fn passing_finding_is_reported_after_the_grace_period() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["unreachable:order"]), None);
    assert_eq!(notifier.delivers(29, &["unreachable:order"]), None);
    assert_eq!(notifier.delivers(30, &[]), None, "a restart needs no human");
    assert!(notifier.state.open().is_empty());
    assert_eq!(notifier.delivers(100, &["unreachable:order"]), None);
    assert_eq!(notifier.delivers(130, &["unreachable:order"]), needed(&["unreachable:order"]));
}

/// Somebody is needed within ten seconds, and a restart takes less than three.
#[test]
fn urgent_passing_finding_is_reported_after_a_shorter_grace_period_and_within_the_quiet_time() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    let both = ["a", "urgent:passing:order"];
    assert_eq!(notifier.delivers(1, &both), None);
    assert_eq!(notifier.delivers(3, &both), None);
    let sent = notifier.delivers(4, &both).expect("a notification");
    assert_eq!(sent.0, NotificationKind::NeedsHuman);
    assert_eq!(notifier.delivers(60, &["a", "urgent:passing:payment"]), None);
    assert_eq!(notifier.delivers(62, &["a"]), None, "a restart");
}

#[test]
fn recovery_is_not_reported_while_a_passing_finding_is_open() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    assert_eq!(notifier.delivers(5, &[]), None);
    assert_eq!(notifier.delivers(100, &["unreachable:order"]), None);
    assert_eq!(notifier.delivers(110, &[]), RECOVERED);
}

#[test]
fn finding_that_could_not_be_evaluated_stays_open() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["breaker_open:order/x"]), needed(&["breaker_open:order/x"]));
    let blind = Observation { unknown: vec!["breaker_open:order/".to_owned()], ..seen(&[]) };
    assert_eq!(notifier.delivers_all(1_000, blind), None);
    assert_eq!(notifier.delivers(2_000, &["breaker_open:order/x"]), None);
}

#[test]
fn open_finding_is_reported_again_as_a_reminder() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a", "b"]), needed(&["a", "b"]));
    assert_eq!(notifier.delivers(3_599, &["a"]), None);
    let notification = notifier.observe(3_600, &["a"]).expect("a notification");
    assert_eq!(
        (notification.kind, keys_of(&notification.still)),
        (NotificationKind::Reminder, vec!["a".into()])
    );
    notifier.execute(NotificationCommand::Deliver(notification.id));
    assert_eq!(notifier.delivers(7_199, &["a"]), None);
    let second = notifier.observe(7_200, &["a"]).expect("a notification");
    assert_eq!(keys_of(&second.cleared), ["b"], "what is gone is listed with the next notification");
}

#[test]
fn urgent_finding_is_reported_at_once() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    assert_eq!(
        notifier.delivers(5, &["a", "b", "urgent:c"]),
        needed(&["urgent:c", "b"]),
        "the urgent one first"
    );
    assert_eq!(notifier.delivers(10, &["a", "b", "urgent:c", "d"]), None, "quiet again for the others");
    assert_eq!(notifier.delivers(65, &["a", "b", "urgent:c", "d"]), needed(&["d"]));
}

#[test]
fn urgent_finding_replaces_notification_in_flight() {
    let mut notifier = Notifier::default();
    let first = notifier.observe(0, &["a"]).expect("a notification");
    let second = notifier.observe(5, &["a", "urgent:c"]).expect("a notification at once");
    assert_eq!(keys_of(&second.new), ["urgent:c", "a"], "with all that is not delivered");
    assert!(notifier.state.is_replaced(first.id) && !notifier.state.is_replaced(second.id));
    assert_eq!(notifier.observe(10, &["a", "urgent:c"]), None, "it is under way");
    notifier.execute(NotificationCommand::Deliver(first.id));
    assert_eq!(notifier.observe(11, &["a", "urgent:c"]), None, "the first one changes nothing");
    notifier.execute(NotificationCommand::Deliver(second.id));
    assert!(notifier.state.in_flight().is_none());
    assert_eq!(notifier.delivers(200, &["a", "urgent:c"]), None);
}

#[test]
fn finding_that_becomes_urgent_or_grows_tenfold_is_reported_again_with_its_count() {
    let mut notifier = Notifier::default();
    let mut observe = |second, urgent, count| {
        let findings = vec![Finding { urgent, count: Some(count), ..finding("a") }];
        let sent = notifier.observe_all(second, Observation { findings, ..seen(&[]) })?;
        notifier.execute(NotificationCommand::Deliver(sent.id));
        sent.new.first().map(|line| line.count)
    };
    assert_eq!(observe(0, false, 1), Some(Some(1)));
    assert_eq!(observe(5, false, 500), None, "it is not urgent");
    assert_eq!(observe(10, true, 2), Some(Some(2)));
    assert_eq!(observe(15, true, 19), None);
    assert_eq!(observe(20, true, 20), Some(Some(20)));
    assert_eq!(observe(25, true, 20), None);
}

#[test]
fn finding_that_is_only_left_to_clean_up_ends_and_is_not_reported() {
    let mut notifier = Notifier::default();
    let mut observe = |second, keys: &[(&str, bool)]| {
        let found = |(key, to_clean_up): &(&str, bool)| Finding { to_clean_up: *to_clean_up, ..finding(key) };
        notifier.delivers_all(second, Observation { findings: keys.iter().map(found).collect(), ..seen(&[]) })
    };
    assert_eq!(observe(0, &[("a", true)]), None);
    assert_eq!(observe(5, &[("a", false)]), needed(&["a"]));
    assert_eq!(observe(10, &[("a", true)]), None);
    assert_eq!(observe(70, &[("a", true)]), RECOVERED);
    assert_eq!(observe(5_000, &[("a", true)]), None, "no reminder");
}

#[test]
fn notification_says_money_deadline_and_command() {
    let mut notifier = Notifier::default();
    let amounts =
        vec![serde_json::from_str(r#"{"amount_minor": 840000, "currency": "EUR"}"#).expect("money")];
    let (deadline, commands) = (Some(Timestamp::UNIX_EPOCH), vec!["dlq show 7".to_owned()]);
    let impact = Impact { amounts, deadline, ..Impact::default() };
    let findings = vec![Finding { impact, commands, ..finding("a") }];
    let sent = notifier.observe_all(0, Observation { findings, ..seen(&[]) }).expect("a notification");
    let wanted = "shop: a human is needed: a is wrong, 8400.00 EUR, first deadline 1970-01-01T00:00:00Z (sagactl dlq show 7)";
    assert_eq!(sent.text(), wanted);
}

#[test]
fn notification_says_how_many_orders_wait_and_is_repeated_when_they_grow_tenfold() {
    let mut notifier = Notifier::default();
    let amounts =
        vec![serde_json::from_str(r#"{"amount_minor": 840000, "currency": "EUR"}"#).expect("money")];
    let mut delivers = |at, orders| {
        let (orders, amounts) = (Some(orders), amounts.clone());
        let impact = Impact { orders, amounts, amounts_partial: true, ..Impact::default() };
        let waiting = Finding { impact, urgent: true, ..finding("a") };
        let sent = notifier.observe_all(at, Observation { findings: vec![waiting], ..seen(&[]) })?;
        notifier.execute(NotificationCommand::Deliver(sent.id));
        Some(sent.text())
    };
    let wanted = "shop: a human is needed: a is wrong, 150 orders wait, at least 8400.00 EUR";
    assert_eq!(delivers(0, 150).as_deref(), Some(wanted));
    assert_eq!(delivers(1, 1_499), None);
    assert!(delivers(2, 1_500).is_some_and(|text| text.contains("1,500 orders wait")));
}

#[test]
fn brief_finding_within_the_minimum_interval_is_listed_as_gone() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    assert_eq!(notifier.delivers(5, &["a", "b"]), None);
    assert_eq!(notifier.delivers(20, &[]), None);
    let notification = notifier.observe(80, &[]).expect("a notification");
    assert_eq!(notification.kind, NotificationKind::Recovered);
    assert_eq!(notification.text(), "shop: all findings are resolved: a is wrong; b is wrong");
}

#[test]
fn new_receiver_is_told_what_is_open() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a", "b"]), needed(&["a", "b"]));
    let mut observe = |second, receiver: Option<&str>, keys: &[&str]| {
        notifier.delivers_all(second, Observation { receiver: receiver.map(str::to_owned), ..seen(keys) })
    };
    assert_eq!(observe(12, Some("x"), &["a"]), None, "within the minimum interval");
    assert_eq!(observe(60, Some("x"), &["a"]), needed(&["a"]));
    assert_eq!(observe(200, Some("x"), &["a"]), None);
    assert_eq!(observe(300, Some("y"), &["a"]), needed(&["a"]));
    assert_eq!(observe(360, None, &["a"]), None, "it knows it already");
    assert_eq!(observe(3_700, None, &["a"]), REMINDER);
}

/// Two admins notify different receivers, and share the state.
#[test]
fn each_of_two_receivers_is_told_once_and_learns_the_end() {
    let mut notifier = Notifier::default();
    let mut observe = |second, receiver: &str, keys: &[&str]| {
        notifier.delivers_all(second, Observation { receiver: Some(receiver.to_owned()), ..seen(keys) })
    };
    assert_eq!(observe(0, "x", &["a"]), needed(&["a"]));
    assert_eq!(observe(70, "y", &["a"]), needed(&["a"]));
    for second in (75..3_600).step_by(5) {
        assert_eq!(observe(second, ["x", "y"][usize::from(second % 2 == 0)], &["a"]), None, "{second}");
    }
    assert_eq!(observe(3_605, "x", &["a"]), REMINDER);
    assert_eq!(observe(3_610, "y", &[]), None);
    assert_eq!(observe(3_675, "y", &[]), RECOVERED);
    assert_eq!(observe(3_740, "y", &[]), None);
    assert_eq!(observe(3_745, "x", &[]), RECOVERED);
    assert!(notifier.state.open().is_empty());
}

#[test]
fn finding_whose_receiver_is_gone_is_forgotten_a_day_after_its_end() {
    let mut notifier = Notifier::default();
    let mut observe = |second, receiver: &str, keys: &[&str]| {
        notifier.delivers_all(second, Observation { receiver: Some(receiver.to_owned()), ..seen(keys) })
    };
    assert_eq!(observe(0, "gone", &["a"]), needed(&["a"]));
    assert_eq!(observe(70, "y", &["a"]), needed(&["a"]));
    assert_eq!(observe(80, "y", &[]), None);
    assert_eq!(observe(150, "y", &[]), RECOVERED);
    assert_eq!(observe(90_000, "y", &["b"]), needed(&["b"]));
    assert_eq!(notifier.state.open().keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn address_of_receiver_is_kept_as_digest() {
    let digest = |url: &str| WebhookSettings { url: url.to_owned(), ..WebhookSettings::default() }.digest();
    let kept = digest("https://alerts.example/hidden").expect("a receiver");
    assert!(kept.len() == 16 && kept.bytes().all(|byte| byte.is_ascii_hexdigit()), "{kept}");
    assert!(digest("https://alerts.example/other").is_some_and(|other| other != kept));
    assert_eq!(digest(""), None);
}

#[test]
fn next_notification_waits_until_the_last_is_delivered() {
    let mut notifier = Notifier::default();
    let first = notifier.observe(0, &["a"]).expect("a notification");
    assert_eq!(notifier.observe(1_000, &["a", "b"]), None);
    assert_eq!(notifier.observe(90_000, &["b"]), None, "not even a reminder");
    notifier.execute(NotificationCommand::Deliver(first.id));
    let second = notifier.observe(90_001, &["b"]).expect("a notification");
    assert_eq!(keys_of(&second.new), ["b"]);
    assert!(second.id != first.id);
}

#[test]
fn findings_of_undeliverable_notification_are_reported_again() {
    let mut notifier = Notifier::default();
    let lost = notifier.observe(0, &["a"]).expect("a notification");
    notifier.execute(NotificationCommand::GiveUp(lost.id, "no".to_owned()));
    assert_eq!(notifier.delivers(59, &["a"]), None, "within the minimum interval");
    assert_eq!(notifier.delivers(60, &["a"]), needed(&["a"]));
    notifier.observe(61, &[]);
    let lost = notifier.observe(130, &[]).expect("a recovery");
    notifier.execute(NotificationCommand::GiveUp(lost.id, "no".to_owned()));
    assert_eq!(notifier.delivers(190, &[]), RECOVERED);
    assert_eq!(notifier.state.recent().filter(|sent| sent.given_up.is_some()).count(), 2);
}

#[test]
fn undeliverable_reminder_is_sent_again() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    let lost = notifier.observe(3_600, &["a"]).expect("a reminder");
    notifier.execute(NotificationCommand::GiveUp(lost.id, "no".to_owned()));
    assert_eq!(notifier.delivers(3_660, &["a"]), REMINDER);
}

#[test]
fn finding_that_returns_while_its_recovery_is_delivered_is_reported_again() {
    let mut notifier = Notifier::default();
    assert_eq!(notifier.delivers(0, &["a"]), needed(&["a"]));
    assert_eq!(notifier.delivers(10, &[]), None);
    let recovery = notifier.observe(80, &[]).expect("a recovery");
    assert_eq!(notifier.observe(85, &["a"]), None);
    notifier.execute(NotificationCommand::Deliver(recovery.id));
    assert_eq!(notifier.delivers(140, &["a"]), needed(&["a"]));
}

#[test]
fn two_instances_with_the_same_findings_send_one_notification() {
    let mut notifier = Notifier::default();
    assert!(notifier.observe(0, &["a"]).is_some());
    let before = notifier.state.clone();
    assert!(notifier.observe(0, &["a"]).is_none());
    assert_eq!(notifier.state, before);
    assert!(!notifier.state.is_changed_by(&seen(&["a"]), &INTERVALS, notifier.now()));
}

#[test]
fn clock_that_was_put_back_delays_nothing() {
    let mut notifier = Notifier { second: 1_000_000, ..Notifier::default() };
    assert_eq!(notifier.delivers(1_000_000, &["a"]), needed(&["a"]));
    assert_eq!(notifier.delivers(5, &["a", "b", "unreachable:c"]), needed(&["b"]));
    assert_eq!(notifier.delivers(70, &["a", "b", "unreachable:c"]), needed(&["unreachable:c"]));
    assert_eq!(notifier.delivers(80, &[]), None);
    assert_eq!(notifier.delivers(150, &[]), RECOVERED);
}

#[test]
fn number_of_open_causes_is_bounded_and_other_findings_are_reported_all_the_same() {
    let mut notifier = Notifier::default();
    let cut = |keys: &[&str]| Observation { unknown: vec!["dead_letters:".to_owned()], ..seen(keys) };
    for round in 0..40 {
        let keys: Vec<String> = (0..200).map(|cause| format!("dead_letters:{round}-{cause}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        notifier.delivers_all(round * 70, cut(&keys));
    }
    assert!(notifier.state.open().len() <= 1_000, "{} are open", notifier.state.open().len());
    assert_eq!(
        notifier.delivers_all(100 * 70, cut(&["breaker_open:payment/bank"])),
        needed(&["breaker_open:payment/bank"])
    );
}

#[test]
fn text_of_finding_is_one_short_line_without_control_characters() {
    let text = |quoted: &str| {
        let explanation = format!("Cause: {quoted}");
        let findings = vec![Finding { explanation, ..finding("dead_letters:f") }];
        let mut notifier = Notifier::default();
        let sent = notifier.observe_all(0, Observation { findings, ..Observation::default() });
        sent.expect("a notification").new[0].text.clone()
    };
    assert_eq!(text("no\u{1b}[31m way\nmore"), "dead_letters:f is wrong. Cause: no [31m way");
    assert_eq!(text(&"ä".repeat(10_000)).chars().count(), 301);
}

#[test]
fn one_test_at_a_time_beside_other_notifications() {
    let mut notifier = Notifier::default();
    notifier.observe(0, &["a"]).expect("a notification");
    let test = notifier.execute(NotificationCommand::Test("shop".to_owned())).expect("a test");
    assert_eq!(test.kind, NotificationKind::Test);
    let again = (NotificationCommand::Test("shop".to_owned()), Uuid::from_u128(9), notifier.now());
    assert!(notifier.state.decide(&again).is_err());
    notifier.execute(NotificationCommand::Deliver(test.id));
    assert!(notifier.state.decide(&again).is_ok());
    assert!(notifier.state.in_flight().is_some(), "the other is still being delivered");
}

const KEYS: [&str; 5] = ["a", "b", "unreachable:c", "unreachable:d", "urgent:e"];

/// Pause before an observation, its findings, and whether the notification in flight is delivered or given up.
type Step = (i64, Vec<bool>, Option<bool>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let found = prop::collection::vec(any::<bool>(), KEYS.len());
    let step = (prop::sample::select(vec![1_i64, 5, 20, 45, 70, 200]), found, any::<Option<bool>>());
    prop::collection::vec(step, 1..60)
}

fn found(step: &[bool]) -> Vec<&'static str> {
    KEYS.into_iter().zip(step).filter_map(|(key, is_there)| is_there.then_some(key)).collect()
}

proptest! {
    #[test]
    fn lasting_findings_are_reported_and_notifications_keep_their_interval(steps in steps()) {
        let mut notifier = Notifier::default();
        let (mut delivered, mut times) = (Vec::new(), Vec::new());
        let mut there: BTreeMap<&str, i64> = BTreeMap::new();
        let mut lasting = BTreeSet::new();
        let mut in_flight: Option<Notification> = None;
        // In the end nothing is wrong for long, and everything is delivered.
        let ending = (0..20).map(|_| (70, vec![false; KEYS.len()], Some(true)));
        for (pause, step, arrives) in steps.into_iter().chain(ending) {
            if let (Some(arrives), Some(sent)) = (arrives, in_flight.take_if(|_| arrives.is_some())) {
                if arrives {
                    notifier.execute(NotificationCommand::Deliver(sent.id));
                    delivered.push(sent);
                } else {
                    notifier.execute(NotificationCommand::GiveUp(sent.id, "no".to_owned()));
                }
            }
            let (second, keys) = (notifier.second + pause, found(&step));
            there.retain(|key, _| keys.contains(key));
            for key in keys.iter().copied() {
                let since = *there.entry(key).or_insert(second);
                if second - since >= if key.starts_with(PASSING) { 30 } else { 1 } {
                    lasting.insert(key);
                }
            }
            if let Some(sent) = notifier.observe(second, &keys) {
                let is_urgent = sent.new.iter().any(|line| line.urgent);
                prop_assert!(in_flight.is_none() || is_urgent, "one at a time, unless it is urgent");
                times.push((second, is_urgent));
                in_flight = Some(sent);
            }
        }
        let keeps_interval = |pair: &[(i64, bool)]| pair[1].1 || pair[1].0 - pair[0].0 >= 60;
        prop_assert!(times.windows(2).all(keeps_interval), "{times:?}");
        let lines = delivered.iter().flat_map(|sent| sent.new.iter().chain(&sent.cleared));
        let reported: BTreeSet<_> = lines.map(|line| line.key.clone()).collect();
        for key in &lasting {
            prop_assert!(reported.contains(*key), "{key} lasted, and was not reported: {delivered:#?}");
        }
        prop_assert!(notifier.state.open().is_empty(), "{:?}", notifier.state);
        let last = delivered.last().map(|sent| sent.kind);
        prop_assert!(last.is_none_or(|last| last == NotificationKind::Recovered), "the last is a recovery");
    }

    #[test]
    fn finding_is_not_reported_twice_without_being_gone_for_the_minimum_interval(steps in steps()) {
        let mut notifier = Notifier::default();
        let (mut published, mut gone_from, mut longest) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for (pause, step, _) in steps {
            let (second, keys) = (notifier.second + pause, found(&step));
            for key in KEYS {
                if !keys.contains(&key) {
                    gone_from.entry(key.to_owned()).or_insert(second);
                } else if let Some(from) = gone_from.remove(key) {
                    let longest = longest.entry(key.to_owned()).or_insert(0);
                    *longest = second.max(from + *longest) - from;
                }
            }
            let Some(sent) = notifier.observe(second, &keys) else { continue };
            for key in keys_of(&sent.new) {
                let was_gone = longest.remove(&key).is_some_and(|longest| longest >= 60);
                prop_assert!(published.insert(key.clone()) || was_gone, "{key} is reported again at {second}");
            }
            notifier.execute(NotificationCommand::Deliver(sent.id));
        }
    }
}
