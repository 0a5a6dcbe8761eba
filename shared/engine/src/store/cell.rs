//! Shell: values of columns with the types that they are stored with. SQLite stores a value of any type in any column.

use std::cmp::Ordering;
use std::fmt;

use bytes::BytesMut;
use rusqlite::types::{ToSqlOutput, ValueRef};
use saga_core::decider::FieldValue;
use tokio_postgres::types::{IsNull, ToSql, Type};

use super::encoding::hex;

/// Value of a column, with its type. As a parameter it finds the same value again, damaged or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Damaged(Damaged),
}

/// Value that no column should have. Only SQLite stores such values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Damaged {
    /// Bits of a floating-point number.
    Real(u64),
    /// Text that is not UTF-8.
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Cell {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Integer(_) | Self::Damaged(_) => None,
        }
    }

    pub(super) const fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Null | Self::Text(_) | Self::Damaged(_) => None,
        }
    }

    /// Place of the type in the order of SQLite.
    const fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Integer(_) | Self::Damaged(Damaged::Real(_)) => 1,
            Self::Text(_) | Self::Damaged(Damaged::Text(_)) => 2,
            Self::Damaged(Damaged::Blob(_)) => 3,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Damaged(Damaged::Text(bytes) | Damaged::Blob(bytes)) => bytes,
            Self::Null | Self::Integer(_) | Self::Damaged(Damaged::Real(_)) => &[],
        }
    }
}

/// Orders ids as both databases do. Numbers are in no particular order: no id is one.
impl Ord for Cell {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_type = self.rank().cmp(&other.rank());
        by_type
            .then_with(|| self.bytes().cmp(other.bytes()))
            .then_with(|| self.integer().cmp(&other.integer()))
    }
}

impl PartialOrd for Cell {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Describes a value for people. The form of a damaged one is no JSON.
impl fmt::Display for Cell {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => form.write_str("NULL"),
            Self::Integer(number) => number.fmt(form),
            Self::Text(text) => form.write_str(text),
            Self::Damaged(Damaged::Real(bits)) => write!(form, "damaged:{}", f64::from_bits(*bits)),
            Self::Damaged(Damaged::Text(bytes)) => write!(form, "damaged:{}", readable(bytes)),
            Self::Damaged(Damaged::Blob(bytes)) => write!(form, "damaged:x'{}'", hex(shortened(bytes))),
        }
    }
}

/// Maximum number of bytes that are shown of a damaged value.
const SHOWN_BYTES: usize = 64;

fn shortened(bytes: &[u8]) -> &[u8] {
    bytes.get(..SHOWN_BYTES).unwrap_or(bytes)
}

/// Shows bytes as text on one line, with a replacement for what is no text.
fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(shortened(bytes)).replace(char::is_control, "\u{fffd}")
}

impl From<ValueRef<'_>> for Cell {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::Damaged(Damaged::Text(bytes.to_owned())),
            },
            ValueRef::Real(number) => Self::Damaged(Damaged::Real(number.to_bits())),
            ValueRef::Blob(bytes) => Self::Damaged(Damaged::Blob(bytes.to_owned())),
        }
    }
}

impl From<FieldValue> for Cell {
    fn from(value: FieldValue) -> Self {
        match value {
            FieldValue::Text(text) => Self::Text(text),
            FieldValue::Integer(number) => Self::Integer(number),
            FieldValue::Null => Self::Null,
        }
    }
}

impl rusqlite::types::ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Damaged(Damaged::Real(bits)) => ValueRef::Real(f64::from_bits(*bits)),
            Self::Damaged(Damaged::Text(bytes)) => ValueRef::Text(bytes),
            Self::Damaged(Damaged::Blob(bytes)) => ValueRef::Blob(bytes),
        }))
    }
}

impl ToSql for Cell {
    fn to_sql(
        &self,
        of: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Integer(number) => number.to_sql(of, out),
            Self::Text(text) => text.to_sql(of, out),
            Self::Null | Self::Damaged(_) => Ok(IsNull::Yes),
        }
    }

    fn accepts(of: &Type) -> bool {
        <i64 as ToSql>::accepts(of) || <String as ToSql>::accepts(of)
    }

    tokio_postgres::types::to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn cells_are_ordered_as_sqlite_orders_ids() {
        let conn = Connection::open_in_memory().expect("a database");
        let sql = "SELECT column1 FROM (VALUES ('b'), (x'00'), (CAST(x'62ff' AS TEXT)), (''), ('a'), (x'61'), ('bz'))
             ORDER BY 1";
        let mut statement = conn.prepare(sql).expect("a statement");
        let cells = statement.query_map([], |row| Ok(Cell::from(row.get_ref(0)?))).expect("rows");
        let cells: Vec<Cell> = cells.collect::<Result<_, _>>().expect("cells");
        assert!(cells.is_sorted(), "{cells:?}");
        for cell in &cells {
            let again = conn.query_row("SELECT ?1", [cell], |row| Ok(Cell::from(row.get_ref(0)?)));
            assert_eq!(&again.expect("a value"), cell);
        }
    }
}
