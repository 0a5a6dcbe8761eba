//! The state of everything, and the findings that need a human. In reading order:
//!
//! - [`affected`]: data for findings that the overview does not show
//! - `dead_letter_findings`, `readiness_findings`, [`findings`]: the rules by which a problem needs a human
//! - [`notifiable`]: which findings people are notified of
//! - [`waiting_orders`]: the orders that wait while a finding is open
//! - `snapshot`: reads the state of everything within two seconds
//! - `metrics`, `finding_metrics`: export it for Prometheus

pub mod affected;
mod dead_letter_findings;
mod finding_metrics;
pub mod findings;
pub(crate) mod metrics;
pub mod notifiable;
mod readiness_findings;
pub(crate) mod snapshot;
pub mod waiting_orders;
