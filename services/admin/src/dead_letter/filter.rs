//! Pure: which dead letters somebody means.

use jiff::Timestamp;
use saga_core::dead_letter::DeadLetterStatus;
use saga_core::decider::FieldValue;
use saga_core::ids;
use saga_core::query::{FoundRow, Order, Query};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::events::MOST_REPLAYS;
use super::view::DeadLetterView;
use crate::request::InvalidField;

/// Longest text that is looked for or by, in characters.
const LONGEST: usize = 200;

/// What dead letters have in common. A member that is absent says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// Those of this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub fingerprint: Option<String>,
    /// Those that this service parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub service: Option<String>,
    /// Those that failed at this step, or at this kind of task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub step: Option<String>,
    /// Those whose message is of this type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub message_type: Option<String>,
    /// Those that belong to this saga.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga: Option<Uuid>,
    /// Those that failed last at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub failed_after: Option<Timestamp>,
    /// Those that failed last before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub failed_before: Option<Timestamp>,
    /// Those with this text in the reason or the type; the case of ASCII letters does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub text: Option<String>,
}

impl Filter {
    /// Whether it says anything at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The members that cannot be what they are, named with `prefix` before them.
    #[must_use]
    pub fn invalid_fields(&self, prefix: &str) -> Vec<InvalidField> {
        let texts = [
            ("fingerprint", &self.fingerprint),
            ("service", &self.service),
            ("step", &self.step),
            ("type", &self.message_type),
            ("text", &self.text),
        ];
        let is_wrong = |text: &String| text.is_empty() || text.chars().count() > LONGEST;
        texts
            .into_iter()
            .filter(|(_, text)| text.as_ref().is_some_and(is_wrong))
            .map(|(field, _)| InvalidField {
                field: format!("{prefix}{field}"),
                detail: format!("must be 1 to {LONGEST} characters"),
            })
            .collect()
    }

    /// One name for all filters that mean the same.
    #[must_use]
    pub fn key(&self) -> Uuid {
        ids::derived(&["redrive-filter", &serde_json::to_string(self).unwrap_or_default()])
    }

    /// Whether a dead letter has the text. The rest of the filter is the store's work.
    #[must_use]
    pub fn has_text(&self, dead_letter: &DeadLetterView) -> bool {
        let (Some(text), Some(said)) = (&self.text, dead_letter.said()) else {
            return self.text.is_none();
        };
        let wanted = text.to_ascii_lowercase();
        let has = |text: &str| text.to_ascii_lowercase().contains(&wanted);
        has(&said.reason) || said.message_type.as_deref().is_some_and(has)
    }
}

/// Which dead letters to look up: a filter, and where they stand.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// What they have in common.
    pub filter: Filter,
    /// Where they stand; any that is known without one.
    pub statuses: Vec<DeadLetterStatus>,
    /// Those that failed last before this time, beside what the filter says.
    pub before: Option<Timestamp>,
    /// Only those that may be replayed without force.
    pub replayable: bool,
}

impl Wanted {
    /// Those that wait for a human.
    #[must_use]
    pub fn pending(filter: Filter) -> Self {
        Self { filter, statuses: vec![DeadLetterStatus::Pending], ..Self::default() }
    }

    /// What the store is asked. Dead letters that lack the filter's text may be among the answers:
    /// [`Filter::has_text`] tells.
    #[must_use]
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
            // The state is JSON: what it holds is looked for as JSON writes it.
            text: filter.text.as_ref().map(|text| {
                let json = serde_json::Value::from(text.as_str()).to_string();
                json[1..json.len() - 1].to_owned()
            }),
            order: Some(Order { field: "failed_at", after: None }),
            ..Query::default()
        };
        match self.statuses.as_slice() {
            // Every one that is known has a time; the others have the beginning of time.
            [] => query.from.push(("failed_at", 1.into())),
            [only] => query.equals.push(("status", status(only))),
            several => query.one_of.push(("status", several.iter().map(status).collect())),
        }
        let time = |at: Timestamp| ("failed_at", FieldValue::from(at.as_microsecond()));
        query.from.extend(filter.failed_after.map(time));
        query.below.extend(filter.failed_before.map(time));
        query.below.extend(self.before.map(time));
        if self.replayable {
            query.below.push(("replays", i64::from(MOST_REPLAYS).into()));
        }
        query
    }
}

/// Where a dead letter is in a list by the time of the last failure: a page begins behind one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// When it failed last, in microseconds UTC.
    pub micros: i64,
    /// Tells those apart that failed at the same time.
    pub id: String,
}

impl Position {
    /// The position of the dead letter of a row that a [`Wanted::query`] found, whether its state can be read or not.
    #[must_use]
    pub fn of(row: &FoundRow) -> Self {
        let micros = if let FieldValue::Integer(micros) = row.ordered_by { micros } else { 0 };
        Self { micros, id: row.id.clone() }
    }

    /// As a cursor holds it, before it is encoded.
    #[must_use]
    pub fn written(&self) -> String {
        format!("{}/{}", self.micros, self.id)
    }

    /// What [`Position::written`] wrote; `None` for anything else.
    #[must_use]
    pub fn read(written: &str) -> Option<Self> {
        let (micros, id) = written.split_once('/')?;
        Some(Self { micros: micros.parse().ok()?, id: id.parse::<Uuid>().ok()?.to_string() })
    }

    /// Starts the query behind this position.
    pub fn resume(&self, query: &mut Query) {
        query.after = Some(self.id.clone());
        query.order = query.order.map(|order| Order { after: Some(self.micros), ..order });
    }
}
