//! Shell: HTTP client of the services: requests, access by token and certificate authority, reconciliation.

pub mod access;
pub mod http;
pub mod reconciliation;
