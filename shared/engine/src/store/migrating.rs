//! Shell: which migrations a database still needs, whatever store keeps them.

use sha2::{Digest as _, Sha256};

use super::StoreFault;
use super::units::hex;

/// A migration that is to be applied, and recorded with its checksum.
pub(super) struct Migration {
    pub(super) number: i64,
    pub(super) sql: &'static str,
    pub(super) checksum: String,
}

/// Those of `known` that are not among the `applied`, of which each has its number and its checksum, in their order.
///
/// # Errors
/// When the database has more than this build knows, or one of them was changed after it was applied.
pub(super) fn missing(
    known: &[&'static str],
    applied: &[(i64, String)],
) -> Result<Vec<Migration>, StoreFault> {
    if applied.len() > known.len() {
        return Err(StoreFault::Unusable(format!(
            "the database has schema {}, this build knows {}: start a newer build",
            applied.len(),
            known.len()
        )));
    }
    let mut missing = Vec::new();
    for ((sql, number), place) in known.iter().copied().zip(1..).zip(0..) {
        let checksum = hex(&Sha256::digest(sql));
        match applied.get(place) {
            Some((_, recorded)) if *recorded == checksum => {}
            Some(_) => {
                return Err(StoreFault::Unusable(format!(
                    "migration {number} of the database is not the one of this build: it was changed after it was applied"
                )));
            }
            None => missing.push(Migration { number, sql, checksum }),
        }
    }
    Ok(missing)
}
