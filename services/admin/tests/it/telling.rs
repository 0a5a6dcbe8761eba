//! Pure: what people are told, look by look: nothing is lost, nobody is told twice, and what comes and goes is no storm.

use std::collections::{BTreeMap, BTreeSet};

use admin::push::alerts::{Alert, Look};
use admin::push::notice::{Line, Notice, NoticeKind};
use admin::push::settings::WebhookSettings;
use admin::push::told::{Pace, Told, ToldCommand, ToldEvent};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use saga_core::decider::Decider as _;
use uuid::Uuid;

const PACE: Pace = Pace {
    quiet: SignedDuration::from_secs(60),
    remind: SignedDuration::from_secs(3_600),
    patience: SignedDuration::from_secs(30),
};

/// What may be over in a moment begins like this.
const PASSING: &str = "silent:";

/// What is worse than the rest begins like this.
const GRAVE: &str = "grave:";

fn look(keys: &[&str]) -> Look {
    let alert = |key: &&str| {
        let text = format!("{key} is wrong");
        let alert =
            Alert { text, count: None, may_pass: key.starts_with(PASSING), is_grave: key.starts_with(GRAVE) };
        ((*key).to_owned(), alert)
    };
    Look { alerts: keys.iter().map(alert).collect(), ..Look::default() }
}

/// What has been told, and the time.
#[derive(Default)]
struct People {
    told: Told,
    second: i64,
    id: u128,
}

impl People {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(self.second)
    }

    /// Asks, and answers the notice that follows.
    fn asks(&mut self, command: ToldCommand) -> Option<Notice> {
        self.id += 1;
        let asked = (command, Uuid::from_u128(self.id), self.now());
        let events = self.told.decide(&asked).expect("no refusal");
        let mut notice = None;
        for event in events {
            self.told.evolve(&event);
            if let ToldEvent::Noticed(written) | ToldEvent::Tested(written) = event {
                assert!(notice.replace(written).is_none(), "one at a time");
            }
        }
        notice
    }

    /// Looks at this second, and answers the notice that follows, which does not arrive yet.
    fn looks(&mut self, second: i64, keys: &[&str]) -> Option<Notice> {
        self.second = second;
        self.asks(ToldCommand::Look(look(keys), PACE))
    }

    /// The same, and it arrives at once: its kind, and what is new in it.
    fn hears(&mut self, second: i64, keys: &[&str]) -> Option<(NoticeKind, Vec<String>)> {
        let notice = self.looks(second, keys)?;
        self.asks(ToldCommand::Deliver(notice.id));
        Some((notice.kind, keys_of(&notice.new)))
    }
}

fn keys_of(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| line.key.clone()).collect()
}

fn needed(keys: &[&str]) -> Option<(NoticeKind, Vec<String>)> {
    Some((NoticeKind::NeedsHuman, keys.iter().map(|key| (*key).to_owned()).collect()))
}

const WELL: Option<(NoticeKind, Vec<String>)> = Some((NoticeKind::WellAgain, vec![]));

#[test]
fn what_is_wrong_is_told_at_once_and_once_and_when_it_is_over() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &[]), None, "all is well");
    assert_eq!(people.hears(5, &["a"]), needed(&["a"]));
    assert_eq!(people.hears(10, &["a"]), None);
    assert_eq!(people.hears(500, &["a"]), None);
    assert_eq!(people.hears(505, &[]), None, "it may come back");
    assert_eq!(people.hears(564, &[]), None);
    assert_eq!(people.hears(565, &[]), WELL);
    assert_eq!(people.hears(1_000, &[]), None);
    assert_eq!(people.hears(1_005, &["a"]), needed(&["a"]), "it came back");
}

