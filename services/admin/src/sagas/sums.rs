//! Pure: sums of some sagas.

use contract::money::Money;
use jiff::Timestamp;

/// What is known of some sagas, of which only the oldest are read.
#[derive(Debug, Clone, Default)]
pub struct SagaSums {
    /// Money in their orders, one amount for each currency.
    pub amounts: Vec<Money>,
    /// True if there are more of them than were read.
    pub is_partial: bool,
    /// Id of the oldest.
    pub oldest: Option<String>,
    /// Earliest deadline that is not past.
    pub first_deadline: Option<Timestamp>,
}
