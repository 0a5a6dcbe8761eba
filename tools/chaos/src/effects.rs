//! Pure: effect of each disruption on the latency of orders.

use std::time::Duration;

use serde::Serialize;

use super::plan::PlannedDisruption;

/// Length of the period after a disruption that is measured too.
const AFTERMATH: Duration = Duration::from_secs(10);

/// Life of an order as its customer saw it. Times count from the start of the run.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub placed: Duration,
    /// Answer that it is confirmed or cancelled.
    pub ended: Duration,
}

/// Latency of the orders placed in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    orders: usize,
    p50_ms: u64,
    p99_ms: u64,
}

#[derive(Debug, Serialize)]
pub struct Effect {
    disruption: String,
    at_s: f64,
    until_s: f64,
    during: Latency,
    after: Latency,
    /// Longest pause between the ends of two orders that overlaps with it or its aftermath.
    longest_pause_ms: u64,
}

/// Effects in the order of the plan.
pub fn of(plan: &[PlannedDisruption], spans: &[Span]) -> Vec<Effect> {
    let pauses = pauses(spans);
    let effect = |PlannedDisruption { at, until, disruption }: &PlannedDisruption| {
        let over = *until + AFTERMATH;
        let touching = pauses.iter().filter(|(from, to)| to > at && *from < over);
        Effect {
            disruption: disruption.to_string(),
            at_s: at.as_secs_f64(),
            until_s: until.as_secs_f64(),
            during: latency(spans, *at, *until),
            after: latency(spans, *until, over),
            longest_pause_ms: touching.map(|(from, to)| millis(*to - *from)).max().unwrap_or_default(),
        }
    };
    plan.iter().map(effect).collect()
}

/// Longest pause between the ends of two orders.
pub fn longest_pause(spans: &[Span]) -> Duration {
    pauses(spans).into_iter().map(|(from, to)| to - from).max().unwrap_or_default()
}

/// Pauses between the ends of consecutive orders.
fn pauses(spans: &[Span]) -> Vec<(Duration, Duration)> {
    let mut ends: Vec<_> = spans.iter().map(|span| span.ended).collect();
    ends.sort_unstable();
    ends.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn latency(spans: &[Span], from: Duration, to: Duration) -> Latency {
    let placed = spans.iter().filter(|span| (from..to).contains(&span.placed));
    let mut took: Vec<_> = placed.map(|span| millis(span.ended.saturating_sub(span.placed))).collect();
    took.sort_unstable();
    // Nearest-rank percentile.
    let rank = |percent: usize| {
        took.get((took.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or_default()
    };
    Latency { orders: took.len(), p50_ms: rank(50), p99_ms: rank(99) }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Effect {
    pub fn text(&self) -> String {
        let Self { disruption, at_s, until_s, during, after, longest_pause_ms } = self;
        let shown = |Latency { orders, p50_ms, p99_ms }: &Latency| {
            format!("{orders} orders, p50 {p50_ms} p99 {p99_ms} ms")
        };
        format!(
            "{at_s:>6.1}s to {until_s:>5.1}s  {disruption}: {}; then {}; longest pause {longest_pause_ms} ms",
            shown(during),
            shown(after)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Disruption;
    use devstack::component::Component;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn effect_measures_orders_placed_during_and_after_a_disruption() {
        let spans: Vec<_> = [(0, 100), (1_000, 1_900), (1_500, 5_500), (3_000, 5_600), (14_000, 14_050)]
            .map(|(placed, ended)| Span { placed: ms(placed), ended: ms(ended) })
            .into();
        let planned = PlannedDisruption {
            at: ms(1_000),
            until: ms(2_000),
            disruption: Disruption::Kill(Component::ORDER),
        };
        let [effect] = &of(&[planned], &spans)[..] else { panic!("one") };
        assert_eq!(effect.during, Latency { orders: 2, p50_ms: 900, p99_ms: 4_000 });
        assert_eq!(effect.after, Latency { orders: 1, p50_ms: 2_600, p99_ms: 2_600 });
        assert_eq!((effect.longest_pause_ms, longest_pause(&spans)), (8_450, ms(8_450)));
        assert!(effect.text().contains("kill order: 2 orders, p50 900 p99 4000 ms"), "{}", effect.text());
        let [effect] = &of(&[planned], &[])[..] else { panic!("one") };
        assert_eq!((effect.during, effect.longest_pause_ms), (Latency::default(), 0));
    }
}
