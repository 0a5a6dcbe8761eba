//! Pure: which order is sent when.

use std::time::Duration;

use super::options::{Kind, Mix};

/// Products that are there in plenty.
pub const ITEMS: u64 = 16;
/// The product that is sold out.
pub const SOLD_OUT: &str = "load-none";

/// The sku of a product that is there.
pub fn item(number: u64) -> String {
    format!("load-item-{:02}", number % ITEMS)
}

/// All orders of a run.
#[derive(Debug, Clone)]
pub struct Schedule {
    rate: u32,
    mix: Mix,
    /// Orders before this one are not measured.
    pub first_measured: u64,
    pub orders: u64,
    /// What the customers of this run have in common.
    pub run: String,
}

impl Schedule {
    /// `run` keeps it apart from every other run.
    pub fn new(rate: u32, warmup: Duration, duration: Duration, mix: Mix, run: &str) -> Self {
        let orders_in = |time: Duration| {
            u64::try_from(time.as_micros() * u128::from(rate) / 1_000_000).unwrap_or(u64::MAX)
        };
        let first_measured = orders_in(warmup);
        let orders = first_measured.saturating_add(orders_in(duration).max(1));
        Self { rate, mix, first_measured, orders, run: format!("load-{run}-") }
    }

    /// When an order is to be sent, from the start of the run.
    pub fn due(&self, number: u64) -> Duration {
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// When the last order has been sent.
    pub fn end(&self) -> Duration {
        self.due(self.orders)
    }

    /// What is to become of an order.
    pub const fn kind(&self, number: u64) -> Kind {
        self.mix.kind(number)
    }

    /// The body of an order. Every second one has two lines.
    pub fn body(&self, number: u64) -> String {
        let kind = self.kind(number);
        let first = match kind {
            Kind::Happy | Kind::Declined => item(number),
            Kind::OutOfStock => SOLD_OUT.to_owned(),
        };
        let token = match kind {
            Kind::Happy | Kind::OutOfStock => "tok_ok",
            Kind::Declined => "tok_declined",
        };
        let second = if number.is_multiple_of(2) {
            format!(r#",{{"sku":"{}","quantity":1}}"#, item(number + 1))
        } else {
            String::new()
        };
        format!(
            r#"{{"customer":"{}{number}","lines":[{{"sku":"{first}","quantity":1}}{second}],"payment":{{"token":"{token}"}}}}"#,
            self.run
        )
    }

    /// The number of the order that this customer placed, if it is one of this run.
    pub fn number_of(&self, customer: &str) -> Option<u64> {
        customer.strip_prefix(&self.run)?.parse().ok().filter(|number| *number < self.orders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: u32) -> Schedule {
        let mix = "happy=90,declined=5,out_of_stock=5".parse().expect("a mix");
        Schedule::new(rate, Duration::from_secs(1), Duration::from_secs(2), mix, "abc")
    }

    #[test]
    fn orders_are_due_at_fixed_intervals() {
        let schedule = schedule(300);
        assert_eq!((schedule.first_measured, schedule.orders), (300, 900));
        assert_eq!(schedule.due(0), Duration::ZERO);
        assert_eq!(schedule.due(1), Duration::from_nanos(3_333_333));
        assert_eq!(schedule.due(300), Duration::from_secs(1));
    }

    #[test]
    fn an_order_is_json_and_found_again_by_its_customer() {
        let schedule = schedule(100);
        for number in 0..100 {
            let order: serde_json::Value = serde_json::from_str(&schedule.body(number)).expect("JSON");
            assert_eq!(schedule.number_of(order["customer"].as_str().expect("a customer")), Some(number));
        }
        assert_eq!(schedule.number_of("load-abd-1"), None);
        assert_eq!(schedule.number_of("load-abc-x"), None);
    }

    /// Who reads the books of a run knows which of its orders end how.
    #[test]
    fn an_order_is_what_its_kind_says() {
        let schedule = schedule(100);
        for number in 0..100 {
            let order: serde_json::Value = serde_json::from_str(&schedule.body(number)).expect("JSON");
            let lines = order["lines"].as_array().expect("lines");
            assert_eq!(lines.len(), if number % 2 == 0 { 2 } else { 1 }, "{number}");
            let (sku, token) = match schedule.kind(number) {
                Kind::Happy => (item(number), "tok_ok"),
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

    #[test]
    fn a_run_ends_when_its_last_order_is_due_and_knows_no_order_beyond() {
        let schedule = schedule(100);
        assert_eq!((schedule.orders, schedule.end()), (300, Duration::from_secs(3)));
        assert_eq!(schedule.number_of("load-abc-299"), Some(299));
        assert_eq!(schedule.number_of("load-abc-300"), None);
        let mix = "happy=100".parse().expect("a mix");
        let shortest = Schedule::new(1, Duration::ZERO, Duration::from_millis(1), mix, "abc");
        assert_eq!(shortest.orders, 1, "a run has an order");
    }
}
