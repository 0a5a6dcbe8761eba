//! Shell: creates and upgrades the tables: numbered migrations for the engine's own, declarations for those of row kinds.

use jiff::Timestamp;
use saga_core::row::RowKind;

use super::instance_names::{HAS_OTHERS, has_others};
use super::pool::Connection;
use crate::store::StoreFault;
use crate::store::encoding::micros;
use crate::store::fold;
use crate::store::migrations::{Applied, Migration, missing};
use crate::store::sql::{Row, Sql as _, quoted};
use crate::store::sql_error::db_fault;

/// Migrations in order. A migration never changes once released.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_base.sql")];

/// Advisory lock of the process that changes tables; others wait.
const MIGRATING: i64 = 0x73_61_67_61;

/// Creates and upgrades all tables, in the caller's transaction.
pub(super) async fn prepare(conn: &Connection, kinds: &[RowKind]) -> Result<(), StoreFault> {
    conn.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATING])
        .await
        .map_err(db_fault("waiting for another process that changes the tables"))?;
    migrate(conn).await?;
    let mut changed = Vec::new();
    for kind in kinds {
        if let Some(fields) = changed_declaration(conn, kind).await? {
            if table_exists(conn, kind.name).await?
                && has_others(conn.client(), HAS_OTHERS)
                    .await
                    .map_err(db_fault("looking for other processes"))?
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
    // Locks all tables before the head, which the first rebuild locks, and in the order in which batches lock rows.
    changed.sort_by_key(|(kind, _)| kind.name);
    for (kind, _) in &changed {
        if table_exists(conn, kind.name).await? {
            let lock = format!("LOCK TABLE row_{} IN ACCESS EXCLUSIVE MODE", kind.name);
            batch(conn, &lock, "waiting for writers of the rows of a kind").await?;
        }
    }
    for (kind, fields) in changed {
        create(conn, kind, &fields).await?;
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
    let applied = |row: &Row<'_>| Ok(Applied { checksum: row.get(0)?, is_additive: row.get(1)? });
    let applied = conn
        .query("SELECT checksum, additive FROM migration ORDER BY number", &[], applied)
        .await
        .map_err(db_fault("reading the table of migrations"))?;
    for migration in missing(&MIGRATIONS, &applied)? {
        let is_additive = migration.is_additive();
        let Migration { number, sql, checksum } = migration;
        batch(conn, sql, "applying a migration").await?;
        let recorded =
            "INSERT INTO migration (number, checksum, applied_at, additive) VALUES ($1, $2, $3, $4)";
        conn.execute(recorded, &[&number, &checksum, &micros(Timestamp::now()), &is_additive])
            .await
            .map_err(db_fault("recording a migration"))?;
    }
    Ok(())
}

/// Declaration to record of a kind whose table is missing or has other fields; `None` if the table is up to date.
async fn changed_declaration(conn: &Connection, kind: &RowKind) -> Result<Option<String>, StoreFault> {
    let field =
        |name: &&str| if kind.is_number(name) { format!("{name}:number") } else { (*name).to_owned() };
    let fields = kind.fields.iter().map(field).collect::<Vec<_>>().join(",");
    let declared: Option<String> = conn
        .query_opt("SELECT fields FROM row_kind WHERE name = $1", &[&kind.name], |row| row.get(0))
        .await
        .map_err(db_fault("reading the declared kinds"))?;
    let is_current = declared.as_deref() == Some(&fields) && table_exists(conn, kind.name).await?;
    Ok((!is_current).then_some(fields))
}

async fn table_exists(conn: &Connection, kind: &str) -> Result<bool, StoreFault> {
    let sql = "SELECT EXISTS (
             SELECT FROM pg_class WHERE relname = 'row_' || $1 AND relnamespace = current_schema()::regnamespace)";
    let exists = conn.query_one(sql, &[&kind], |row| row.get(0)).await;
    exists.map_err(db_fault("looking for the table of a kind"))
}

/// Creates the table of a kind, and folds its rows from the events.
async fn create(conn: &Connection, kind: &RowKind, fields: &str) -> Result<(), StoreFault> {
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
    conn.execute(
        "INSERT INTO row_kind (name, fields) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET fields = excluded.fields",
        &[&name, &fields],
    )
    .await
    .map_err(db_fault("recording a declared kind"))?;
    fold::rebuild(conn, kind).await.map(drop)
}

async fn batch(conn: &Connection, sql: &str, context: &'static str) -> Result<(), StoreFault> {
    conn.client().batch_execute(sql).await.map_err(db_fault(context))
}
