//! Shell: migrations that a database lacks, for every store.

use sha2::{Digest as _, Sha256};

use super::StoreFault;
use super::encoding::hex;

/// Migration to apply, and to record with its checksum.
pub(super) struct Migration {
    pub(super) number: i64,
    pub(super) sql: &'static str,
    pub(super) checksum: String,
}

/// Migration that a database has.
pub(super) struct Applied {
    pub(super) checksum: String,
    /// Allows builds that do not know the migration to use the database.
    pub(super) is_additive: bool,
}

/// Prefix of an additive migration. It only adds what an older build neither touches nor needs: a table, a column with a
/// default, an index. During a rolling upgrade, older and newer builds use the database.
const ADDITIVE: &str = "-- Additive: ";

impl Migration {
    pub(super) fn is_additive(&self) -> bool {
        self.sql.starts_with(ADDITIVE)
    }
}

/// Returns the missing migrations in order.
///
/// # Errors
/// For an unknown migration that is not additive, and for one that was changed after it was applied.
pub(super) fn missing(known: &[&'static str], applied: &[Applied]) -> Result<Vec<Migration>, StoreFault> {
    if !applied.iter().skip(known.len()).all(|unknown| unknown.is_additive) {
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
            Some(recorded) if recorded.checksum == checksum => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 2] = ["CREATE TABLE one (id)", "-- Additive: a second.\nCREATE TABLE two (id)"];

    fn applied(text: &str, is_additive: bool) -> Applied {
        Applied { checksum: hex(&Sha256::digest(text)), is_additive }
    }

    #[test]
    fn unknown_migration_is_accepted_only_if_additive() {
        let both = || vec![applied(KNOWN[0], false), applied(KNOWN[1], true)];
        let of_a_newer =
            |is_additive| both().into_iter().chain([applied("newer", is_additive)]).collect::<Vec<_>>();
        let missing_of = |applied: &[Applied]| missing(&KNOWN, applied).map(|missing| missing.len());
        assert_eq!(missing_of(&[]).expect("all"), 2);
        assert_eq!(missing_of(&of_a_newer(true)).expect("none"), 0);
        let refused = missing_of(&of_a_newer(false)).expect_err("unknown").to_string();
        assert!(refused.contains("schema 3, this build knows 2"), "{refused}");
        assert!(missing_of(&[applied("another", false)]).is_err());
        let all = missing(&KNOWN, &[]).expect("all");
        assert_eq!(all.iter().map(Migration::is_additive).collect::<Vec<_>>(), [false, true]);
    }
}
