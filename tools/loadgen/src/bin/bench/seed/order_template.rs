//! Shell: an order as a template: its rows and facts in all services, with placeholders for ids, times and names.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use contract::payment_id;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::Value as Json;
use uuid::Uuid;

use super::{OrderCopy, open};

pub const SERVICES: [&str; 5] = ["order", "inventory", "payment", "bank", "admin"];

/// Integers above this (the year 2001) are times in microseconds.
const MIN_MICROS: i64 = 1_000_000_000_000_000;

/// Rows and facts of an order.
pub struct Template {
    order: Uuid,
    payment: Uuid,
    customer: String,
    skus: Vec<String>,
    pub rows: BTreeMap<&'static str, Vec<Row>>,
    /// Subject and payload of its facts, in the order of publication.
    pub facts: Vec<(String, Vec<Part>)>,
}

pub struct Row {
    /// `event`, `inbox` or the table of a row kind.
    pub table: String,
    pub columns: Vec<String>,
    pub cells: Vec<Cell>,
    /// Change of a product, if it is an event of one.
    pub change: Option<Change>,
}

/// Event of a product: index of its sku in the order, and number of pieces.
pub struct Change {
    pub sku: usize,
    pub is_sale: bool,
    pub pieces: u64,
}

pub enum Cell {
    Same(Value),
    Text(Vec<Part>),
    Id([u8; 10]),
    Micros(i64),
}

pub enum Part {
    Same(String),
    /// Id without its first six bytes, the time of the saga.
    Id([u8; 10]),
    Payment,
    /// Reference of the payment at the bank.
    Reference,
    At(Timestamp),
    Customer,
    Sku(usize),
}

/// Template with the values of a copy.
pub struct Instance<'t> {
    template: &'t Template,
    at_ms: i64,
    by: SignedDuration,
    payment: Uuid,
    customer: u64,
    /// Number of the product among those of each name.
    pub product: u64,
}

