//! Shell: queries of rows and their events.

use std::collections::BTreeMap;
use std::sync::Arc;

use saga_core::decider::FieldValue;
use saga_core::query::{FoundRow, Group, Join, Joined, Order, Query};
use saga_core::row::{RowKey, RowKind, StoredEvent};

use super::Answer;
use super::backend::{Backend, Kinds, Lane};
use super::cell::{Cell, Damaged};
use super::encoding::without_nul;
use super::reading::{found, histories, is_storable_id, readable_history};
use super::roles::Queries;
use super::sql::{Array, Parameter, Row, Sql, limit_of, quoted};
use super::sql_error::{SqlError, db_fault};

const HISTORY: &str = "reading the history of a row";

impl<B: Backend> Queries for B {
    fn row(&self, key: RowKey) -> Answer<'_, Option<FoundRow>> {
        self.read(Lane::Row, key, |db, key| {
            Box::pin(async move { row(db, key).await.map_err(db_fault("reading a row")) })
        })
    }

    fn find(&self, kind: &'static str, query: Query) -> Answer<'_, Vec<FoundRow>> {
        let lane = if query.is_for_one() { Lane::Row } else { Lane::Scan };
        self.read(lane, (self.kinds().clone(), kind, query), |db, (kinds, kind, query)| {
            let kinds: &Arc<Kinds> = kinds;
            Box::pin(
                async move { find(db, kinds.of_name(kind)?, query).await.map_err(db_fault("finding rows")) },
            )
        })
    }

    fn counts(
        &self,
        kind: &'static str,
        by: &'static str,
        query: Query,
    ) -> Answer<'_, BTreeMap<String, u64>> {
        self.read(Lane::Scan, (self.kinds().clone(), kind, by, query), |db, (kinds, kind, by, query)| {
            Box::pin(async move {
                counts(db, kinds.of_name(kind)?, by, query).await.map_err(db_fault("counting rows"))
            })
        })
    }

    fn groups(
        &self,
        kind: &'static str,
        by: &'static str,
        times: &'static str,
        query: Query,
    ) -> Answer<'_, Vec<Group>> {
        let args = (self.kinds().clone(), kind, by, times, query);
        self.read(Lane::Scan, args, |db, (kinds, kind, by, times, query)| {
            Box::pin(async move {
                let groups = groups(db, kinds.of_name(kind)?, by, times, query);
                groups.await.map_err(db_fault("counting rows by a field"))
            })
        })
    }

    fn joined(&self, kind: &'static str, join: Join, query: Query) -> Answer<'_, Vec<Joined>> {
        self.read(Lane::Scan, (self.kinds().clone(), kind, join, query), |db, (kinds, kind, join, query)| {
            Box::pin(async move {
                let joined = joined(db, kinds.of_name(kind)?, *join, query);
                joined.await.map_err(db_fault("counting related rows"))
            })
        })
    }

    fn events(&self, key: RowKey, after: i64, limit: usize) -> Answer<'_, Vec<StoredEvent>> {
        self.read(Lane::Row, (key, after, limit_of(limit)), |db, (key, after, limit)| {
            Box::pin(async move {
                let events = readable_history(db, key.kind, &key.id, (*after, i64::MAX), *limit);
                events.await.map_err(db_fault(HISTORY))
            })
        })
    }

    fn histories(&self, kind: &'static str, ids: Vec<String>) -> Answer<'_, Vec<Vec<StoredEvent>>> {
        self.snapshot(Lane::Scan, (kind, ids), |db, (kind, ids)| {
            Box::pin(async move { histories(db, kind, ids).await.map_err(db_fault(HISTORY)) })
        })
    }
}

async fn row<S: Sql>(db: &S, key: &RowKey) -> Result<Option<FoundRow>, SqlError> {
    if !is_storable_id::<S>(&key.id) {
        return Ok(None);
    }
    let sql =
        format!("SELECT id, version, state, created_at, updated_at FROM row_{} WHERE id = $1", key.kind);
    Ok(db.query_opt(&sql, &[&key.id], found).await?.flatten())
}

/// SQL conditions of a query, to follow `WHERE true`, with their parameters.
#[derive(Default)]
struct Conditions {
    sql: String,
    values: Vec<Box<dyn Parameter + Send>>,
}

impl Conditions {
    fn add(&mut self, value: impl Parameter + Send + 'static) -> usize {
        self.values.push(Box::new(value));
        self.values.len()
    }