#[test]
fn what_comes_in_the_quiet_time_is_told_together_after_it() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a"]), needed(&["a"]));
    assert_eq!(people.hears(5, &["a", "b"]), None);
    assert_eq!(people.hears(10, &["a", "b", "c"]), None);
    assert_eq!(people.hears(59, &["a", "c"]), None);
    let notice = people.looks(60, &["a", "c"]).expect("a notice");
    assert_eq!(
        (keys_of(&notice.new), keys_of(&notice.still)),
        (vec!["b".into(), "c".into()], vec!["a".into()])
    );
    assert!(notice.new[0].until.is_some(), "b came and went, and is told all the same");
    assert_eq!(notice.in_words(), "somebody is needed: b is wrong (over by now); c is wrong; 1 told before");
}

#[test]
fn what_comes_and_goes_all_the_time_is_told_once() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a"]), needed(&["a"]));
    for second in 1..2_000 {
        let keys: &[&str] = if second % 50 < 25 { &["a"] } else { &[] };
        assert_eq!(people.hears(second, keys), None, "after {second} s");
    }
}

#[test]
fn what_may_be_over_in_a_moment_is_told_once_it_has_lasted() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["silent:order"]), None);
    assert_eq!(people.hears(29, &["silent:order"]), None);
    assert_eq!(people.hears(30, &[]), None, "it was started anew, and nobody needs to know");
    assert!(people.told.known().is_empty());
    assert_eq!(people.hears(100, &["silent:order"]), None);
    assert_eq!(people.hears(130, &["silent:order"]), needed(&["silent:order"]));
}

#[test]
fn nobody_says_that_all_is_well_while_something_may_be_wrong() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a"]), needed(&["a"]));
    assert_eq!(people.hears(5, &[]), None);
    assert_eq!(people.hears(100, &["silent:order"]), None, "perhaps it is");
    assert_eq!(people.hears(110, &[]), WELL);
}

#[test]
fn what_could_not_be_asked_is_not_over() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["breaker:order/x"]), needed(&["breaker:order/x"]));
    people.second = 1_000;
    let blind = Look { unknown: vec!["breaker:order/".to_owned()], ..look(&[]) };
    assert_eq!(people.asks(ToldCommand::Look(blind, PACE)), None);
    assert_eq!(people.hears(2_000, &["breaker:order/x"]), None, "it was told");
}

#[test]
fn what_is_still_so_after_long_is_told_again() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a", "b"]), needed(&["a", "b"]));
    assert_eq!(people.hears(3_599, &["a"]), None);
    let notice = people.looks(3_600, &["a"]).expect("a notice");
    assert_eq!((notice.kind, keys_of(&notice.still)), (NoticeKind::Reminder, vec!["a".into(), "b".into()]));
    people.asks(ToldCommand::Deliver(notice.id));
    assert_eq!(people.hears(3_700, &["a"]), None);
    assert_eq!(people.hears(7_199, &["a"]), None);
    assert!(people.looks(7_200, &["a"]).is_some_and(|notice| keys_of(&notice.gone) == ["b"]));
}

impl People {
    /// Hears at this second of so much of something.
    fn hears_of(&mut self, second: i64, count: u64) -> Option<(NoticeKind, String)> {
        self.second = second;
        let alert =
            Alert { text: format!("{count} wait"), count: Some(count), may_pass: false, is_grave: false };
        let found = Look { alerts: [("a".to_owned(), alert)].into(), ..Look::default() };
        let notice = self.asks(ToldCommand::Look(found, PACE))?;
        self.asks(ToldCommand::Deliver(notice.id));
        Some((notice.kind, notice.in_words()))
    }
}

