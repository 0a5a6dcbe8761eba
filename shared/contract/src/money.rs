//! Pure: money as integer minor units with an ISO 4217 currency, without floats.

use std::collections::BTreeMap;
use std::fmt;

pub use iso_currency::Currency;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::{Object, ObjectBuilder, Type};

/// Amount in minor units of a currency (cents for EUR).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Money {
    /// Amount in minor units: 1299 is 12.99 EUR.
    #[schema(example = 1299)]
    pub amount_minor: i64,
    /// ISO 4217 code of the currency.
    #[schema(schema_with = currency_schema)]
    pub currency: Currency,
}

/// Schema of the currency: every ISO 4217 code that is known.
#[must_use]
pub fn currency_schema() -> Object {
    // The library has no list, so all combinations of three letters are tried.
    let letters = || 'A'..='Z';
    let pairs = letters().flat_map(|first| letters().map(move |second| (first, second)));
    let codes = pairs
        .flat_map(|(first, second)| letters().map(move |third| String::from_iter([first, second, third])));
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("ISO 4217 code."))
        .enum_values(Some(codes.filter(|code| Currency::from_code(code).is_some())))
        .examples(["EUR"])
        .build()
}

impl Money {
    /// Creates an amount of `amount_minor` minor units.
    #[must_use]
    pub const fn new(amount_minor: i64, currency: Currency) -> Self {
        Self { amount_minor, currency }
    }

    /// Adds; `None` if the currencies differ or the sum overflows.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        if self.currency != other.currency {
            return None;
        }
        let amount_minor = self.amount_minor.checked_add(other.amount_minor)?;
        Some(Self { amount_minor, ..self })
    }

    /// Multiplies by `quantity`; `None` on overflow.
    #[must_use]
    pub fn times(self, quantity: u32) -> Option<Self> {
        let amount_minor = self.amount_minor.checked_mul(i64::from(quantity))?;
        Some(Self { amount_minor, ..self })
    }

    /// Minor units in one major unit: 100 for EUR, 1 for JPY.
    #[must_use]
    pub fn minor_per_major(currency: Currency) -> i64 {
        10_i64.pow(u32::from(currency.exponent().unwrap_or(0)))
    }
}

/// Sums amounts, one sum for each currency, in the order of their codes.
#[must_use]
pub fn total_by_currency(amounts: impl IntoIterator<Item = Money>) -> Vec<Money> {
    let mut totals: BTreeMap<&str, Money> = BTreeMap::new();
    for amount in amounts {
        let total = totals.entry(amount.currency.code()).or_insert(Money::new(0, amount.currency));
        total.amount_minor = total.amount_minor.saturating_add(amount.amount_minor);
    }
    totals.into_values().collect()
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = Self::minor_per_major(self.currency).unsigned_abs();
        let sign = if self.amount_minor < 0 { "-" } else { "" };
        let amount = self.amount_minor.unsigned_abs();
        let digits = usize::from(self.currency.exponent().unwrap_or(0));
        match digits {
            0 => write!(f, "{sign}{amount} {}", self.currency.code()),
            _ => write!(f, "{sign}{}.{:0digits$} {}", amount / unit, amount % unit, self.currency.code()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_mixed_currencies_or_overflow_is_none() {
        let euro = Money::new(1299, Currency::EUR);
        assert_eq!(euro.plus(Money::new(1, Currency::EUR)), Some(Money::new(1300, Currency::EUR)));
        assert_eq!(euro.plus(Money::new(1, Currency::USD)), None);
        assert_eq!(Money::new(i64::MAX, Currency::EUR).plus(euro), None);
        assert_eq!(Money::new(i64::MAX / 2, Currency::EUR).times(3), None);
    }

    #[test]
    fn money_displays_digits_of_its_currency() {
        assert_eq!(Money::new(1205, Currency::EUR).to_string(), "12.05 EUR");
        assert_eq!(Money::new(-5, Currency::EUR).to_string(), "-0.05 EUR");
        assert_eq!(Money::new(1205, Currency::JPY).to_string(), "1205 JPY");
    }
}
