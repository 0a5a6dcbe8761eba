//! Shell: rows and their history, read page by page side by side: every row must be the fold of its events, and can be made
//! from them.

use std::collections::VecDeque;

use saga_core::decider::FieldValue;
use saga_core::row::{Folding, PastEvent, Projected, RowKind, SearchedBy};
use tokio_postgres::{Error, Row};

use super::pool::Connection;
use super::values::{
    Owned, Ready, Values, array_of, kept, micros, oops, pipelined, query, query_opt, quoted, timestamp,
    type_of,
};
use crate::store::{FoldReport, StoreFault};

/// Events, or rows, that are read at once.
const PAGE: i64 = 1_000;

/// Folded rows that are written at once.
const WRITTEN: usize = 500;

const READING: &str = "reading the history";

/// The state of a row, which stands for the events that have left.
pub(super) struct Snapshot {
    pub(super) version: i64,
    /// As JSON.
    pub(super) state: String,
    pub(super) created_at: i64,
}

impl Snapshot {
    pub(super) async fn of(conn: &Connection, kind: &str, id: &str) -> Result<Option<Self>, Error> {
        let sql = "SELECT version, state, created_at FROM snapshot WHERE kind = $1 AND row_id = $2";
        let row = query_opt(conn, sql, &[&kind, &id]).await?;
        Ok(row.map(|row| Self { version: row.get(0), state: row.get(1), created_at: row.get(2) }))
    }
}

/// Which rows are read.
#[derive(Clone)]
pub(super) enum Which {
    /// All behind this one.
    Behind(String),
    /// This one.
    Of(String),
}

impl Which {
    fn id(&self) -> &str {
        let (Self::Behind(id) | Self::Of(id)) = self;
        id
    }

    const fn is(&self) -> &'static str {
        match self {
            Self::Behind(_) => ">",
            Self::Of(_) => "=",
        }
    }
}

/// The events of some rows of a kind, by their rows and then by their versions.
struct Events {
    sql: String,
    kind: &'static str,
    which: Which,
    /// The row and the version of the event that was read last.
    last: (String, i64),
    page: VecDeque<Row>,
    is_over: bool,
}

/// Columns of an event.
const VERSION: usize = 0;
const DATA: usize = 1;
const AT: usize = 2;
const TOLD: usize = 3;
const ROW_ID: usize = 4;

impl Events {
    fn of(kind: &RowKind, which: &Which) -> Self {
        let sql = format!(
            "SELECT version, data, recorded_at, is_published, row_id FROM event
             WHERE kind = $1 AND row_id {} $2 AND (row_id, version) > ($3, $4) ORDER BY row_id, version LIMIT $5",
            which.is()
        );
        let last = (String::new(), 0);
        Self { sql, kind: kind.name, which: which.clone(), last, page: VecDeque::new(), is_over: false }
    }

    /// The event that comes next.
    async fn peek(&mut self, conn: &Connection) -> Result<Option<&Row>, StoreFault> {
        if self.page.is_empty() && !self.is_over {
            let (row, version) = &self.last;
            let values: &Values<'_> = &[&self.kind, &self.which.id(), row, version, &PAGE];
            self.page = query(conn, &self.sql, values).await.map_err(oops(READING))?.into();
            self.is_over = i64::try_from(self.page.len()).is_ok_and(|count| count < PAGE);
            if let Some(last) = self.page.back() {
                self.last = (last.get(ROW_ID), last.get(VERSION));
            }
        }
        Ok(self.page.front())
    }
}

/// The rows themselves, in the order of their ids.
struct Rows {
    sql: String,
    which: Which,
    last: String,
    page: VecDeque<Row>,
    is_over: bool,
}

impl Rows {
    fn of(kind: &RowKind, which: &Which) -> Self {
        let fields: String = kind.fields.iter().map(|field| format!(", {}", quoted(field))).collect();
        let sql = format!(
            "SELECT id, version, state, created_at, updated_at, due{fields} FROM row_{}
             WHERE id {} $1 AND id > $2 ORDER BY id LIMIT $3",
            kind.name,
            which.is()
        );
        Self { sql, which: which.clone(), last: String::new(), page: VecDeque::new(), is_over: false }
    }

    async fn peek(&mut self, conn: &Connection) -> Result<Option<&Row>, StoreFault> {
        if self.page.is_empty() && !self.is_over {
            let values: &Values<'_> = &[&self.which.id(), &self.last, &PAGE];
            self.page = query(conn, &self.sql, values).await.map_err(oops(READING))?.into();
            self.is_over = i64::try_from(self.page.len()).is_ok_and(|count| count < PAGE);
            if let Some(last) = self.page.back() {
                self.last = last.get(0);
            }
        }
        Ok(self.page.front())
    }
}

/// The column of the first searchable value of a row.
const FIRST_FIELD: usize = 6;

/// A row that was made of its events, or why they make none.
type Made = serde_json::Result<Box<dyn Folding>>;

