//! Shell: wall-clock time. Durations are measured with tokio's clock instead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::signed;

/// Source of wall-clock time. The clocks of two machines differ, and those of the simulation differ more.
pub trait Clock: Send + Sync + 'static {
    /// Current time, which may jump in either direction.
    fn now(&self) -> Timestamp;

    /// Resolves once the time can be trusted; `None` if it always can.
    fn trusted(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// True while it is unknown whether the time is right, after a jump. Deadlines wait meanwhile.
    fn is_doubtful(&self) -> bool {
        false
    }
}

/// Clock that all loops of a process share.
pub type SharedClock = Arc<dyn Clock>;

/// Clock of the machine, which may be off or be set.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Moment at which something began. Durations are measured from its instant, which no change of a clock affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Instant to measure from.
    pub instant: Instant,
    /// Wall-clock time to show.
    pub time: Timestamp,
}

impl Moment {
    /// Current moment, shown by `clock`.
    #[must_use]
    pub fn now(clock: &dyn Clock) -> Self {
        Self { instant: Instant::now(), time: clock.now() }
    }

    /// True if the moment is further in the past than `limit`.
    #[must_use]
    pub fn is_older(&self, limit: Duration, now: Instant) -> bool {
        now.duration_since(self.instant) > limit
    }
}

/// Clock of the broker, so that a deadline set by one service is judged by the same time in another.
///
/// Until the first [`correct`](Self::correct) it shows the machine's time. From then on it advances monotonically, and
/// changes of the machine's clock have no effect. A jump of the broker's clock is doubted at first: the machine's clock, and
/// that of the database, are witnesses.
pub struct BrokerClock {
    machine: SharedClock,
    state: RwLock<State>,
    corrected: CancellationToken,
}

#[derive(Default)]
struct State {
    /// Last correction, and the broker's time at that moment.
    anchor: Option<(Instant, Timestamp)>,
    /// Offsets by which the witnesses were ahead at that moment.
    witnesses: Witnesses,
    jump: Option<Jump>,
    /// Time of the last jump that was applied.
    jumped_at: Option<Instant>,
}

/// Offsets by which the machine's clock, and the database's, are ahead of this clock. `None` if a clock is unknown.
type Witnesses = [Option<SignedDuration>; 2];

/// Jump of the broker's clock that is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// Offset by which the broker is ahead of this clock.
    pub by: SignedDuration,
    /// Time since which it is.
    since: Instant,
    /// True if a witness contradicts the broker: its clock is wrong, and the time of this one is not in doubt.
    pub is_refuted: bool,
    /// True if a witness shows the broker's time, and none contradicts.
    is_confirmed: bool,
}

/// Offset that is not corrected. No deadline is that short, and on one machine both clocks are the same.
const TOLERANCE: SignedDuration = SignedDuration::from_millis(100);
/// Largest correction that is no jump. Measurements are up to half a second wrong.
const MAX_STEP: SignedDuration = SignedDuration::from_secs(2);
/// Largest difference to the machine's clock that the first correction bridges. Machines are off by minutes, or by their
/// time zone.
const MAX_FIRST_STEP: SignedDuration = SignedDuration::from_hours(24);
/// Maximum time for which a jump is doubted that no witness confirms. A shorter jump is doubted for its own length, so that
/// no deadline waits for longer.
const MAX_DOUBT: Duration = Duration::from_mins(10);
/// Maximum doubt about a jump that a witness confirms, as after the machine was suspended.
const MAX_CONFIRMED_DOUBT: Duration = Duration::from_secs(30);
/// Time after an applied jump in which nothing is purged. If the clock jumps back, purged rows are not restored.
const PURGE_DELAY: Duration = Duration::from_hours(1);

impl BrokerClock {
    /// Creates a clock that shows the machine's time until it is corrected.
    #[must_use]
    pub fn new(machine: SharedClock) -> Self {
        Self { machine, state: RwLock::default(), corrected: CancellationToken::new() }
    }

    /// Corrects the time by `offset`, by which the broker is ahead of this clock, and `database` the database's clock, if it
    /// has one. Returns the jump if that is doubted.
    pub fn correct(&self, offset: SignedDuration, database: Option<SignedDuration>) -> Option<Jump> {
        self.correct_by(offset, [Some(self.offset()), database])
    }

