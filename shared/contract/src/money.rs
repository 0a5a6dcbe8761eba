//! Pure: money as integer minor units with an ISO 4217 currency; no floats anywhere.

use std::fmt;

pub use iso_currency::Currency;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::{Object, ObjectBuilder, Type};

/// An amount in the currency's minor unit (cents for EUR).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Money {
    /// Amount in minor units: 1299 is 12.99 EUR.
    #[schema(example = 1299)]
    pub amount_minor: i64,
    /// ISO 4217 code.
    #[schema(schema_with = currency_schema)]
    pub currency: Currency,
}

/// Every ISO 4217 code that is known, as descriptions of routes name them.
#[must_use]
pub fn currency_schema() -> Object {
    // There is no list of them: whatever three letters mean one.
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
    /// `amount_minor` minor units of `currency`.
    #[must_use]
    pub const fn new(amount_minor: i64, currency: Currency) -> Self {
        Self { amount_minor, currency }
    }

    /// The sum, or `None` when the currencies differ or it overflows.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        if self.currency != other.currency {
            return None;
        }
        let amount_minor = self.amount_minor.checked_add(other.amount_minor)?;
        Some(Self { amount_minor, ..self })
    }

    /// `quantity` times this price, or `None` when it overflows.
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
    fn sums_refuse_mixed_currencies_and_overflow() {
        let euro = Money::new(1299, Currency::EUR);
        assert_eq!(euro.plus(Money::new(1, Currency::EUR)), Some(Money::new(1300, Currency::EUR)));
        assert_eq!(euro.plus(Money::new(1, Currency::USD)), None);
        assert_eq!(Money::new(i64::MAX, Currency::EUR).plus(euro), None);
        assert_eq!(Money::new(i64::MAX / 2, Currency::EUR).times(3), None);
    }

    #[test]
    fn shows_minor_units_with_the_digits_of_the_currency() {
        assert_eq!(Money::new(1205, Currency::EUR).to_string(), "12.05 EUR");
        assert_eq!(Money::new(-5, Currency::EUR).to_string(), "-0.05 EUR");
        assert_eq!(Money::new(1205, Currency::JPY).to_string(), "1205 JPY");
    }
}