#[test]
fn what_has_grown_tenfold_is_told_again_after_part_of_the_quiet_time() {
    let grown = |told: &str| Some((NoticeKind::NeedsHuman, format!("somebody is needed: {told}")));
    let mut people = People::default();
    assert_eq!(people.hears_of(0, 5), grown("5 wait"));
    assert_eq!(people.hears_of(11, 50), None, "not at once");
    assert_eq!(people.hears_of(60, 49), None, "not so little more");
    assert_eq!(people.hears_of(61, 500), grown("500 wait (it was 5 when it was told last)"));
    for (second, count) in [(70, 5_000), (200, 4_999), (300, 5), (400, 500), (500, 4_999)] {
        assert_eq!(people.hears_of(second, count), None, "{count} after {second} s");
    }
    assert_eq!(people.hears_of(600, 5_000), grown("5000 wait (it was 500 when it was told last)"));
    // A reminder says how much it is, and counts as told.
    assert_eq!(
        people.hears_of(4_200, 6_000),
        Some((NoticeKind::Reminder, "somebody is still needed: 6000 wait".to_owned()))
    );
    assert_eq!(people.hears_of(4_300, 50_000), None);
}

/// A lone dead letter at 01:40, then a hundred and sagas that failed: nobody waits for those until they are over.
#[test]
fn what_is_worse_than_before_breaks_the_quiet_once() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a"]), needed(&["a"]));
    assert_eq!(people.hears(5, &["a", "b", "grave:c"]), None, "not at once");
    assert_eq!(people.hears(12, &["a", "b", "grave:c"]), needed(&["b", "grave:c"]));
    assert_eq!(people.hears(30, &["a", "b", "grave:c", "grave:d"]), None, "once in the quiet time");
    assert_eq!(people.hears(71, &["a", "b", "grave:c", "grave:d"]), None);
    assert_eq!(people.hears(72, &["a", "b", "grave:c", "grave:d"]), needed(&["grave:d"]));
    assert_eq!(people.hears(84, &["a", "grave:d", "grave:e"]), needed(&["grave:e"]), "and in the next");
}

#[test]
fn what_came_and_went_in_the_quiet_time_does_not_break_it_and_is_told_as_over() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a"]), needed(&["a"]));
    assert_eq!(people.hears(5, &["a", "b", "grave:c"]), None);
    assert_eq!(people.hears(20, &[]), None);
    assert_eq!(people.hears(59, &[]), None);
    let notice = people.looks(60, &[]).expect("a notice");
    assert_eq!(notice.in_words(), "it is over by now: b is wrong; grave:c is wrong");
    assert_eq!(notice.kind, NoticeKind::OverByNow);
    people.asks(ToldCommand::Deliver(notice.id));
    assert_eq!(people.hears(120, &[]), WELL);
}

#[test]
fn nobody_says_that_it_is_over_while_what_was_told_is_still_so() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a"]), needed(&["a"]));
    assert_eq!(people.hears(5, &["a", "b"]), None);
    assert_eq!(people.hears(60, &["a"]), needed(&["b"]));
}

/// What was told on standard output was perhaps read by nobody.
#[test]
fn what_is_still_so_is_told_to_another_receiver() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a", "b"]), needed(&["a", "b"]));
    let mut asks = |second, to: Option<&str>, keys: &[&str]| {
        people.second = second;
        let look = Look { to: to.map(str::to_owned), ..look(keys) };
        let notice = people.asks(ToldCommand::Look(look, PACE))?;
        people.asks(ToldCommand::Deliver(notice.id));
        Some((notice.kind, keys_of(&notice.new)))
    };
    assert_eq!(asks(5, Some("x"), &["a"]), None, "however often it changes, it is no storm");
    assert_eq!(asks(12, Some("x"), &["a"]), needed(&["a"]), "b is over");
    assert_eq!(asks(200, Some("x"), &["a"]), None);
    assert_eq!(asks(300, Some("y"), &["a"]), needed(&["a"]));
    assert_eq!(asks(305, None, &["a"]), None);
    assert_eq!(asks(360, None, &["a"]), needed(&["a"]));
    assert_eq!(asks(2_000, None, &["a"]), None);
}