    /// Adds a value of a field, in the type of its column.
    fn add_field<S: Sql>(&mut self, kind: &RowKind, field: &str, value: &FieldValue) -> usize {
        match S::stored_value(kind, field, value.clone()) {
            FieldValue::Text(text) => self.add(text),
            FieldValue::Integer(number) => self.add(number),
            FieldValue::Null if kind.is_number(field) => self.add(None::<i64>),
            FieldValue::Null => self.add(None::<String>),
        }
    }

    fn of<S: Sql>(kind: &RowKind, query: &Query) -> Self {
        let mut all = Self::default();
        for (operator, conditions) in [("=", &query.equals), ("<", &query.below), (">=", &query.from)] {
            for (field, value) in conditions {
                let place = all.add_field::<S>(kind, field, value);
                all.sql.push_str(&format!(" AND {} {operator} ${place}", quoted(field)));
            }
        }
        for (field, options) in &query.one_of {
            let options = options.iter().map(|value| S::stored_value(kind, field, value.clone()));
            let place = match kind.is_number(field) {
                true => all.add(Array(options.filter_map(number).collect::<Vec<_>>())),
                false => all.add(Array(options.filter_map(text).collect::<Vec<_>>())),
            };
            all.sql.push_str(&format!(" AND {} {}", quoted(field), S::any(place)));
        }
        let fields = query.contains.iter().map(|(field, sought)| (quoted(field), sought));
        let state = query.texts.iter().map(|sought| ("state".to_owned(), sought));
        for (column, sought) in fields.chain(state) {
            let place = all.add(without_nul(sought.as_str()));
            all.sql.push_str(&format!(" AND {}(lower({column}), lower(${place})) > 0", S::POSITION));
        }
        let beyond = if query.descending { "<" } else { ">" };
        // No id contains a NUL character: the bound sorts like this one among them.
        let bound = |after: &str| after.replace('\0', "\u{1}");
        match (&query.after, query.order) {
            (Some(after), None) => {
                let place = all.add(bound(after));
                all.sql.push_str(&format!(" AND id {beyond} ${place}"));
            }
            (Some(after), Some(Order { field, after: Some(value) })) => {
                let (value, id) = (all.add(value), all.add(bound(after)));
                all.sql.push_str(&format!(" AND ({}, id) {beyond} (${value}, ${id})", quoted(field)));
            }
            (Some(_), Some(Order { after: None, .. })) | (None, _) => {}
        }
        all
    }

    async fn query<S: Sql, T: Send>(
        &self,
        db: &S,
        sql: &str,
        read: impl Fn(&Row<'_>) -> Result<T, SqlError> + Send,
    ) -> Result<Vec<T>, SqlError> {
        let values: Vec<&dyn Parameter> =
            self.values.iter().map(|value| &**value as &dyn Parameter).collect();
        db.query(sql, &values, read).await
    }
}

fn number(value: FieldValue) -> Option<i64> {
    match value {
        FieldValue::Integer(number) => Some(number),
        FieldValue::Text(_) | FieldValue::Null => None,
    }
}

fn text(value: FieldValue) -> Option<String> {
    match value {
        FieldValue::Text(text) => Some(text),
        FieldValue::Integer(number) => Some(number.to_string()),
        FieldValue::Null => None,
    }
}

async fn find<S: Sql>(db: &S, kind: &RowKind, query: &Query) -> Result<Vec<FoundRow>, SqlError> {
    let mut conditions = Conditions::of::<S>(kind, query);
    let direction = if query.descending { "DESC" } else { "ASC" };
    let by = query.order.map(|order| order.field);
    let first = by.map(|field| format!("{} {direction}, ", quoted(field))).unwrap_or_default();
    let ordered_by = by.map_or_else(|| "CAST(NULL AS bigint)".to_owned(), quoted);
    let is_number = by.is_none_or(|field| kind.is_number(field));
    let read = |row: &Row<'_>| {
        let ordered_by = match row.cell(5, is_number)? {
            Cell::Integer(number) => FieldValue::Integer(number),
            Cell::Text(text) => FieldValue::Text(text),
            damaged @ Cell::Damaged(Damaged::Text(_)) => FieldValue::Text(damaged.to_string()),
            Cell::Null | Cell::Damaged(_) => FieldValue::Null,
        };
        Ok(found(row)?.map(|found| FoundRow { ordered_by, ..found }))
    };
    let (limit, values) = (limit_of(query.limit), conditions.values.len());
    let sql = format!(
        "SELECT id, version, state, created_at, updated_at, {ordered_by} FROM row_{} WHERE true{}
         ORDER BY {first}id {direction} LIMIT ${} OFFSET ${}",
        kind.name,
        conditions.sql,
        values + 1,
        values + 2,
    );
    let (mut rows, mut seen) = (Vec::new(), 0_i64);
    // A page cannot end at a damaged id, so that others take the places of such rows. Verification names them.
    loop {
        let missing = limit - limit_of(rows.len());
        conditions.values.truncate(values);
        conditions.add(missing);
        conditions.add(seen);
        let page = conditions.query(db, &sql, read).await?;
        let is_last = limit_of(page.len()) < missing;
        seen += limit_of(page.len());
        rows.extend(page.into_iter().flatten());
        if is_last || limit_of(rows.len()) >= limit {
            return Ok(rows);
        }
    }
}