/// Reads confirmed orders, except those that share the millisecond of their ids.
pub fn read(folder: &Path, max: usize) -> anyhow::Result<Vec<Template>> {
    let orders = open(folder, "order")?;
    let sql = "SELECT min(id), min(customer) FROM row_order GROUP BY substr(id, 1, 13)
               HAVING count(*) = 1 AND min(status) = 'CONFIRMED' ORDER BY 1 LIMIT ?1";
    let found: Vec<(String, String)> = orders
        .prepare(sql)?
        .query_map([i64::try_from(max)?], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let connections: Vec<_> = SERVICES
        .iter()
        .map(|service| Ok((*service, open(folder, service)?)))
        .collect::<anyhow::Result<_>>()?;
    let of = |(id, customer): (String, String)| Template::of(&connections, id.parse()?, customer);
    found.into_iter().map(of).collect()
}

impl Template {
    fn of(connections: &[(&'static str, Connection)], order: Uuid, customer: String) -> anyhow::Result<Self> {
        let payment = payment_id(order);
        let (mut rows, mut facts) = (BTreeMap::new(), Vec::new());
        let mut template =
            Self { order, payment, customer, skus: vec![], rows: BTreeMap::new(), facts: vec![] };
        template.skus = template.ordered(connections)?;
        for (service, conn) in connections {
            rows.insert(*service, template.rows_of(conn)?);
            let mut published =
                conn.prepare("SELECT created_at, subject, payload FROM outbox WHERE saga = ?1")?;
            let published =
                published.query_map([order], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            for fact in published {
                let (at, subject, payload): (i64, String, Vec<u8>) = fact?;
                facts.push((at, subject, template.parts(&String::from_utf8(payload)?)));
            }
        }
        facts.sort_by_key(|(at, ..)| *at);
        let facts = facts.into_iter().map(|(_, subject, parts)| (subject, parts)).collect();
        Ok(Self { rows, facts, ..template })
    }

    fn ordered(&self, connections: &[(&'static str, Connection)]) -> anyhow::Result<Vec<String>> {
        let inventory = connections.iter().find(|(service, _)| *service == "inventory");
        let (_, inventory) = inventory.context("no inventory")?;
        let sql =
            "SELECT DISTINCT row_id FROM event WHERE kind = 'product' AND substr(causation_id, 1, 6) = ?1
                   ORDER BY 1";
        let begins = &self.order.as_bytes()[..6];
        Ok(inventory.prepare(sql)?.query_map([begins], |row| row.get(0))?.collect::<Result<_, _>>()?)
    }

    fn rows_of(&self, conn: &Connection) -> anyhow::Result<Vec<Row>> {
        let (order, payment) = (self.order.to_string(), self.payment.to_string());
        let begins = self.order.as_bytes()[..6].to_vec();
        let mut tables = vec![
            (
                "event".to_owned(),
                "row_id IN (?1, ?2) OR kind = 'product' AND substr(causation_id, 1, 6) = ?3 ORDER BY seq",
            ),
            ("inbox".to_owned(), "?1 <> ?2 AND substr(message_id, 1, 6) = ?3"),
        ];
        let kinds: Vec<String> = conn
            .prepare("SELECT name FROM row_kind WHERE name NOT IN ('product', 'catalogue_item')")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        tables.extend(kinds.iter().map(|kind| (format!("row_{kind}"), "id IN (?1, ?2) AND ?3 IS NOT NULL")));
        let mut found = Vec::new();
        for (table, condition) in tables {
            let mut select = conn.prepare(&format!("SELECT * FROM {table} WHERE {condition}"))?;
            let columns: Vec<String> = select.column_names().map(str::to_owned).collect();
            let mut rows = select.query(rusqlite::params![order, payment, begins])?;
            while let Some(row) = rows.next()? {
                let mut cells: BTreeMap<String, Value> = BTreeMap::new();
                for (index, column) in columns.iter().enumerate().filter(|(_, column)| *column != "seq") {
                    cells.insert(column.clone(), row.get(index)?);
                }
                let change = self.change(&cells)?;
                let (columns, cells) =
                    cells.into_iter().map(|(name, value)| (name, self.cell(value))).unzip();
                found.push(Row { table: table.clone(), columns, cells, change });
            }
        }
        Ok(found)
    }

    fn change(&self, cells: &BTreeMap<String, Value>) -> anyhow::Result<Option<Change>> {
        let text = |column: &str| match cells.get(column) {
            Some(Value::Text(text)) => text.as_str(),
            _ => "",
        };
        if text("kind") != "product" {
            return Ok(None);
        }
        let data: BTreeMap<String, u64> = serde_json::from_str(text("data"))?;
        let (name, pieces) = data.into_iter().next().context("an event of a product without pieces")?;
        let sku = self.skus.iter().position(|sku| sku == text("row_id"));
        Ok(Some(Change {
            sku: sku.context("a product that was not ordered")?,
            is_sale: name == "Sold",
            pieces,
        }))
    }

    fn cell(&self, value: Value) -> Cell {
        match value {
            Value::Integer(micros) if micros > MIN_MICROS => Cell::Micros(micros),
            Value::Blob(id) if id.len() == 16 && id[..6] == self.order.as_bytes()[..6] => Cell::Id(rest(&id)),
            Value::Text(text) => Cell::Text(self.parts(&text)),
            other @ (Value::Null | Value::Integer(_) | Value::Real(_) | Value::Blob(_)) => Cell::Same(other),
        }
    }

    /// Parts of a text, which is JSON or a single value.
    fn parts(&self, text: &str) -> Vec<Part> {
        if !text.starts_with(['{', '[', '"']) {
            return vec![self.token(text).unwrap_or_else(|| Part::Same(text.to_owned()))];
        }
        let (mut parts, mut same) = (Vec::new(), String::new());
        for (index, token) in text.split('"').enumerate() {
            if index > 0 {
                same.push('"');
            }
            match self.token(token) {
                Some(part) => parts.extend([Part::Same(std::mem::take(&mut same)), part]),
                None => same.push_str(token),
            }
        }
        parts.push(Part::Same(same));
        parts
    }

    fn token(&self, token: &str) -> Option<Part> {
        if token == self.customer {
            return Some(Part::Customer);
        }
        if let Some(sku) = self.skus.iter().position(|sku| sku == token) {
            return Some(Part::Sku(sku));
        }
        if let Some(reference) = token.strip_prefix("ch_") {
            return (reference == self.payment.as_simple().to_string()).then_some(Part::Reference);
        }
        if token.len() == 36
            && let Ok(id) = token.parse::<Uuid>()
        {
            let is_its_own = id.as_bytes()[..6] == self.order.as_bytes()[..6];
            return if id == self.payment {
                Some(Part::Payment)
            } else {
                is_its_own.then(|| Part::Id(rest(id.as_bytes())))
            };
        }
        token.ends_with('Z').then(|| token.parse().ok().map(Part::At)).flatten()
    }

    pub fn sku(&self, index: usize) -> &str {
        self.skus.get(index).map_or("", String::as_str)
    }

    /// Steps of a service that have processed its messages, once for each message.
    pub fn steps(&self, service: &str) -> impl Iterator<Item = String> {
        let marks = self.rows.get(service).into_iter().flatten().filter(|row| row.table == "inbox");
        marks.filter_map(|row| {
            let at = row.columns.iter().position(|column| column == "step")?;
            match row.cells.get(at)? {
                Cell::Text(parts) => parts.iter().find_map(|part| match part {
                    Part::Same(step) => Some(step.clone()),
                    Part::Id(_)
                    | Part::Payment
                    | Part::Reference
                    | Part::At(_)
                    | Part::Customer
                    | Part::Sku(_) => None,
                }),
                Cell::Same(_) | Cell::Id(_) | Cell::Micros(_) => None,
            }
        })
    }

    pub fn instance(&self, copy: &OrderCopy, products: u64) -> Instance<'_> {
        let placed = self.order.get_timestamp().map_or(0, |at| {
            let (seconds, nanos) = at.to_unix();
            i64::try_from(seconds).unwrap_or(0) * 1_000 + i64::from(nanos / 1_000_000)
        });
        Instance {
            template: self,
            at_ms: copy.at_ms,
            by: SignedDuration::from_millis(copy.at_ms - placed),
            payment: payment_id(with_time(copy.at_ms, &rest(self.order.as_bytes()))),
            customer: copy.number / 4,
            product: copy.number % products,
        }
    }
}

fn rest(id: &[u8]) -> [u8; 10] {
    let mut rest = [0; 10];
    rest.copy_from_slice(&id[6..16]);
    rest
}

fn with_time(at_ms: i64, rest: &[u8; 10]) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&at_ms.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(rest);
    Uuid::from_bytes(bytes)
}

impl Instance<'_> {
    pub fn id(&self, rest: &[u8; 10]) -> Uuid {
        with_time(self.at_ms, rest)
    }

    pub fn order(&self) -> Uuid {
        self.id(&rest(self.template.order.as_bytes()))
    }

    pub fn micros(&self, at: i64) -> i64 {
        at.saturating_add(i64::try_from(self.by.as_micros()).unwrap_or(0))
    }

    fn sku(&self, index: usize) -> String {
        sku(self.template.sku(index), self.product)
    }

    pub fn text(&self, parts: &[Part]) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for part in parts {
            // Writing to a string cannot fail.
            let _ = match part {
                Part::Same(same) => text.write_str(same),
                Part::Id(rest) => write!(text, "{}", self.id(rest)),
                Part::Payment => write!(text, "{}", self.payment),
                Part::Reference => write!(text, "ch_{}", self.payment.as_simple()),
                Part::At(at) => write!(text, "{}", at.saturating_add(self.by).unwrap_or(*at)),
                Part::Customer => write!(text, "shopper-{}", self.customer),
                Part::Sku(index) => text.write_str(&self.sku(*index)),
            };
        }
        text
    }

    pub fn value(&self, cell: &Cell) -> Value {
        match cell {
            Cell::Same(value) => value.clone(),
            Cell::Text(parts) => self.text(parts).into(),
            Cell::Id(rest) => Value::Blob(self.id(rest).as_bytes().to_vec()),
            Cell::Micros(at) => self.micros(*at).into(),
        }
    }
}

fn sku(name: &str, number: u64) -> String {
    format!("{name}-{number:05}")
}

/// Products of the copied orders: each product that was ordered is multiplied.
pub struct Products {
    listed: BTreeMap<String, Listed>,
    each: u64,
    /// Step of the order service that consumes their facts.
    pub consumer: Option<String>,
}

pub struct Listed {
    pub event: String,
    /// State up to the number of pieces.
    pub listing: String,
    pub replenish: Value,
    pub supplied: u64,
    /// Event and state of the copy in the order service.
    pub copy: (String, String),
    pub causation: Value,
}

impl Products {
    pub fn read(folder: &Path, count: u64) -> anyhow::Result<Self> {
        let (inventory, order) = (open(folder, "inventory")?, open(folder, "order")?);
        let sql = "SELECT event.row_id, data, state, replenish, causation_id FROM event
                   JOIN row_product ON row_product.id = event.row_id
                   WHERE kind = 'product' AND event.version = 1 AND row_product.version > 1";
        let mut select = inventory.prepare(sql)?;
        let mut rows = select.query([])?;
        let (mut listed, mut consumer) = (BTreeMap::new(), None);
        while let Some(row) = rows.next()? {
            let (name, event, state): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let data: Json = serde_json::from_str(&event)?;
            let supplied = data["Listed"][1].as_u64().context("a product without a listing")?;
            let listing = state.split("\"on_hand\"").next().unwrap_or_default().to_owned();
            let sql = "SELECT data, (SELECT state FROM row_catalogue_item WHERE id = ?1),
                         (SELECT step FROM inbox WHERE message_id = causation_id)
                         FROM event WHERE kind = 'catalogue_item' AND row_id = ?1 AND version = 1";
            let copied = order.query_row(sql, [&name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
            let (event_copy, state_copy, step): (String, String, Option<String>) = copied?;
            consumer = consumer.or(step);
            let (replenish, causation) = (row.get(3)?, row.get(4)?);
            let copy = (event_copy, state_copy);
            listed.insert(name, Listed { event, listing, replenish, supplied, copy, causation });
        }
        let each = count.div_ceil(u64::try_from(listed.len().max(1))?).max(1);
        Ok(Self { listed, each, consumer })
    }

    /// Number of copies of each product.
    pub const fn each(&self) -> u64 {
        self.each
    }

    pub fn count(&self) -> u64 {
        self.each * self.listed.len() as u64
    }

    /// All products: sku, name, number, listing.
    pub fn all(&self) -> impl Iterator<Item = (String, &str, u64, &Listed)> {
        self.listed.iter().flat_map(|(name, listed)| {
            (0..self.each).map(move |number| (sku(name, number), name.as_str(), number, listed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACT: &str = r#"{"id":"01a20a13-da51-8409-b571-0bde06ee16f2","at":"2026-11-23T20:23:22.961280202Z","data":{"payment":"PAYMENT","reference":"ch_REFERENCE","customer":"ada","lines":[{"sku":"mug","quantity":1}],"note":"ada's mug"}}"#;

    #[test]
    fn copy_has_its_own_ids_times_and_names_and_is_otherwise_equal() {
        let order: Uuid = "01a20a13-da51-742b-8dc3-4c3ed5b8991e".parse().expect("an id");
        let payment = payment_id(order);
        let template = Template {
            order,
            payment,
            customer: "ada".to_owned(),
            skus: vec!["mug".to_owned()],
            rows: BTreeMap::new(),
            facts: vec![],
        };
        let text = |payment: Uuid| {
            FACT.replace("PAYMENT", &payment.to_string())
                .replace("REFERENCE", &payment.as_simple().to_string())
        };
        // A second later, by the millisecond of its id.
        let copy = OrderCopy { number: 9, at_ms: 0x01a2_0a13_da51 + 1_000 };
        let instance = template.instance(&copy, 4);
        let expected = text(payment_id(instance.order()))
            .replace("01a20a13-da51", "01a20a13-de39")
            .replace("22.961280202", "23.961280202")
            .replace(r#""ada""#, r#""shopper-2""#)
            .replace(r#""mug""#, r#""mug-00001""#);
        assert_eq!(instance.text(&template.parts(&text(payment))), expected);
        assert_eq!(instance.order().to_string(), "01a20a13-de39-742b-8dc3-4c3ed5b8991e");
    }
}
