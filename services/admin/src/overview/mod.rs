//! The state of everything, and the findings that need a human. In reading order:
//!
//! - `dead_letter_findings`, [`findings`]: the rules by which a problem needs a human
//! - [`notifiable`]: which findings people are notified of
//! - `snapshot`: reads the state of everything within two seconds
//! - `metrics`: exports it for Prometheus

mod dead_letter_findings;
pub mod findings;
pub(crate) mod metrics;
pub mod notifiable;
pub(crate) mod snapshot;
