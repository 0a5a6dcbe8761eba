//! Pure: what does not add up of an order, held against what an operator settled of it: what was accepted is told apart,
//! and what is no longer as it was accepted is told as wrong.

use contract::saga::SagaStatus;
use contract::settlement::{Accepted, Settlement};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::findings::{Found, Rule};

/// At most this many are listed; the count tells of the rest.
const LISTED: usize = 200;

/// Something that does not add up, and was settled outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettledItem {
    /// The order.
    pub subject: String,
    /// The rule it breaks, or where the saga stood when no rule was broken.
    pub what: String,
    /// What is there, and what should be; empty when no rule was broken.
    pub detail: String,
    /// How much too much, or too little with a minus before it; absent where nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// Who settled it.
    pub operator: String,
    /// Why, and how.
    pub reason: String,
    /// Since when it is settled.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// Everything that was settled outside, and stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledItems {
    /// At most 200 of it.
    pub listed: Vec<SettledItem>,
    /// How much it is.
    pub count: u64,
}

impl SettledItems {
    /// Takes note of some.
    pub fn take(&mut self, items: Vec<SettledItem>) {
        self.count += items.len() as u64;
        let room = LISTED.saturating_sub(self.listed.len());
        self.listed.extend(items.into_iter().take(room));
    }
}

/// What is accepted of what was found.
#[must_use]
pub fn accepted(found: &Found) -> Accepted {
    let Found { rule, detail, difference, .. } = found;
    Accepted { rule: rule.text().to_owned(), detail: detail.clone(), difference: difference.clone() }
}

/// What of `found` is wrong although this was settled, and what stands as it was accepted. What was accepted and is not
/// there any more is wrong too: perhaps it was done twice, outside and by the services after all.
#[must_use]
pub fn held_against(
    settlement: &Settlement,
    subject: &str,
    status: SagaStatus,
    found: Vec<Found>,
) -> (Vec<Found>, Vec<SettledItem>) {
    let is_accepted = |found: &Found| settlement.accepted.contains(&accepted(found));
    let (stands, mut wrong): (Vec<_>, Vec<_>) = found.into_iter().partition(is_accepted);
    let there: Vec<Accepted> = stands.iter().map(accepted).collect();
    // What has become another breach of the same rule is told as that.
    let is_told = |known: &Accepted| wrong.iter().any(|found: &Found| found.rule.text() == known.rule);
    let gone: Vec<_> =
        settlement.accepted.iter().filter(|known| !there.contains(known) && !is_told(known)).collect();
    wrong.extend(gone.into_iter().map(|gone| no_longer(gone, settlement)));
    let item = |what: String, detail: String, difference| SettledItem {
        subject: subject.to_owned(),
        what,
        detail,
        difference,
        operator: settlement.operator.clone(),
        reason: settlement.reason.clone(),
        since: settlement.at,
    };
    let mut items: Vec<_> =
        stands.into_iter().map(|it| item(it.rule.text().to_owned(), it.detail, it.difference)).collect();
    if settlement.accepted.is_empty() && status == SagaStatus::Settled {
        items.push(item(format!("the saga was {}", settlement.was.as_str()), String::new(), None));
    }
    (wrong, items)
}

fn no_longer(gone: &Accepted, settlement: &Settlement) -> Found {
    let Accepted { rule, detail, difference } = gone;
    let Settlement { operator, reason, .. } = settlement;
    let detail = format!(
        "{operator} settled \"{rule}: {detail}\" ({reason}), and it is not so any more: was it done twice?"
    );
    Found {
        difference: difference.clone(),
        since: Some(settlement.at),
        ..Found::plain(Rule::SettledStays, detail)
    }
}
