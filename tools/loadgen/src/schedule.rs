//! Pure: due times and contents of the orders of a run.

use std::fmt::Write as _;
use std::time::Duration;

use super::options::{Kind, Mix};

/// Number of products with stock.
pub const ITEMS: u64 = 16;
/// Sku of a product without stock.
pub const SOLD_OUT: &str = "load-none";
/// Upper bound on the rate of a closed loop, for the stock of the products.
const MAX_PER_SECOND: u64 = 20_000;

/// Sku of a product with stock.
pub fn item(number: u64) -> String {
    format!("load-item-{:02}", number % ITEMS)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pace {
    /// Orders are due by the clock, at these rates in turn.
    Open(Vec<Phase>),
    /// Each client sends an order when its previous one has ended.
    Closed { clients: u32 },
}

/// A period with one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Phase {
    from: Duration,
    first: u64,
    rate: u32,
    orders: u64,
}

impl Phase {
    /// Due time of an order, by its number in the run.
    fn due(&self, number: u64) -> Duration {
        let nanos = u128::from(number - self.first) * 1_000_000_000 / u128::from(self.rate);
        self.from + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn end(&self) -> Duration {
        self.due(self.first + self.orders)
    }
}

/// All orders of a run.
#[derive(Debug, Clone)]
pub struct Schedule {
    pace: Pace,
    mix: Mix,
    measured_from: Duration,
    end: Duration,
    /// Prefix of the customers of this run.
    customer_prefix: String,
}

impl Schedule {
    /// Open loop. `run` distinguishes its customers from those of other runs.
    pub fn at_rate(rate: u32, warmup: Duration, duration: Duration, mix: Mix, run: &str) -> Self {
        let first_measured = orders_in(warmup, rate);
        let orders = first_measured.saturating_add(orders_in(duration, rate).max(1));
        let phase = Phase { from: Duration::ZERO, first: 0, rate, orders };
        let (measured_from, end) = (phase.due(first_measured), phase.end());
        Self {
            pace: Pace::Open(vec![phase]),
            mix,
            measured_from,
            end,
            customer_prefix: format!("load-{run}-"),
        }
    }

    pub fn of_clients(clients: u32, warmup: Duration, duration: Duration, mix: Mix, run: &str) -> Self {
        let customer_prefix = format!("load-{run}-");
        Self {
            pace: Pace::Closed { clients },
            mix,
            measured_from: warmup,
            end: warmup + duration,
            customer_prefix,
        }
    }

    /// Appends a period with another rate to an open loop.
    pub fn then(mut self, rate: u32, duration: Duration) -> Self {
        if let Pace::Open(phases) = &mut self.pace {
            let first = phases.last().map_or(0, |last| last.first + last.orders);
            let phase = Phase { from: self.end, first, rate, orders: orders_in(duration, rate) };
            self.end = phase.end();
            phases.push(phase);
        }
        self
    }

    /// Clients of a closed loop; `None` for an open one.
    pub const fn clients(&self) -> Option<u64> {
        match self.pace {
            Pace::Open(_) => None,
            Pace::Closed { clients } => Some(clients as u64),
        }
    }

    /// Due time of an order of an open loop; `None` if there is no such order.
    pub fn due(&self, number: u64) -> Option<Duration> {
        match &self.pace {
            Pace::Open(phases) => {
                let phase = phases.iter().find(|phase| number < phase.first + phase.orders)?;
                Some(phase.due(number))
            }
            Pace::Closed { .. } => None,
        }
    }

    /// Upper bound on the number of orders.
    pub fn max_orders(&self) -> u64 {
        match &self.pace {
            Pace::Open(phases) => phases.iter().map(|phase| phase.orders).sum(),
            Pace::Closed { .. } => (self.end.as_secs() + 1).saturating_mul(MAX_PER_SECOND),
        }
    }

    /// Highest rate of an open loop.
    pub fn highest_rate(&self) -> Option<u32> {
        match &self.pace {
            Pace::Open(phases) => phases.iter().map(|phase| phase.rate).max(),
            Pace::Closed { .. } => None,
        }
    }

    /// End of the warm-up.
    pub const fn measured_from(&self) -> Duration {
        self.measured_from
    }

    pub const fn end(&self) -> Duration {
        self.end
    }

    pub const fn kind(&self, number: u64) -> Kind {
        self.mix.kind(number)
    }

