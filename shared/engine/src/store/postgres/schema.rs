//! Shell: the tables: numbered migrations for the machinery, declarations for the kinds of rows.

use jiff::Timestamp;
use saga_core::row::RowKind;

use super::names::{IS_ANYBODY_THERE, is_anybody_there};
use super::pool::Connection;
use super::values::{execute, micros, oops, query, query_opt, quoted};
use crate::store::StoreFault;
use crate::store::migrating::{Applied, Migration, missing};

/// Migrations in order. A migration never changes once released.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_base.sql")];

/// Only one process at a time changes tables; the others wait.
const MIGRATING: i64 = 0x73_61_67_61;

/// Brings all tables up to this build, in the transaction that the caller has begun.
pub(super) async fn prepare(conn: &Connection, kinds: &[RowKind]) -> Result<(), StoreFault> {
    query(conn, "SELECT pg_advisory_xact_lock($1)", &[&MIGRATING])
        .await
        .map_err(oops("waiting for whoever changes the tables"))?;
    migrate(conn).await?;
    let mut changed = Vec::new();
    for kind in kinds {
        if let Some(fields) = is_to_be_made(conn, kind).await? {
            if is_there(conn, kind.name).await?
                && is_anybody_there(conn.client(), IS_ANYBODY_THERE)
                    .await
                    .map_err(oops("looking for other processes"))?
            {
                return Err(StoreFault::Unusable(format!(
                    "this build has other fields of {} than the processes that use it: stop all replicas of the other build \
                     first",
                    kind.name
                )));
            }
            changed.push((kind, fields));
        }
    }
    // All of them before the head, which the first that is folded takes, and in the order in which batches lock rows.
    changed.sort_by_key(|(kind, _)| kind.name);
    for (kind, _) in &changed {
        if is_there(conn, kind.name).await? {
            let lock = format!("LOCK TABLE row_{} IN ACCESS EXCLUSIVE MODE", kind.name);
            batch(conn, &lock, "waiting for whoever writes the rows of a kind").await?;
        }
    }
    for (kind, fields) in changed {
        make(conn, kind, &fields).await?;
    }
    Ok(())
}

async fn migrate(conn: &Connection) -> Result<(), StoreFault> {
    batch(
        conn,
        "CREATE TABLE IF NOT EXISTS migration (
             number bigint PRIMARY KEY, checksum text NOT NULL, applied_at bigint NOT NULL,
             additive boolean NOT NULL DEFAULT false)",
        "creating the table of migrations",
    )
    .await?;
    let applied: Vec<Applied> = query(conn, "SELECT checksum, additive FROM migration ORDER BY number", &[])
        .await
        .map_err(oops("reading the table of migrations"))?
        .iter()
        .map(|row| Applied { checksum: row.get(0), is_additive: row.get(1) })
        .collect();
    for migration in missing(&MIGRATIONS, &applied)? {
        let is_additive = migration.is_additive();
        let Migration { number, sql, checksum } = migration;
        batch(conn, sql, "applying a migration").await?;
        let recorded =
            "INSERT INTO migration (number, checksum, applied_at, additive) VALUES ($1, $2, $3, $4)";
        execute(conn, recorded, &[&number, &checksum, &micros(Timestamp::now()), &is_additive])
            .await
            .map_err(oops("recording a migration"))?;
    }
    Ok(())
}

/// Declaration to record of a kind whose table is missing or has other fields; `None` if the table is up to date.
async fn is_to_be_made(conn: &Connection, kind: &RowKind) -> Result<Option<String>, StoreFault> {
    let field =
        |name: &&str| if kind.is_number(name) { format!("{name}:number") } else { (*name).to_owned() };
    let fields = kind.fields.iter().map(field).collect::<Vec<_>>().join(",");
    let known: Option<String> = query_opt(conn, "SELECT fields FROM row_kind WHERE name = $1", &[&kind.name])
        .await
        .map_err(oops("reading the declared kinds"))?
        .map(|row| row.get(0));
    let is_right = known.as_deref() == Some(&fields) && is_there(conn, kind.name).await?;
    Ok((!is_right).then_some(fields))
}

async fn is_there(conn: &Connection, kind: &str) -> Result<bool, StoreFault> {
    let sql =
        "SELECT FROM pg_class WHERE relname = 'row_' || $1 AND relnamespace = current_schema()::regnamespace";
    let found = query(conn, sql, &[&kind]).await.map_err(oops("looking for the table of a kind"))?;
    Ok(!found.is_empty())
}

/// Makes the table of a kind, and folds its rows from the events.
async fn make(conn: &Connection, kind: &RowKind, fields: &str) -> Result<(), StoreFault> {
    let name = kind.name;
    let column = |field: &&str| match kind.is_number(field) {
        true => format!(", {} bigint", quoted(field)),
        false => format!(", {} text COLLATE \"C\"", quoted(field)),
    };
    let columns: String = kind.fields.iter().map(column).collect();
    let mut sql = format!(
        "DROP TABLE IF EXISTS row_{name};
         CREATE TABLE row_{name} (
             id text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL, state text NOT NULL,
             created_at bigint NOT NULL, updated_at bigint NOT NULL, due bigint{columns}
         ) WITH (fillfactor = 85);
         CREATE INDEX row_{name}_due ON row_{name} (due) WHERE due IS NOT NULL;"
    );
    for field in kind.fields {
        sql.push_str(&format!("CREATE INDEX \"row_{name}_{field}\" ON row_{name} ({}, id);", quoted(field)));
    }
    batch(conn, &sql, "creating the table of a kind").await?;
    execute(
        conn,
        "INSERT INTO row_kind (name, fields) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET fields = excluded.fields",
        &[&name, &fields],
    )
    .await
    .map_err(oops("recording a declared kind"))?;
    super::fold::rebuild(conn, kind).await?;
    Ok(())
}

async fn batch(conn: &Connection, sql: &str, context: &'static str) -> Result<(), StoreFault> {
    conn.client().batch_execute(sql).await.map_err(oops(context))
}