/// A row as its history has it.
pub(super) struct Folded {
    pub(super) id: String,
    pub(super) version: i64,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
    /// Events that were folded: those that a snapshot stands for are not.
    count: u64,
    /// Whether it has any event at all.
    pub(super) is_there: bool,
    /// Whether a snapshot stands for some of its events.
    pub(super) has_snapshot: bool,
    /// The version at which the fold began.
    before: i64,
    made: Option<Made>,
}

impl Folded {
    fn begin(kind: &RowKind, id: String, snapshot: Option<&Snapshot>, first_at: Option<i64>) -> Self {
        let made = (kind.begin)(snapshot.map(|snapshot| snapshot.state.as_str()));
        let before = snapshot.map_or(0, |snapshot| snapshot.version);
        let first_at = first_at.unwrap_or(0);
        Self {
            id,
            version: before,
            created_at: snapshot.map_or(first_at, |snapshot| snapshot.created_at),
            updated_at: first_at,
            count: 0,
            is_there: false,
            has_snapshot: snapshot.is_some(),
            before,
            made: Some(made),
        }
    }

    /// Folds an event in, and `keeps` it if that is wanted. What was brought back from an archive is in the snapshot already.
    fn take(&mut self, event: &Row, keeps: bool) {
        self.is_there = true;
        let (version, at): (i64, i64) = (event.get(VERSION), event.get(AT));
        if version <= self.before {
            return;
        }
        let data: &str = event.get(DATA);
        let add = |mut row: Box<dyn Folding>| {
            let added = match keeps {
                true => row.keep(PastEvent { event: data, at: timestamp(at), is_published: event.get(TOLD) }),
                false => row.add(data),
            };
            added.map(|()| row)
        };
        self.made = self.made.take().map(|made| made.and_then(add));
        (self.version, self.updated_at, self.count) = (version, at, self.count + 1);
    }

    fn has_gap(&self) -> bool {
        i64::try_from(self.count) != Ok(self.version - self.before)
    }

    fn made(&mut self) -> Made {
        self.made.take().unwrap_or_else(|| Err(serde::de::Error::custom("it was taken already")))
    }

    /// Whether this row of the table is what was folded.
    fn is(&self, kind: &RowKind, row: &Row, fold: &dyn Folding) -> bool {
        let state: &str = row.get(2);
        let Some(SearchedBy { fields, due }) = fold.kept_as(&self.id, state.as_bytes()) else { return false };
        let is_field = |(at, (field, value)): (usize, (&&str, FieldValue))| {
            field_of(kind, row, at) == kept(kind, field, value)
        };
        (row.get(1), row.get(3), row.get(4)) == (self.version, self.created_at, self.updated_at)
            && row.get::<_, Option<i64>>(5) == due.map(micros)
            && kind.fields.iter().zip(fields).enumerate().all(is_field)
    }
}

/// Goes through rows and their histories side by side, in the order of the ids.
pub(super) struct SideBySide<'c> {
    conn: &'c Connection,
    kind: &'c RowKind,
    events: Events,
    rows: Option<Rows>,
    has_snapshots: bool,
}

impl<'c> SideBySide<'c> {
    /// With the rows of the table, or the events alone.
    pub(super) async fn of(
        conn: &'c Connection,
        kind: &'c RowKind,
        which: Which,
        with_rows: bool,
    ) -> Result<Self, StoreFault> {
        let sql = "SELECT EXISTS (SELECT FROM snapshot WHERE kind = $1)";
        let has_snapshots = query(conn, sql, &[&kind.name])
            .await
            .map_err(oops(READING))?
            .first()
            .is_some_and(|row| row.get(0));
        let rows = with_rows.then(|| Rows::of(kind, &which));
        Ok(Self { conn, kind, events: Events::of(kind, &which), rows, has_snapshots })
    }

    /// The next history, empty where there is none, and the row, if there is one.
    pub(super) async fn next(&mut self, keeps: bool) -> Result<Option<(Folded, Option<Row>)>, StoreFault> {
        let row_id: Option<String> = match &mut self.rows {
            Some(rows) => rows.peek(self.conn).await?.map(|row| row.get(0)),
            None => None,
        };
        let first = self.events.peek(self.conn).await?;
        let (event_id, first_at) =
            first.map(|event| (event.get::<_, String>(ROW_ID), event.get::<_, i64>(AT))).unzip();
        let Some(id) = [&row_id, &event_id].into_iter().flatten().min().cloned() else { return Ok(None) };
        let snapshot = match self.has_snapshots {
            true => Snapshot::of(self.conn, self.kind.name, &id).await.map_err(oops(READING))?,
            false => None,
        };
        let first_at = first_at.filter(|_| event_id.as_ref() == Some(&id));
        // What a snapshot stands for is in no fold.
        let keeps = keeps && snapshot.is_none();
        let mut folded = Folded::begin(self.kind, id, snapshot.as_ref(), first_at);
        while let Some(event) = self.events.peek(self.conn).await?
            && event.get::<_, &str>(ROW_ID) == folded.id
        {
            folded.take(event, keeps);
            self.events.page.pop_front();
        }
        let is_row = row_id.as_ref() == Some(&folded.id);
        let row = self.rows.as_mut().filter(|_| is_row).and_then(|rows| rows.page.pop_front());
        Ok(Some((folded, row)))
    }
}