    /// Request body of an order. Every second one has two lines.
    pub fn body(&self, number: u64) -> String {
        let kind = self.kind(number);
        let token = match kind {
            Kind::Happy | Kind::OutOfStock | Kind::Cancelled => "tok_ok",
            Kind::Declined => "tok_declined",
        };
        let mut body = format!(r#"{{"customer":"{}{number}","lines":[{{"sku":""#, self.customer_prefix);
        // Writing to a string cannot fail.
        let _ = match kind {
            Kind::Happy | Kind::Declined | Kind::Cancelled => write!(body, "load-item-{:02}", number % ITEMS),
            Kind::OutOfStock => write!(body, "{SOLD_OUT}"),
        };
        body.push_str(r#"","quantity":1}"#);
        if number.is_multiple_of(2) {
            let _ = write!(body, r#",{{"sku":"load-item-{:02}","quantity":1}}"#, (number + 1) % ITEMS);
        }
        let _ = write!(body, r#"],"payment":{{"token":"{token}"}}}}"#);
        body
    }
}

fn orders_in(time: Duration, rate: u32) -> u64 {
    u64::try_from(time.as_micros() * u128::from(rate) / 1_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule(rate: u32) -> Schedule {
        let mix = "happy=85,declined=5,out_of_stock=5,cancelled=5".parse().expect("a mix");
        Schedule::at_rate(rate, SECOND, SECOND * 2, mix, "abc")
    }

    #[test]
    fn orders_are_due_at_fixed_intervals_until_the_end() {
        let schedule = schedule(300);
        assert_eq!((schedule.measured_from(), schedule.max_orders()), (SECOND, 900));
        assert_eq!(schedule.due(0), Some(Duration::ZERO));
        assert_eq!(schedule.due(1), Some(Duration::from_nanos(3_333_333)));
        assert_eq!((schedule.due(300), schedule.due(900)), (Some(SECOND), None));
        assert_eq!((schedule.end(), schedule.highest_rate()), (SECOND * 3, Some(300)));
        let shortest = Schedule::at_rate(1, Duration::ZERO, Duration::from_millis(1), Mix::HAPPY, "abc");
        assert_eq!(shortest.max_orders(), 1, "at least one order");
    }

    #[test]
    fn run_continues_at_another_rate() {
        let schedule = schedule(300).then(10, SECOND * 2);
        assert_eq!((schedule.due(899), schedule.due(900)), (schedule.due(899), Some(SECOND * 3)));
        assert_eq!((schedule.due(910), schedule.due(920)), (Some(SECOND * 4), None));
        assert_eq!((schedule.end(), schedule.max_orders()), (SECOND * 5, 920));
        assert_eq!((schedule.measured_from(), schedule.highest_rate()), (SECOND, Some(300)));
    }

    #[test]
    fn closed_loop_has_clients_and_an_end_but_no_due_times() {
        let closed = Schedule::of_clients(64, SECOND, SECOND * 2, Mix::HAPPY, "abc");
        assert_eq!((closed.clients(), closed.due(0), closed.highest_rate()), (Some(64), None, None));
        assert_eq!((closed.measured_from(), closed.end()), (SECOND, SECOND * 3));
        assert!(closed.max_orders() >= 60_000 && schedule(1).clients().is_none());
        assert_eq!(closed.clone().then(5, SECOND).end(), SECOND * 3, "it has no rate");
    }

    #[test]
    fn request_body_matches_the_kind_of_the_order() {
        let schedule = schedule(100);
        for number in 0..100 {
            let order: serde_json::Value = serde_json::from_str(&schedule.body(number)).expect("JSON");
            assert_eq!(order["customer"], format!("load-abc-{number}"));
            let lines = order["lines"].as_array().expect("lines");
            assert_eq!(lines.len(), if number % 2 == 0 { 2 } else { 1 }, "{number}");
            let (sku, token) = match schedule.kind(number) {
                Kind::Happy | Kind::Cancelled => (item(number), "tok_ok"),
                Kind::Declined => (item(number), "tok_declined"),
                Kind::OutOfStock => (SOLD_OUT.to_owned(), "tok_ok"),
            };
            assert_eq!((&lines[0]["sku"], &order["payment"]["token"]), (&sku.into(), &token.into()));
            if let Some(second) = lines.get(1) {
                assert_eq!(second["sku"], item(number + 1), "another product");
            }
        }
        assert_eq!([item(0), item(15), item(16)], ["load-item-00", "load-item-15", "load-item-00"]);
    }
}