    /// Corrects the time by the machine's clock, for a program without a broker. Otherwise as [`correct`](Self::correct).
    pub fn follow_machine(&self, database: Option<SignedDuration>) -> Option<Jump> {
        self.correct_by(self.offset(), [None, database])
    }

    fn correct_by(&self, offset: SignedDuration, witnesses: Witnesses) -> Option<Jump> {
        let (mut state, at) = (self.state.write(), Instant::now());
        let now = self.time_since(state.anchor);
        let is_first = state.anchor.is_none();
        let is_jump = offset.abs() > if is_first { MAX_FIRST_STEP } else { MAX_STEP };
        if is_jump {
            let jump = Jump::judge(&state, offset, witnesses, at);
            if !jump.is_over(at) {
                state.jump = Some(jump);
                return Some(jump);
            }
        }
        let by = if offset.abs() < TOLERANCE { SignedDuration::ZERO } else { offset };
        let jumped_at = if offset.abs() > MAX_STEP { Some(at) } else { state.jumped_at };
        let witnesses = witnesses.map(|witness| Some(witness?.saturating_sub(by)));
        let anchor = Some((at, now.saturating_add(by).unwrap_or(now)));
        *state = State { anchor, witnesses, jump: None, jumped_at };
        drop(state);
        self.corrected.cancel();
        None
    }

    /// Offset by which the machine's clock is ahead of the broker's time.
    #[must_use]
    pub fn offset(&self) -> SignedDuration {
        self.machine.now().duration_since(self.now())
    }

    /// Jump of the broker's clock that is not applied, if any.
    #[must_use]
    pub fn jump(&self) -> Option<Jump> {
        self.state.read().jump
    }

    /// True if the time has been undoubted for long enough to delete by it. False until the first correction, as the
    /// machine's clock may be wrong.
    #[must_use]
    pub fn may_purge(&self) -> bool {
        let state = self.state.read();
        state.anchor.is_some()
            && state.jump.is_none_or(|jump| jump.is_refuted)
            && state.jumped_at.is_none_or(|jumped_at| jumped_at.elapsed() >= PURGE_DELAY)
    }

    fn time_since(&self, anchor: Option<(Instant, Timestamp)>) -> Timestamp {
        match anchor {
            Some((since, at)) => at.saturating_add(since.elapsed()).unwrap_or(Timestamp::MAX),
            None => self.machine.now(),
        }
    }
}

impl Jump {
    /// Judges an offset that is too large, as a new jump or as one that goes on.
    fn judge(state: &State, by: SignedDuration, witnesses: Witnesses, at: Instant) -> Self {
        let is_same = |jump: &Self| is_near(jump.by, by);
        let since = state.jump.filter(is_same).map_or(at, |jump| jump.since);
        // A witness that has not jumped contradicts, whatever its own offset is.
        let contradicts = |(now, then): (Option<SignedDuration>, Option<SignedDuration>)| {
            now.zip(then).is_some_and(|(now, then)| is_near(now, then) && !is_near(now, by))
        };
        let is_contradicted = witnesses.into_iter().zip(state.witnesses).any(contradicts);
        let is_shown = witnesses.into_iter().flatten().any(|witness| is_near(witness, by));
        let (is_refuted, is_confirmed) = (is_contradicted && !is_shown, is_shown && !is_contradicted);
        Self { by, since, is_refuted, is_confirmed }
    }

    /// True if the jump has lasted for long enough to be applied.
    fn is_over(&self, at: Instant) -> bool {
        let limit = if self.is_confirmed { MAX_CONFIRMED_DOUBT } else { MAX_DOUBT };
        let lasted = signed(at.duration_since(self.since));
        !self.is_refuted && lasted >= self.by.abs().min(signed(limit))
    }
}

fn is_near(one: SignedDuration, other: SignedDuration) -> bool {
    one.saturating_sub(other).abs() <= MAX_STEP
}

impl Clock for BrokerClock {
    fn now(&self) -> Timestamp {
        self.time_since(self.state.read().anchor)
    }

    fn trusted(&self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(self.corrected.clone().cancelled_owned()))
    }

    fn is_doubtful(&self) -> bool {
        self.jump().is_some_and(|jump| !jump.is_refuted)
    }
}