/// Deletes the rows of a kind and folds them anew. Answers how many there are.
pub(super) async fn rebuild(conn: &Connection, kind: &RowKind) -> Result<u64, StoreFault> {
    // Before the head, as every row is.
    let lock = format!("LOCK TABLE row_{} IN EXCLUSIVE MODE", kind.name);
    conn.client()
        .batch_execute(&lock)
        .await
        .map_err(oops("waiting for whoever writes the rows of a kind"))?;
    super::outbox::take_turn(conn).await.map_err(oops("waiting for whoever writes"))?;
    let delete = format!("DELETE FROM row_{}", kind.name);
    conn.client().batch_execute(&delete).await.map_err(oops("deleting the rows of a kind"))?;
    let mut all = SideBySide::of(conn, kind, Which::Behind(String::new()), false).await?;
    let (mut count, mut waiting) = (0, Vec::new());
    while let Some((mut folded, _)) = all.next(false).await? {
        let projected = folded.made().and_then(|row| row.projected(&folded.id)).map_err(|error| {
            StoreFault::Unusable(format!(
                "the events of {}/{} cannot be folded: {error}",
                kind.name, folded.id
            ))
        })?;
        waiting.push((folded, projected));
        count += 1;
        if waiting.len() == WRITTEN {
            write(conn, kind, std::mem::take(&mut waiting)).await?;
        }
    }
    write(conn, kind, waiting).await?;
    super::left::carry_no_more(conn, kind).await.map_err(oops("counting what was brought back"))?;
    Ok(count)
}

/// Writes rows that were folded, each with the times of its own events.
async fn write(conn: &Connection, kind: &RowKind, rows: Vec<(Folded, Projected)>) -> Result<(), StoreFault> {
    if rows.is_empty() {
        return Ok(());
    }
    let context = "writing folded rows";
    fn column<T>(rows: &[(Folded, Projected)], of: impl Fn(&(Folded, Projected)) -> T) -> Vec<T> {
        rows.iter().map(of).collect()
    }
    let mut values: Owned = vec![
        Box::new(column(&rows, |(folded, _)| folded.id.clone())),
        Box::new(column(&rows, |(folded, _)| folded.version)),
        Box::new(column(&rows, |(_, projected)| projected.state.clone())),
        Box::new(column(&rows, |(folded, _)| folded.created_at)),
        Box::new(column(&rows, |(folded, _)| folded.updated_at)),
        Box::new(column(&rows, |(_, projected)| projected.due.map(micros))),
    ];
    let mut types = vec!["text", "bigint", "text", "bigint", "bigint", "bigint"];
    for (at, field) in kind.fields.iter().enumerate() {
        let value = |(_, projected): &(Folded, Projected)| {
            projected.fields.get(at).cloned().unwrap_or(FieldValue::Null)
        };
        values.push(array_of(kind, field, rows.iter().map(value)));
        types.push(type_of(kind, field));
    }
    let places: Vec<String> = types.iter().zip(1..).map(|(of, place)| format!("${place}::{of}[]")).collect();
    let sql = format!("INSERT INTO row_{} SELECT * FROM unnest({})", kind.name, places.join(", "));
    let insert = Ready::of(conn, &sql, values).await.map_err(oops(context))?;
    let written: Result<Vec<_>, _> = pipelined(conn, &[insert]).await.into_iter().collect();
    written.map(drop).map_err(oops(context))
}

/// What a row turned out to be.
pub(super) enum Judged {
    /// The fold of its events.
    Fold(Box<dyn Folding>),
    /// Something else, or missing.
    Differs,
    /// A row without a history.
    Forged,
}

/// Compares a row with its history.
pub(super) fn check(
    kind: &RowKind,
    folded: &mut Folded,
    row: Option<&Row>,
    report: &mut FoldReport,
) -> Judged {
    if !folded.is_there {
        return Judged::Forged;
    }
    (report.rows, report.events) = (report.rows + 1, report.events + folded.count);
    let fold = folded.made().ok().filter(|_| !folded.has_gap());
    let fold = fold.filter(|fold| row.is_some_and(|row| folded.is(kind, row, fold.as_ref())));
    if let Some(fold) = fold {
        return Judged::Fold(fold);
    }
    report.differs(kind, &folded.id);
    Judged::Differs
}

/// A searchable value of a row of the table, by its place among the fields.
pub(super) fn field_of(kind: &RowKind, row: &Row, at: usize) -> FieldValue {
    match kind.is_number(kind.fields[at]) {
        true => row.get::<_, Option<i64>>(FIRST_FIELD + at).map_or(FieldValue::Null, FieldValue::Integer),
        false => row.get::<_, Option<String>>(FIRST_FIELD + at).map_or(FieldValue::Null, FieldValue::Text),
    }
}
