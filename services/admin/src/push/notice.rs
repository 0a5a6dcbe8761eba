//! Pure: a notice: what somebody is told, in words and as a program gets it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

/// Task: tell the receiver.
pub const NOTICE: &str = "push-notice";

/// Alerts that a notice spells out under each heading; of the rest it says how many there are.
const MOST_SPELT_OUT: usize = 50;
/// The same in its one line.
const MOST_IN_LINE: usize = 5;

/// Why somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NoticeKind {
    /// Something needs somebody that was not told before, or has grown tenfold since.
    NeedsHuman,
    /// Something that was not told needed somebody, and is over, as is all that was told before.
    OverByNow,
    /// What was told long ago still needs somebody.
    Reminder,
    /// The last of what needed somebody is over.
    WellAgain,
    /// Somebody wants to see whether notices arrive.
    Test,
}

/// Something that a notice tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// What it is known by, from notice to notice.
    pub key: String,
    /// What is wrong, in one line.
    pub text: String,
    /// How much of it there is, where it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// When it was seen first.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it was over; absent while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// What somebody is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its id: the same however often it is sent.
    pub id: Uuid,
    /// Why it is sent.
    pub kind: NoticeKind,
    /// When it was decided.
    pub at: Timestamp,
    /// What was not told before, or has grown tenfold since.
    pub new: Vec<Line>,
    /// What was told before, and is still so, or was until a moment ago.
    pub still: Vec<Line>,
    /// What was told before, and is over.
    pub gone: Vec<Line>,
    /// It could not wait until the quiet time was over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_early: bool,
    /// Whom it is for, by a digest of the address; absent for standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Notice {
    /// One that says nothing but that it arrived.
    #[must_use]
    pub const fn test(id: Uuid, at: Timestamp) -> Self {
        Self {
            id,
            kind: NoticeKind::Test,
            at,
            new: vec![],
            still: vec![],
            gone: vec![],
            is_early: false,
            to: None,
        }
    }

    /// All of it in one line.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.kind {
            NoticeKind::Test => "this is a test: notices of the order saga arrive here".to_owned(),
            NoticeKind::WellAgain => format!("all is well again; over: {}", spelt_out(&self.gone)),
            NoticeKind::OverByNow => format!("it is over by now: {}", spelt_out(&self.new)),
            NoticeKind::Reminder => format!("somebody is still needed: {}", joined(&self.still)),
            NoticeKind::NeedsHuman => {
                let besides = match self.still.len() {
                    0 => String::new(),
                    count => format!("; {count} told before"),
                };
                format!("somebody is needed: {}{besides}", joined(&self.new))
            }
        }
    }

    /// What is sent: `type`, `timestamp` and `data`, as Standard Webhooks recommends.
    #[must_use]
    pub fn body(&self) -> String {
        let cut = |lines: &[Line]| lines.iter().take(MOST_SPELT_OUT).cloned().collect::<Vec<_>>();
        let rest = |lines: &[Line]| lines.len().saturating_sub(MOST_SPELT_OUT);
        let data = json!({
            "text": self.in_words(),
            "new": cut(&self.new), "still": cut(&self.still), "gone": cut(&self.gone),
            "not_spelt_out": rest(&self.new) + rest(&self.still) + rest(&self.gone),
        });
        let kind = format!("saga.{}", self.kind);
        json!({ "type": kind, "timestamp": self.at, "data": data }).to_string()
    }
}

fn joined(lines: &[Line]) -> String {
    let over = |line: &Line| if line.until.is_some() { " (over by now)" } else { "" };
    said(lines, |line| format!("{}{}", line.text, over(line)))
}

/// The same of what is over, all of it.
fn spelt_out(lines: &[Line]) -> String {
    said(lines, |line| line.text.clone())
}

fn said(lines: &[Line], words: impl Fn(&Line) -> String) -> String {
    let mut said = lines.iter().take(MOST_IN_LINE).map(words).collect::<Vec<_>>().join("; ");
    if let more @ 1.. = lines.len().saturating_sub(MOST_IN_LINE) {
        said.push_str(&format!("; and {more} more"));
    }
    said
}