/// Text for operators.
impl fmt::Display for Jump {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.by.is_negative() { "back" } else { "ahead" };
        write!(
            out,
            "the clock that this process follows is {:.1}s {direction} by a jump",
            self.by.abs().as_secs_f64()
        )?;
        out.write_str(match self.is_refuted {
            true => " that other clocks contradict: it is ignored; set the broker's clock",
            false => ": deadlines and purging wait until the jump is confirmed, for 10 minutes at most; compare the clocks",
        })
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::time::advance;

    use super::*;

    const TWO_DAYS: SignedDuration = SignedDuration::from_hours(48);

    /// Clock of a machine, which runs with tokio's and can be set.
    struct Machine(Instant, Mutex<SignedDuration>);

    impl Clock for Machine {
        fn now(&self) -> Timestamp {
            let at = Timestamp::UNIX_EPOCH.saturating_add(self.0.elapsed()).expect("a time");
            at.saturating_add(*self.1.lock()).expect("a time")
        }
    }

    impl Machine {
        fn set(&self, offset: SignedDuration) {
            *self.1.lock() = offset;
        }
    }

    fn clocks() -> (Arc<Machine>, BrokerClock) {
        let machine = Arc::new(Machine(Instant::now(), Mutex::default()));
        let clock = BrokerClock::new(machine.clone());
        (machine, clock)
    }

    /// Seconds since the test began, by the clock.
    fn seconds(clock: &BrokerClock) -> i64 {
        clock.now().as_second()
    }

    const fn secs(seconds: i64) -> SignedDuration {
        SignedDuration::from_secs(seconds)
    }

    #[test]
    fn system_clock_shows_the_time_and_is_never_in_doubt() {
        assert!(SystemClock.now() > "2026-01-01T00:00:00Z".parse().expect("a time"));
        assert!(!SystemClock.is_doubtful());
    }

