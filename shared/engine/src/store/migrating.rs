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

/// What a database says of a migration that it has.
pub(super) struct Applied {
    pub(super) checksum: String,
    /// A build that does not know it may use the database all the same.
    pub(super) is_additive: bool,
}

/// How the text of a migration begins that adds what a build that does not know it leaves alone, and needs nothing of: a table,
/// a column with a default, an index. During a rolling upgrade builds of both kinds use the database.
const ADDITIVE: &str = "-- Additive: ";

impl Migration {
    pub(super) fn is_additive(&self) -> bool {
        self.sql.starts_with(ADDITIVE)
    }
}

/// Those of `known` that are not among the `applied`, in their order.
///
/// # Errors
/// When the database has one that this build does not know and that is not additive, or one of them was changed after it was
/// applied.
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
    fn what_a_build_does_not_know_is_left_alone_when_it_only_adds() {
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
