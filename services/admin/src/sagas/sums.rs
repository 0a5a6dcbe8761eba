//! Pure: sums of some sagas.

use admin_api::overview::Impact;
use contract::money::Money;
use jiff::Timestamp;

/// Sums of some sagas, of which only the oldest are read.
#[derive(Debug, Clone, Default)]
pub struct SagaSums {
    /// Money in their orders, one amount for each currency.
    pub amounts: Vec<Money>,
    /// True if there is more money than that: not all of them were read.
    pub is_partial: bool,
    /// Id of the oldest.
    pub oldest: Option<String>,
    /// Start of the oldest.
    pub oldest_at: Option<Timestamp>,
}

impl SagaSums {
    /// Money of the sagas, for a finding about them.
    pub(crate) fn impact(&self) -> Impact {
        Impact { amounts: self.amounts.clone(), amounts_partial: self.is_partial, ..Impact::default() }
    }
}

/// Orders that wait for one step, without those whose message is a dead letter.
#[derive(Debug, Clone, Default)]
pub struct WaitingOrders {
    pub count: u64,
    /// Earliest deadline that is not past; `None` for a compensation, which has none.
    pub first_deadline: Option<Timestamp>,
    /// Money in the oldest of them, one amount for each currency.
    pub amounts: Vec<Money>,
    /// True if there is more money than that.
    pub amounts_partial: bool,
}
