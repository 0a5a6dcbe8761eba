//! Shell: rows, events, inbox entries and counts of the copied orders, written by a thread for each database.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::order_template::{Change, Instance, Products, Row, SERVICES, Template};
use super::{OrderCopy, open};

const BATCH: u64 = 20_000;
/// Page cache of a connection.
const CACHE_KIB: i64 = 512 * 1024;
/// Age of the products at the first order.
const PRODUCT_AGE_MICROS: i64 = 60_000_000;

const INSERT_EVENT: &str =
    "INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, is_published)
     VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7)";

/// Products by name and number.
type Stock<'t> = BTreeMap<(&'t str, u64), Count>;

#[derive(Default)]
struct Count {
    version: i64,
    reserved: u64,
    sold: u64,
    updated_at: i64,
}

/// Writes the copied orders into every database.
pub fn fill(
    folder: &Path,
    orders: u64,
    templates: &[Template],
    products: &Products,
    copy: impl Fn(u64) -> OrderCopy + Sync,
) -> anyhow::Result<()> {
    let copy = &copy;
    std::thread::scope(|scope| {
        let fill = |service: &'static str| {
            scope.spawn(move || {
                let filling = Filling { conn: open(folder, service)?, service, orders, templates, products };
                filling.all(copy).with_context(|| format!("filling the database of {service}"))
            })
        };
        let threads: Vec<_> = SERVICES.into_iter().map(fill).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}

struct Filling<'t> {
    conn: Connection,
    service: &'static str,
    orders: u64,
    templates: &'t [Template],
    products: &'t Products,
}

impl<'t> Filling<'t> {
    fn all(&self, copy: &(impl Fn(u64) -> OrderCopy + Sync)) -> anyhow::Result<()> {
        // After a power cut the data is created again.
        self.conn.pragma_update(None, "synchronous", "OFF")?;
        self.conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
        self.conn.set_prepared_statement_cache_capacity(64);
        let listed_at = copy(0).at_ms * 1_000 - PRODUCT_AGE_MICROS;
        let mut stock = Stock::new();
        self.conn.execute_batch("BEGIN")?;
        match self.service {
            "inventory" => self.list(listed_at)?,
            "order" => self.copy_catalogue(listed_at)?,
            _ => {}
        }
        for number in 0..self.orders {
            if number % BATCH == BATCH - 1 {
                self.conn.execute_batch("COMMIT; BEGIN")?;
            }
            let template = &self.templates[usize::try_from(number)? % self.templates.len()];
            let instance = template.instance(&copy(number), self.products.each());
            for row in template.rows.get(self.service).into_iter().flatten() {
                self.write(row, &instance, template, &mut stock)?;
            }
        }
        if self.service == "inventory" {
            self.write_products(listed_at, &stock)?;
        }
        self.count()?;
        self.conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(())
    }

    fn write(
        &self,
        row: &Row,
        instance: &Instance<'_>,
        template: &'t Template,
        stock: &mut Stock<'t>,
    ) -> anyhow::Result<()> {
        let mut values: Vec<Value> = row.cells.iter().map(|cell| instance.value(cell)).collect();
        if let Some(change) = &row.change {
            let name = template.sku(change.sku);
            let count = stock
                .entry((name, instance.product))
                .or_insert_with(|| Count { version: 1, ..Count::default() });
            let at = |column: &str| row.columns.iter().position(|known| known == column);
            count.take(change);
            if let Some(version) = at("version") {
                values[version] = count.version.into();
            }
            if let Some(Value::Integer(recorded)) = at("recorded_at").map(|at| &values[at]) {
                count.updated_at = *recorded;
            }
        }
        let places = vec!["?"; values.len()].join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES ({places})", row.table, row.columns.join(", "));
        self.conn.prepare_cached(&sql)?.execute(params_from_iter(values))?;
        Ok(())
    }

    fn list(&self, at: i64) -> anyhow::Result<()> {
        for (sku, _, _, listed) in self.products.all() {
            self.conn.prepare_cached(INSERT_EVENT)?.execute(params![
                "product",
                sku,
                "Listed",
                listed.event,
                listed.causation,
                at,
                true
            ])?;
        }
        Ok(())
    }

    fn write_products(&self, listed_at: i64, stock: &Stock<'_>) -> anyhow::Result<()> {
        let never = Count { version: 1, updated_at: listed_at, ..Count::default() };
        for (sku, name, number, listed) in self.products.all() {
            let Count { version, reserved, sold, updated_at } = stock.get(&(name, number)).unwrap_or(&never);
            let on_hand = listed.supplied - reserved - sold;
            let state = format!(
                "{}\"on_hand\":{on_hand},\"reserved\":{reserved},\"sold\":{sold},\"supplied\":{},\"revision\":1}}",
                listed.listing, listed.supplied
            );
            self.conn
                .prepare_cached(
                    "INSERT INTO row_product (id, version, state, created_at, updated_at, on_hand, replenish)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute(params![
                    sku,
                    version,
                    state,
                    listed_at,
                    updated_at,
                    i64::try_from(on_hand)?,
                    listed.replenish
                ])?;
        }
        Ok(())
    }

    fn copy_catalogue(&self, at: i64) -> anyhow::Result<()> {
        for (sku, _, _, listed) in self.products.all() {
            let (event, state) = &listed.copy;
            self.conn.prepare_cached(INSERT_EVENT)?.execute(params![
                "catalogue_item",
                sku,
                "PriceHeard",
                event,
                listed.causation,
                at,
                false
            ])?;
            self.conn
                .prepare_cached(
                    "INSERT INTO row_catalogue_item (id, version, state, created_at, updated_at)
                     VALUES (?1, 1, ?2, ?3, ?3)",
                )?
                .execute(params![sku, state, at])?;
        }
        Ok(())
    }

    /// Adds to the counts of published and processed messages.
    fn count(&self) -> anyhow::Result<()> {
        let mut counts: BTreeMap<(&str, String), u64> = BTreeMap::new();
        let each = self.orders / self.templates.len() as u64;
        let more = self.orders % self.templates.len() as u64;
        for (index, template) in self.templates.iter().enumerate() {
            let times = each + u64::from((index as u64) < more);
            for step in template.steps(self.service) {
                *counts.entry(("handled", step)).or_default() += times;
            }
            let own = template.facts.iter().filter(|(subject, _)| subject.starts_with(self.service));
            for (subject, _) in own {
                *counts.entry(("published", subject.clone())).or_default() += times;
            }
        }
        let products = self.products.count();
        match (self.service, &self.products.consumer) {
            ("inventory", _) => {
                counts.insert(("published", "inventory.product_listed".to_owned()), products);
            }
            ("order", Some(step)) => {
                counts.insert(("handled", step.clone()), products);
            }
            _ => {}
        }
        for ((outcome, name), count) in counts {
            self.conn.execute(
                "INSERT INTO message_count (outcome, name, count) VALUES (?1, ?2, ?3)
                 ON CONFLICT (outcome, name) DO UPDATE SET count = count + excluded.count",
                params![outcome, name, i64::try_from(count)?],
            )?;
        }
        Ok(())
    }
}

impl Count {
    fn take(&mut self, change: &Change) {
        self.version += 1;
        if change.is_sale {
            self.reserved -= change.pieces;
            self.sold += change.pieces;
        } else {
            self.reserved += change.pieces;
        }
    }
}