/// Its path is often all that keeps others from it.
#[test]
fn of_a_receivers_address_nothing_is_kept() {
    let digest = |url: &str| WebhookSettings { url: url.to_owned(), ..WebhookSettings::default() }.digest();
    let kept = digest("https://alerts.example/hidden").expect("a receiver");
    assert!(kept.len() == 16 && kept.bytes().all(|byte| byte.is_ascii_hexdigit()), "{kept}");
    assert!(digest("https://alerts.example/other").is_some_and(|other| other != kept));
    assert_eq!(digest(""), None);
}

/// What was told of it and was given up is told with all that it has become.
#[test]
fn what_has_grown_and_was_not_heard_of_is_told_again() {
    let mut people = People::default();
    people.hears_of(0, 5).expect("it is told");
    people.second = 100;
    let alert = Alert { text: "50 wait".to_owned(), count: Some(50), may_pass: false, is_grave: false };
    let found = Look { alerts: [("a".to_owned(), alert)].into(), ..Look::default() };
    let lost = people.asks(ToldCommand::Look(found, PACE)).expect("it has grown");
    people.asks(ToldCommand::GiveUp(lost.id, "no".to_owned()));
    let (kind, words) = people.hears_of(200, 60).expect("it is told again");
    assert_eq!((kind, words.contains("60 wait")), (NoticeKind::NeedsHuman, true), "{words}");
    assert_eq!(people.hears_of(300, 70), None);
}

#[test]
fn there_is_no_other_notice_before_the_last_has_arrived() {
    let mut people = People::default();
    let first = people.looks(0, &["a"]).expect("a notice");
    assert_eq!(people.looks(1_000, &["a", "b"]), None);
    assert_eq!(people.looks(90_000, &["b"]), None, "not even a reminder");
    people.asks(ToldCommand::Deliver(first.id));
    let second = people.looks(90_001, &["b"]).expect("a notice");
    assert_eq!(keys_of(&second.new), ["b"]);
    assert!(second.id != first.id);
}

#[test]
fn what_a_notice_told_that_was_given_up_is_told_again() {
    let mut people = People::default();
    let lost = people.looks(0, &["a"]).expect("a notice");
    people.asks(ToldCommand::GiveUp(lost.id, "no".to_owned()));
    assert_eq!(people.hears(59, &["a"]), None, "not in the quiet time");
    assert_eq!(people.hears(60, &["a"]), needed(&["a"]));
    let lost = [61, 130].map(|second| people.looks(second, &[])).into_iter().flatten().next_back();
    let lost = lost.expect("all is well");
    people.asks(ToldCommand::GiveUp(lost.id, "no".to_owned()));
    assert_eq!(people.hears(190, &[]), WELL);
    assert_eq!(people.told.recent().filter(|sent| sent.given_up.is_some()).count(), 2);
}

/// A defect: it was told again after hours only.
#[test]
fn what_a_reminder_told_that_was_given_up_is_told_again() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a"]), needed(&["a"]));
    let lost = people.looks(3_600, &["a"]).expect("a reminder");
    assert_eq!(lost.kind, NoticeKind::Reminder);
    people.asks(ToldCommand::GiveUp(lost.id, "no".to_owned()));
    assert_eq!(people.hears(3_660, &["a"]), needed(&["a"]));
}

/// Found by the walk below: what it was told of first was never over.
#[test]
fn what_was_told_is_over_some_day_even_if_it_came_back_for_a_moment() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["silent:order"]), None);
    assert_eq!(people.hears(30, &["silent:order"]), needed(&["silent:order"]));
    assert_eq!(people.hears(31, &[]), None);
    people.looks(100, &["silent:order"]);
    assert_eq!(people.hears(101, &[]), None);
    assert_eq!(people.hears(161, &[]), WELL);
}

/// Two instances of admin look at the same time; the second is asked on the row as the first left it.
#[test]
fn two_who_look_at_once_tell_once() {
    let mut people = People::default();
    assert!(people.looks(0, &["a"]).is_some());
    let before = people.told.clone();
    assert!(people.looks(0, &["a"]).is_none());
    assert_eq!(people.told, before);
    assert!(!people.told.is_changed_by(&look(&["a"]), &PACE, people.now()));
}

