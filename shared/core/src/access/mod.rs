//! Pure: authorization over HTTP: roles, rules for routes, tokens and rate limits.
//!
//! In reading order:
//! - [`role`]: three roles, each of which includes the one before, and the rules for routes.
//! - [`token`]: a secret token and its digest.
//! - [`tokens`]: issued tokens and their holders.
//! - [`allowance`]: rate limiting of a token's holder.

pub mod allowance;
pub mod role;
pub mod token;
pub mod tokens;

pub use allowance::{Allowance, Rate};
pub use role::{Access, Role, Rule};
pub use token::{Digest, Token};
pub use tokens::{InvalidToken, IssueError, Issued, Tokens};
