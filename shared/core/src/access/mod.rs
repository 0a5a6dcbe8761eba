//! Pure: who may ask for what over HTTP: roles, what each route needs, tokens, and how often one may ask.
//!
//! In reading order:
//! - [`role`]: three roles, each of which may what the one before may, and the table of what routes need.
//! - [`token`]: a token, which is secret, and its digest, which is not.
//! - [`tokens`]: the tokens that were issued, and whose one is.
//! - [`allowance`]: how often the holder of one may ask.

pub mod allowance;
pub mod role;
pub mod token;
pub mod tokens;

pub use allowance::{Allowance, Rate};
pub use role::{Access, Role, Rule};
pub use token::{Digest, Token};
pub use tokens::{Issued, Refusal, Tokens, Unknown};