#[test]
fn a_clock_that_was_put_back_silences_nobody() {
    let mut people = People { second: 1_000_000, ..People::default() };
    assert_eq!(people.hears(1_000_000, &["a"]), needed(&["a"]));
    assert_eq!(people.hears(5, &["a", "b"]), needed(&["b"]));
}

/// What was seen while the clock was ahead need not wait until that time comes, and is told once.
#[test]
fn what_came_while_the_clock_was_ahead_is_told_once_when_it_was_put_back() {
    const AHEAD: i64 = 100_000_000;
    let mut people = People::default();
    assert_eq!(people.hears(AHEAD, &["a"]), needed(&["a"]));
    // Within the quiet time; and it has to last, besides.
    assert_eq!(people.hears(AHEAD + 1, &["a", "b", "silent:c"]), None);
    assert_eq!(people.hears(5, &["a", "b", "silent:c"]), needed(&["b", "silent:c"]));
    for second in [70, 140, 210] {
        assert_eq!(people.hears(second, &["a", "b", "silent:c"]), None, "{second}");
    }
    assert_eq!(people.hears(220, &[]), None);
    assert_eq!(people.hears(300, &[]), WELL);
}

/// What was told while the clock was ahead by less than a reminder is long: it is over, and has come back since.
#[test]
fn what_comes_back_before_the_time_at_which_it_was_told_is_told_again() {
    let mut people = People::default();
    assert_eq!(people.hears(3_000, &["a", "b"]), needed(&["a", "b"]));
    assert_eq!(people.hears(5, &["a"]), None);
    assert_eq!(people.hears(100, &["a"]), None, "a is still so");
    assert_eq!(people.hears(1_000, &["a", "b"]), needed(&["b"]), "it came back");
    assert_eq!(people.hears(1_100, &["a", "b"]), None);
}

/// It was away just when the other was told of the rest.
#[test]
fn what_comes_back_is_told_to_a_receiver_that_was_never_told_of_it() {
    let mut people = People::default();
    assert_eq!(people.hears(0, &["a", "b"]), needed(&["a", "b"]));
    let mut asks = |second, keys: &[&str]| {
        people.second = second;
        let look = Look { to: Some("x".to_owned()), ..look(keys) };
        let notice = people.asks(ToldCommand::Look(look, PACE))?;
        people.asks(ToldCommand::Deliver(notice.id));
        Some((notice.kind, keys_of(&notice.new)))
    };
    assert_eq!(asks(100, &["a"]), needed(&["a"]));
    assert_eq!(asks(101, &["a", "b"]), None, "the quiet time");
    assert_eq!(asks(170, &["a", "b"]), needed(&["b"]));
    assert_eq!(asks(300, &["a", "b"]), None);
}

