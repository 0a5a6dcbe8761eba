//! What people are told by itself, before they look: from one look at everything to the notices that are sent.
//!
//! In reading order; each knows only what stands before it:
//!
//! - [`notice`]: what is sent
//! - [`alerts`]: what of one look somebody must know of, each under a key that stays
//! - [`told`]: what has been told, and what follows from another look
//! - [`signing`]: how a receiver knows that a notice comes from here
//! - [`settings`]: where notices go, and how often

pub mod alerts;
pub mod notice;
pub mod settings;
pub mod signing;
pub mod told;