    #[test]
    fn moment_is_older_once_more_than_the_limit_has_passed() {
        let (limit, moment) = (Duration::from_secs(60), Moment::now(&SystemClock));
        let after = |passed: Duration| moment.is_older(limit, moment.instant + passed);
        assert!(!after(Duration::ZERO) && !after(limit));
        assert!(after(limit + Duration::from_nanos(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn small_offset_is_ignored_and_one_up_to_the_largest_step_is_corrected_at_once() {
        let corrected = |offset: SignedDuration| {
            let (_machine, clock) = clocks();
            assert_eq!(clock.correct(secs(0), None), None);
            assert_eq!(clock.correct(offset, None), None, "{offset:?} is no jump");
            assert!(clock.may_purge(), "{offset:?} delays no purge");
            clock.now()
        };
        let start = corrected(secs(0));
        let ahead = |offset: SignedDuration| corrected(offset).duration_since(start);
        assert_eq!(ahead(TOLERANCE - SignedDuration::from_millis(1)), secs(0));
        assert_eq!(ahead(TOLERANCE), TOLERANCE);
        assert_eq!(ahead(MAX_STEP), MAX_STEP);
    }

    #[tokio::test(start_paused = true)]
    async fn time_is_trusted_from_the_first_correction_on() {
        let (_machine, clock) = clocks();
        let trusted = clock.trusted().expect("a wait");
        let waiting = tokio::spawn(trusted);
        advance(Duration::from_hours(1)).await;
        assert!(!waiting.is_finished());
        clock.correct(secs(0), None);
        waiting.await.expect("trusted");
    }

    #[tokio::test(start_paused = true)]
    async fn jump_that_the_machine_contradicts_is_ignored_and_casts_no_doubt() {
        let (_machine, clock) = clocks();
        assert_eq!(clock.correct(secs(0), None), None);
        for _ in 0..100 {
            advance(Duration::from_secs(10)).await;
            let jump = clock.correct(TWO_DAYS, None).expect("a jump");
            assert!(jump.is_refuted);
            assert!(clock.may_purge() && !clock.is_doubtful());
        }
        assert_eq!(seconds(&clock), 1_000);
        assert_eq!(clock.correct(secs(0), None), None);
        assert_eq!(clock.jump(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_purged_by_the_time_of_a_machine_before_the_broker_answers() {
        let (machine, clock) = clocks();
        machine.set(TWO_DAYS);
        assert!(!clock.may_purge(), "the broker is away");
        assert!(clock.correct(-TWO_DAYS, None).is_some());
        assert!(!clock.may_purge(), "in doubt");
        machine.set(secs(0));
        assert_eq!(clock.correct(secs(0), None), None);
        assert!(clock.may_purge());
    }

    /// The machine of the broker may be this one.
    #[tokio::test(start_paused = true)]
    async fn jump_of_seconds_has_no_effect_although_the_machine_confirms_it() {
        let (machine, clock) = clocks();
        clock.correct(secs(0), None);
        machine.set(TWO_DAYS);
        assert!(clock.correct(TWO_DAYS, None).is_some());
        advance(Duration::from_secs(20)).await;
        assert!(clock.correct(TWO_DAYS, None).is_some());
        assert!(clock.is_doubtful() && !clock.may_purge());
        assert_eq!(seconds(&clock), 20);
        machine.set(secs(0));
        assert_eq!(clock.correct(secs(0), None), None);
        assert!(!clock.is_doubtful() && clock.may_purge());
    }

    #[tokio::test(start_paused = true)]
    async fn confirmed_jump_is_applied_after_half_a_minute_and_delays_purging() {
        let (machine, clock) = clocks();
        clock.correct(secs(0), None);
        machine.set(TWO_DAYS);
        assert!(clock.correct(TWO_DAYS, None).is_some());
        advance(Duration::from_secs(30)).await;
        assert_eq!(clock.correct(TWO_DAYS, None), None);
        assert_eq!(clock.now().duration_since(machine.now()), secs(0));
        assert!(!clock.is_doubtful() && !clock.may_purge());
        // Back within the hour.
        machine.set(secs(0));
        assert!(clock.correct(-TWO_DAYS, None).is_some());
        advance(Duration::from_secs(30)).await;
        assert_eq!(clock.correct(-TWO_DAYS, None), None);
        assert!(!clock.may_purge());
        advance(PURGE_DELAY).await;
        assert!(clock.may_purge());
    }

    #[tokio::test(start_paused = true)]
    async fn database_refutes_a_jump_that_the_machine_cannot() {
        let (machine, clock) = clocks();
        clock.correct(secs(0), Some(secs(-300)));
        // The machine's clock was set at the same time, to something else.
        machine.set(secs(7_200));
        assert!(clock.correct(TWO_DAYS, Some(secs(-300))).expect("a jump").is_refuted);
        assert!(!clock.correct(TWO_DAYS, None).expect("a jump").is_refuted, "nobody knows");
    }

    #[tokio::test(start_paused = true)]
    async fn jump_without_witness_is_applied_after_its_own_length_or_ten_minutes() {
        for (jump, doubted_for) in [(secs(20), 20), (secs(-20), 20), (TWO_DAYS, 600)] {
            let (machine, clock) = clocks();
            clock.correct(secs(0), None);
            machine.set(secs(3_000));
            assert!(clock.correct(jump, None).is_some());
            advance(Duration::from_secs(doubted_for - 1)).await;
            assert!(clock.correct(jump, None).is_some(), "{jump:?}");
            advance(Duration::from_secs(1)).await;
            assert_eq!(clock.correct(jump, None), None, "{jump:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn other_jump_is_doubted_from_its_own_start() {
        let (machine, clock) = clocks();
        clock.correct(secs(0), None);
        machine.set(secs(3_000));
        assert!(clock.correct(secs(100), None).is_some());
        advance(Duration::from_secs(99)).await;
        assert!(clock.correct(secs(90), None).is_some());
        advance(Duration::from_secs(89)).await;
        assert!(clock.correct(secs(90), None).is_some());
        assert_eq!(clock.correct(secs(1), None), None, "a step is no jump");
    }

    /// A broker that is days off at the start might be wrong itself.
    #[tokio::test(start_paused = true)]
    async fn first_time_is_doubted_if_it_is_days_off_and_applied_if_it_is_hours_off() {
        let (_machine, clock) = clocks();
        assert!(clock.correct(TWO_DAYS, None).is_some());
        assert_eq!(clock.correct(secs(14 * 3_600), None), None);
        assert!(!clock.may_purge(), "the machine or the broker is wrong");
    }

    #[tokio::test(start_paused = true)]
    async fn program_without_broker_doubts_a_jump_of_its_machine() {
        let (machine, clock) = clocks();
        assert_eq!(clock.follow_machine(None), None);
        machine.set(TWO_DAYS);
        advance(Duration::from_secs(10)).await;
        assert!(clock.follow_machine(None).is_some());
        assert_eq!(seconds(&clock), 10);
        assert!(!clock.may_purge());
    }
}