/// Reads the value of a group; empty for rows without one.
fn group_value(row: &Row<'_>) -> Result<String, SqlError> {
    let value = row.cell(0, false)?;
    Ok(if value == Cell::Null { String::new() } else { value.to_string() })
}

async fn counts<S: Sql>(
    db: &S,
    kind: &RowKind,
    by: &str,
    query: &Query,
) -> Result<BTreeMap<String, u64>, SqlError> {
    let conditions = Conditions::of::<S>(kind, query);
    let sql = format!(
        "SELECT CAST({by} AS text), count(*) FROM row_{} WHERE true{} GROUP BY {by}",
        kind.name,
        conditions.sql,
        by = quoted(by),
    );
    let read = |row: &Row<'_>| Ok((group_value(row)?, row.count(1)?));
    let mut counts = BTreeMap::new();
    for (value, count) in conditions.query(db, &sql, read).await? {
        *counts.entry(value).or_default() += count;
    }
    Ok(counts)
}

async fn groups<S: Sql>(
    db: &S,
    kind: &RowKind,
    by: &str,
    times: &str,
    query: &Query,
) -> Result<Vec<Group>, SqlError> {
    let mut conditions = Conditions::of::<S>(kind, query);
    let limit = conditions.add(limit_of(query.limit));
    // The latest row of a group, by its time and then its id.
    let sql = format!(
        "SELECT largest.value, largest.count, largest.first, largest.last, (
             SELECT id FROM row_{kind} WHERE coalesce(CAST({by} AS text), '') = largest.value AND {times} = largest.last{conditions}
             ORDER BY id LIMIT 1)
         FROM (SELECT coalesce(CAST({by} AS text), '') AS value, count(*) AS count, min({times}) AS first,
                      max({times}) AS last
               FROM row_{kind} WHERE true{conditions} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ${limit}) AS largest
         ORDER BY 2 DESC, 1",
        kind = kind.name,
        conditions = conditions.sql,
        by = quoted(by),
        times = quoted(times),
    );
    let read = |row: &Row<'_>| {
        Ok(Group {
            value: row.readable_text(0)?,
            count: row.count(1)?,
            first: row.undamaged(2)?.unwrap_or_default(),
            last: row.undamaged(3)?.unwrap_or_default(),
            latest: row.readable_text(4)?,
        })
    };
    conditions.query(db, &sql, read).await
}

async fn joined<S: Sql>(
    db: &S,
    kind: &RowKind,
    Join { by, and, through, kind: other, their, range, after }: Join,
    query: &Query,
) -> Result<Vec<Joined>, SqlError> {
    let mut conditions = Conditions::of::<S>(kind, query);
    let after = conditions.add(after);
    let sql = format!(
        "SELECT mine.one, mine.two, CAST(other.{their} AS text), count(*),
                count(*) FILTER (WHERE other.{range} <= ${after}),
                min(other.{range}) FILTER (WHERE other.{range} > ${after}),
                max(other.{range}) FILTER (WHERE other.{range} > ${after})
         FROM (SELECT coalesce(CAST({by} AS text), '') AS one, coalesce(CAST({and} AS text), '') AS two,
                      {through} AS through FROM row_{} WHERE true{}) AS mine
         LEFT JOIN row_{other} AS other ON other.id = mine.through
         GROUP BY 1, 2, 3",
        kind.name,
        conditions.sql,
        by = quoted(by),
        and = quoted(and),
        through = quoted(through),
        their = quoted(their),
        range = quoted(range),
    );
    let read = |row: &Row<'_>| {
        let range = [row.undamaged::<Option<i64>>(5)?.flatten(), row.undamaged::<Option<i64>>(6)?.flatten()];
        Ok(Joined {
            by: row.readable_text(0)?,
            and: row.readable_text(1)?,
            their: row.undamaged(2)?.flatten(),
            count: row.count(3)?,
            past: row.count(4)?,
            range: range[0].zip(range[1]),
        })
    };
    let mut joined = conditions.query(db, &sql, read).await?;
    joined.sort_by(|a, b| (&a.by, &a.and, &a.their).cmp(&(&b.by, &b.and, &b.their)));
    Ok(joined)
}
