//! The state of everything, and the findings that need a human. In reading order:
//!
//! - [`findings`]: the rules by which a problem needs a human
//! - `snapshot`: reads the state of everything within two seconds
//! - `metrics`: exports it for Prometheus

pub mod findings;
pub(crate) mod metrics;
pub(crate) mod snapshot;
