//! Shell: what there is of one order in every database, with the places of its ids, times and names.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use contract::payment_id;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::Value as Json;
use uuid::Uuid;

use super::{Made, open};

/// The services that know of orders.
pub const SERVICES: [&str; 5] = ["order", "inventory", "payment", "bank", "admin"];

/// Whole numbers from here on are times in microseconds: it is the year 2001.
const FIRST_MICROS: i64 = 1_000_000_000_000_000;

/// All that there is of one order.
pub struct Template {
    order: Uuid,
    payment: Uuid,
    customer: String,
    /// What it ordered, in the order of names.
    skus: Vec<String>,
    /// Its rows, by service.
    pub rows: BTreeMap<&'static str, Vec<Row>>,
    /// What was told of it, in the order of the streams: subject and payload.
    pub facts: Vec<(String, Vec<Part>)>,
}

/// A row of some table.
pub struct Row {
    /// `event`, `inbox` or that of a kind of rows.
    pub table: String,
    pub columns: Vec<String>,
    pub cells: Vec<Cell>,
    /// What it changes of a product, when it is an event of one.
    pub change: Option<Change>,
}

/// An event of a product: which of the order's, and how many pieces of it.
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

/// A part of a text.
pub enum Part {
    Same(String),
    /// An id that begins with the time of its saga; this is the rest.
    Id([u8; 10]),
    Payment,
    /// The bank's word for the payment.
    Reference,
    At(Timestamp),
    Customer,
    Sku(usize),
}

/// What a repetition is made with.
pub struct Repeated<'t> {
    template: &'t Template,
    at_ms: i64,
    by: SignedDuration,
    payment: Uuid,
    customer: u64,
    /// Which of the products of each of its names it ordered.
    pub product: u64,
}

/// Reads at most so many confirmed orders; those whose ids share a millisecond are left out.
pub fn read(folder: &Path, most: usize) -> anyhow::Result<Vec<Template>> {
    let orders = open(folder, "order")?;
    let sql = "SELECT min(id), min(customer) FROM row_order GROUP BY substr(id, 1, 13)
               HAVING count(*) = 1 AND min(status) = 'CONFIRMED' ORDER BY 1 LIMIT ?1";
    let found: Vec<(String, String)> = orders
        .prepare(sql)?
        .query_map([i64::try_from(most)?], |row| Ok((row.get(0)?, row.get(1)?)))?
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
            let mut told = conn.prepare("SELECT created_at, subject, payload FROM outbox WHERE saga = ?1")?;
            let told = told.query_map([order], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            for fact in told {
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
            sku: sku.context("a product that nobody ordered")?,
            is_sale: name == "Sold",
            pieces,
        }))
    }

    fn cell(&self, value: Value) -> Cell {
        match value {
            Value::Integer(micros) if micros > FIRST_MICROS => Cell::Micros(micros),
            Value::Blob(id) if id.len() == 16 && id[..6] == self.order.as_bytes()[..6] => Cell::Id(rest(&id)),
            Value::Text(text) => Cell::Text(self.parts(&text)),
            other @ (Value::Null | Value::Integer(_) | Value::Real(_) | Value::Blob(_)) => Cell::Same(other),
        }
    }

    /// The parts of a text: of JSON, or of one value alone.
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

    /// The name of a product that it ordered.
    pub fn sku(&self, index: usize) -> &str {
        self.skus.get(index).map_or("", String::as_str)
    }

    /// The steps of a service that handled something of it, once for each time.
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

    /// This order once more.
    pub fn repeated(&self, made: &Made, products: u64) -> Repeated<'_> {
        let placed = self.order.get_timestamp().map_or(0, |at| {
            let (seconds, nanos) = at.to_unix();
            i64::try_from(seconds).unwrap_or(0) * 1_000 + i64::from(nanos / 1_000_000)
        });
        Repeated {
            template: self,
            at_ms: made.at_ms,
            by: SignedDuration::from_millis(made.at_ms - placed),
            payment: payment_id(with_time(made.at_ms, &rest(self.order.as_bytes()))),
            customer: made.number / 4,
            product: made.number % products,
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

impl Repeated<'_> {
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
            // Writing to memory cannot fail.
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

/// A large shop has many products: each that was ordered becomes so many.
pub struct Products {
    /// What was listed, by name.
    listed: BTreeMap<String, Listed>,
    /// How many each becomes.
    each: u64,
    /// The step by which the order service hears of them.
    pub heard_by: Option<String>,
}

/// A product as it was listed.
pub struct Listed {
    /// Its first event.
    pub event: String,
    /// Its state up to the number of pieces.
    pub listing: String,
    pub replenish: Value,
    pub supplied: u64,
    /// The order service's copy: event and state.
    pub heard: (String, String),
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
        let (mut listed, mut heard_by) = (BTreeMap::new(), None);
        while let Some(row) = rows.next()? {
            let (name, event, state): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let data: Json = serde_json::from_str(&event)?;
            let supplied = data["Listed"][1].as_u64().context("a product that begins otherwise")?;
            let listing = state.split("\"on_hand\"").next().unwrap_or_default().to_owned();
            let heard = "SELECT data, (SELECT state FROM row_catalogue_item WHERE id = ?1),
                         (SELECT step FROM inbox WHERE message_id = causation_id)
                         FROM event WHERE kind = 'catalogue_item' AND row_id = ?1 AND version = 1";
            let heard = order.query_row(heard, [&name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
            let (heard, copy, step): (String, String, Option<String>) = heard?;
            heard_by = heard_by.or(step);
            let (replenish, causation) = (row.get(3)?, row.get(4)?);
            let heard = (heard, copy);
            listed.insert(name, Listed { event, listing, replenish, supplied, heard, causation });
        }
        let each = count.div_ceil(u64::try_from(listed.len().max(1))?).max(1);
        Ok(Self { listed, each, heard_by })
    }

    /// How many of each name there are.
    pub const fn each(&self) -> u64 {
        self.each
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.each * self.listed.len() as u64
    }

    /// All of them, by name.
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
    fn an_order_that_is_repeated_has_ids_times_and_names_of_its_own_and_nothing_else_changes() {
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
        // A second later, to the millisecond of its id.
        let made = Made { number: 9, at_ms: 0x01a2_0a13_da51 + 1_000 };
        let repeated = template.repeated(&made, 4);
        let wanted = text(payment_id(repeated.order()))
            .replace("01a20a13-da51", "01a20a13-de39")
            .replace("22.961280202", "23.961280202")
            .replace(r#""ada""#, r#""shopper-2""#)
            .replace(r#""mug""#, r#""mug-00001""#);
        assert_eq!(repeated.text(&template.parts(&text(payment))), wanted);
        assert_eq!(repeated.order().to_string(), "01a20a13-de39-742b-8dc3-4c3ed5b8991e");
    }
}
