//! Pure: which dead letters a request is about.

use admin_api::dead_letters::Filter;
use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::FieldValue;
use saga_core::ids;
use saga_core::query::{FoundRow, Order, Query, text_in_json};
use uuid::Uuid;

use super::events::MAX_REPLAYS;
use super::view::DeadLetterView;

/// Maximum length of text in a filter, in characters.
const MAX_TEXT: usize = 200;

/// A member of a request with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidField {
    /// Path, such as `payload.data.lines[0].quantity`.
    pub field: String,
    /// Problem, or the values that are allowed.
    pub detail: String,
}

/// Returns the members of a filter with invalid values; `prefix` goes before their names.
pub fn invalid_fields(filter: &Filter, prefix: &str) -> Vec<InvalidField> {
    let texts = [
        ("fingerprint", &filter.fingerprint),
        ("service", &filter.service),
        ("step", &filter.step),
        ("type", &filter.message_type),
        ("text", &filter.text),
    ];
    let is_wrong = |text: &String| text.is_empty() || text.chars().count() > MAX_TEXT;
    texts
        .into_iter()
        .filter(|(_, text)| text.as_ref().is_some_and(is_wrong))
        .map(|(field, _)| InvalidField {
            field: format!("{prefix}{field}"),
            detail: format!("must be 1 to {MAX_TEXT} characters"),
        })
        .collect()
}

/// Derives an id that is the same for equal filters.
pub fn key_of(filter: &Filter) -> Uuid {
    ids::derived(&["redrive-filter", &serde_json::to_string(filter).unwrap_or_default()])
}

/// True if a dead letter has the filter's text. The store evaluates the other members.
pub fn has_text(filter: &Filter, dead_letter: &DeadLetterView) -> bool {
    let (Some(text), Some(report)) = (&filter.text, dead_letter.report()) else {
        return filter.text.is_none();
    };
    let wanted = text.to_ascii_lowercase();
    let has = |text: &str| text.to_ascii_lowercase().contains(&wanted);
    has(&report.reason) || report.message_type.as_deref().is_some_and(has)
}

/// A query of dead letters: filter and statuses.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub filter: Filter,
    /// Statuses; any when empty.
    pub statuses: Vec<DeadLetterStatus>,
    /// End of the period of the last failure, beside that of the filter.
    pub before: Option<Timestamp>,
    /// Only dead letters that may be replayed without force.
    pub replayable: bool,
}

impl Selection {
    pub fn pending(filter: Filter) -> Self {
        Self { filter, statuses: vec![DeadLetterStatus::Pending], ..Self::default() }
    }

    /// Builds the query of the store. It may find dead letters without the filter's text: see [`has_text`].
    pub fn query(&self) -> Query {
        let filter = &self.filter;
        let texts = [
            ("fingerprint", filter.fingerprint.clone()),
            ("service", filter.service.clone()),
            ("step", filter.step.clone()),
            ("type", filter.message_type.clone()),
            ("saga", filter.saga.map(|saga| saga.to_string())),
        ];
        let status = |status: &DeadLetterStatus| FieldValue::from(status.as_str());
        let mut query = Query {
            equals: texts
                .into_iter()
                .filter_map(|(field, text)| Some((field, FieldValue::Text(text?))))
                .collect(),
            texts: filter.text.as_deref().map(text_in_json).into_iter().collect(),
            order: Some(Order { field: "failed_at", after: None }),
            ..Query::default()
        };
        match self.statuses.as_slice() {
            // Dead letters that were not reported yet have no time.
            [] => query.from.push(("failed_at", 1.into())),
            [only] => query.equals.push(("status", status(only))),
            several => query.one_of.push(("status", several.iter().map(status).collect())),
        }
        let time = |at: Timestamp| ("failed_at", FieldValue::from(at.as_microsecond()));
        query.from.extend(filter.failed_after.map(time));
        query.below.extend(filter.failed_before.map(time));
        query.below.extend(self.before.map(time));
        if self.replayable {
            query.below.push(("replays", i64::from(MAX_REPLAYS).into()));
        }
        query
    }
}

/// Position in a list by the time of the last failure. A page starts after one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Time of the last failure, in microseconds UTC.
    pub micros: i64,
    /// Distinguishes dead letters that failed at the same time.
    pub id: String,
}

impl Position {
    /// Returns the position of a row that a [`Selection::query`] found, damaged rows included.
    pub fn of(row: &FoundRow) -> Self {
        let micros = if let FieldValue::Integer(micros) = row.ordered_by { micros } else { 0 };
        Self { micros, id: row.id.clone() }
    }

    /// Formats the position for a cursor.
    pub fn written(&self) -> String {
        format!("{}/{}", self.micros, self.id)
    }

    /// Parses what [`Position::written`] wrote.
    pub fn read(written: &str) -> Option<Self> {
        let (micros, id) = written.split_once('/')?;
        Some(Self { micros: micros.parse().ok()?, id: id.parse::<Uuid>().ok()?.to_string() })
    }

    /// Continues a query after this position.
    pub fn resume(&self, query: &mut Query) {
        query.after = Some(self.id.clone());
        query.order = query.order.map(|order| Order { after: Some(self.micros), ..order });
    }
}
