//! Pure: which order is sent when, and what it orders.

use std::fmt::Write as _;
use std::time::Duration;

use super::options::{Kind, Mix};

/// Products that are there in plenty.
pub const ITEMS: u64 = 16;
/// The product that is sold out.
pub const SOLD_OUT: &str = "load-none";
/// More than one machine ends for clients that wait: what the shelf is filled for.
const MOST_PER_SECOND: u64 = 20_000;

/// The sku of a product that is there.
pub fn item(number: u64) -> String {
    format!("load-item-{:02}", number % ITEMS)
}

/// What decides when an order is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pace {
    /// The clock: these rates, one after another.
    Open(Vec<Piece>),
    /// The end of the client's order before it.
    Closed { clients: u32 },
}

/// A stretch of one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    from: Duration,
    first: u64,
    rate: u32,
    orders: u64,
}

impl Piece {
    /// When its order with this number, counted from the start of the run, is due.
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
    /// What the customers of this run have in common.
    run: String,
}

impl Schedule {
    /// An open loop; `run` keeps it apart from every other run.
    pub fn at_rate(rate: u32, warmup: Duration, duration: Duration, mix: Mix, run: &str) -> Self {
        let first_measured = orders_in(warmup, rate);
        let orders = first_measured.saturating_add(orders_in(duration, rate).max(1));
        let piece = Piece { from: Duration::ZERO, first: 0, rate, orders };
        let (measured_from, end) = (piece.due(first_measured), piece.end());
        Self { pace: Pace::Open(vec![piece]), mix, measured_from, end, run: format!("load-{run}-") }
    }

    /// A closed loop: as many clients, each of whom waits for the end of an order before it sends the next.
    pub fn of_clients(clients: u32, warmup: Duration, duration: Duration, mix: Mix, run: &str) -> Self {
        let run = format!("load-{run}-");
        Self { pace: Pace::Closed { clients }, mix, measured_from: warmup, end: warmup + duration, run }
    }

    /// The same open loop, which goes on at another rate.
    pub fn then(mut self, rate: u32, duration: Duration) -> Self {
        if let Pace::Open(pieces) = &mut self.pace {
            let first = pieces.last().map_or(0, |last| last.first + last.orders);
            let piece = Piece { from: self.end, first, rate, orders: orders_in(duration, rate) };
            self.end = piece.end();
            pieces.push(piece);
        }
        self
    }

    /// The clients of a closed loop.
    pub const fn clients(&self) -> Option<u64> {
        match self.pace {
            Pace::Open(_) => None,
            Pace::Closed { clients } => Some(clients as u64),
        }
    }

    /// When an order of an open loop is to be sent, from the start of the run; `None` when there is no such order.
    pub fn due(&self, number: u64) -> Option<Duration> {
        match &self.pace {
            Pace::Open(pieces) => {
                let piece = pieces.iter().find(|piece| number < piece.first + piece.orders)?;
                Some(piece.due(number))
            }
            Pace::Closed { .. } => None,
        }
    }

    /// Orders that the shelf must be filled for: all of an open loop, and no fewer than a closed one can end.
    pub fn most_orders(&self) -> u64 {
        match &self.pace {
            Pace::Open(pieces) => pieces.iter().map(|piece| piece.orders).sum(),
            Pace::Closed { .. } => (self.end.as_secs() + 1).saturating_mul(MOST_PER_SECOND),
        }
    }

    /// The highest rate at which orders are due.
    pub fn highest_rate(&self) -> Option<u32> {
        match &self.pace {
            Pace::Open(pieces) => pieces.iter().map(|piece| piece.rate).max(),
            Pace::Closed { .. } => None,
        }
    }

    /// Orders that are due, or sent, before this are not measured.
    pub const fn measured_from(&self) -> Duration {
        self.measured_from
    }

    /// When the last order has been sent.
    pub const fn end(&self) -> Duration {
        self.end
    }

    /// What is to become of an order.
    pub const fn kind(&self, number: u64) -> Kind {
        self.mix.kind(number)
    }

    /// The body of an order. Every second one has two lines.
    pub fn body(&self, number: u64) -> String {
        let kind = self.kind(number);
        let token = match kind {
            Kind::Happy | Kind::OutOfStock | Kind::Cancelled => "tok_ok",
            Kind::Declined => "tok_declined",
        };
        let mut body = format!(r#"{{"customer":"{}{number}","lines":[{{"sku":""#, self.run);
        // Writing to a text cannot fail.
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
    fn orders_are_due_at_fixed_intervals_and_a_run_ends_when_the_last_would_be_followed() {
        let schedule = schedule(300);
        assert_eq!((schedule.measured_from(), schedule.most_orders()), (SECOND, 900));
        assert_eq!(schedule.due(0), Some(Duration::ZERO));
        assert_eq!(schedule.due(1), Some(Duration::from_nanos(3_333_333)));
        assert_eq!((schedule.due(300), schedule.due(900)), (Some(SECOND), None));
        assert_eq!((schedule.end(), schedule.highest_rate()), (SECOND * 3, Some(300)));
        let shortest = Schedule::at_rate(1, Duration::ZERO, Duration::from_millis(1), Mix::HAPPY, "abc");
        assert_eq!(shortest.most_orders(), 1, "a run has an order");
    }

    #[test]
    fn a_run_goes_on_at_another_rate() {
        let schedule = schedule(300).then(10, SECOND * 2);
        assert_eq!((schedule.due(899), schedule.due(900)), (schedule.due(899), Some(SECOND * 3)));
        assert_eq!((schedule.due(910), schedule.due(920)), (Some(SECOND * 4), None));
        assert_eq!((schedule.end(), schedule.most_orders()), (SECOND * 5, 920));
        assert_eq!((schedule.measured_from(), schedule.highest_rate()), (SECOND, Some(300)));
    }

    /// Clients that wait have no clock: they begin when they can.
    #[test]
    fn a_closed_loop_has_clients_and_an_end() {
        let closed = Schedule::of_clients(64, SECOND, SECOND * 2, Mix::HAPPY, "abc");
        assert_eq!((closed.clients(), closed.due(0), closed.highest_rate()), (Some(64), None, None));
        assert_eq!((closed.measured_from(), closed.end()), (SECOND, SECOND * 3));
        assert!(closed.most_orders() >= 60_000 && schedule(1).clients().is_none());
        assert_eq!(closed.clone().then(5, SECOND).end(), SECOND * 3, "it has no rate");
    }

    /// Who reads the books of a run knows which of its orders end how.
    #[test]
    fn an_order_is_what_its_kind_says() {
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