/// Causes may come and go for weeks while there are too many to show: what is remembered of them has a bound.
#[test]
fn what_is_remembered_of_causes_that_nobody_is_shown_has_a_bound() {
    let mut people = People::default();
    for round in 0..40 {
        let keys: Vec<String> = (0..200).map(|cause| format!("dead_letters:{round}-{cause}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let found = Look { unknown: vec!["dead_letters:".to_owned()], ..look(&keys) };
        people.second = round * 70;
        let notice = people.asks(ToldCommand::Look(found, PACE));
        notice.map(|notice| people.asks(ToldCommand::Deliver(notice.id)));
    }
    assert!(people.told.known().len() <= 1_000, "{} are known", people.told.known().len());
    // And something else is told all the same.
    let found = Look { unknown: vec!["dead_letters:".to_owned()], ..look(&["breaker:payment/bank"]) };
    people.second = 100 * 70;
    let notice = people.asks(ToldCommand::Look(found, PACE)).expect("it is told");
    assert_eq!(keys_of(&notice.new), ["breaker:payment/bank"]);
}

#[test]
fn one_test_at_a_time_whatever_else_is_told() {
    let mut people = People::default();
    people.looks(0, &["a"]).expect("a notice");
    let test = people.asks(ToldCommand::Test).expect("a test");
    assert_eq!(test.kind, NoticeKind::Test);
    let again = (ToldCommand::Test, Uuid::from_u128(9), people.now());
    assert!(people.told.decide(&again).is_err());
    people.asks(ToldCommand::Deliver(test.id));
    assert!(people.told.decide(&again).is_ok());
    assert!(people.told.under_way().is_some(), "the other is still being sent");
}

const KEYS: [&str; 5] = ["a", "b", "silent:c", "silent:d", "grave:e"];

/// What one look finds, how long after the one before, and whether a notice that is under way arrives or is given up.
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
    fn nothing_that_lasts_is_lost_and_notices_keep_their_distance(steps in steps()) {
        let mut people = People::default();
        let (mut arrived, mut times) = (Vec::new(), Vec::new());
        // Since when each is there without a break.
        let mut there: BTreeMap<&str, i64> = BTreeMap::new();
        let mut lasting = BTreeSet::new();
        let mut under_way: Option<Notice> = None;
        // In the end all is well for long, and everything arrives.
        let ending = (0..20).map(|_| (70, vec![false; KEYS.len()], Some(true)));
        for (pause, step, arrives) in steps.into_iter().chain(ending) {
            if let (Some(arrives), Some(notice)) = (arrives, under_way.take_if(|_| arrives.is_some())) {
                if arrives {
                    people.asks(ToldCommand::Deliver(notice.id));
                    arrived.push(notice);
                } else {
                    people.asks(ToldCommand::GiveUp(notice.id, "no".to_owned()));
                }
            }
            let (second, keys) = (people.second + pause, found(&step));
            there.retain(|key, _| keys.contains(key));
            for key in keys.iter().copied() {
                let since = *there.entry(key).or_insert(second);
                if !key.starts_with(PASSING) || second - since >= 30 {
                    lasting.insert(key);
                }
            }
            if let Some(notice) = people.looks(second, &keys) {
                prop_assert!(under_way.is_none(), "one at a time");
                times.push(second);
                under_way = Some(notice);
            }
        }
        prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 12), "{times:?}");
        prop_assert!(times.windows(3).all(|three| three[2] - three[0] >= 60), "{times:?}");
        let told: BTreeSet<_> = arrived.iter().flat_map(|notice| keys_of(&notice.new)).collect();
        for key in &lasting {
            prop_assert!(told.contains(*key), "{key} lasted, and nobody was told: {arrived:#?}");
        }
        prop_assert!(people.told.known().is_empty(), "{:?}", people.told);
        let last = arrived.last().map(|notice| notice.kind);
        prop_assert_eq!(last.is_some(), !told.is_empty());
        prop_assert!(last.is_none_or(|last| last == NoticeKind::WellAgain), "the last says that all is well");
    }

    #[test]
    fn nobody_is_told_twice_of_what_was_not_away_in_between(steps in steps()) {
        let mut people = People::default();
        let (mut told, mut gone_from, mut longest) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for (pause, step, _) in steps {
            let (second, keys) = (people.second + pause, found(&step));
            for key in KEYS {
                if !keys.contains(&key) {
                    gone_from.entry(key.to_owned()).or_insert(second);
                } else if let Some(from) = gone_from.remove(key) {
                    let longest = longest.entry(key.to_owned()).or_insert(0);
                    *longest = second.max(from + *longest) - from;
                }
            }
            let Some(notice) = people.looks(second, &keys) else { continue };
            for key in keys_of(&notice.new) {
                let was_away = longest.remove(&key).is_some_and(|longest| longest >= 60);
                prop_assert!(told.insert(key.clone()) || was_away, "{key} is told again at {second}");
            }
            people.asks(ToldCommand::Deliver(notice.id));
        }
    }
}
