//! Pure: what does not add up of an order, held against what an operator settled of it: what was accepted is told apart,
//! and what is no longer as it was accepted is told as wrong.

use contract::manual_resolution::{Accepted, ManualResolution};
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;
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
    /// The rule it breaks, or where the saga stood when no rule is broken.
    pub what: String,
    /// What is there, and what should be; empty when no rule is broken.
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
/// there any more is wrong too, unless it was to end by itself: perhaps it was done twice, outside and by the services
/// after all.
#[must_use]
pub fn held_against(
    settlement: &ManualResolution,
    subject: &str,
    view: &SagaView,
    found: Vec<Found>,
) -> (Vec<Found>, Vec<SettledItem>) {
    let is_accepted = |found: &Found| settlement.accepted.contains(&accepted(found));
    let (stands, mut wrong): (Vec<_>, Vec<_>) = found.into_iter().partition(is_accepted);
    let there: Vec<Accepted> = stands.iter().map(accepted).collect();
    // What has become another breach of the same rule is told as that.
    let is_told = |known: &Accepted| wrong.iter().any(|found: &Found| found.rule.text() == known.rule);
    let is_gone =
        |known: &&Accepted| !there.contains(known) && !is_told(known) && !ends_by_itself(&known.rule, view);
    let gone: Vec<_> = settlement.accepted.iter().filter(is_gone).collect();
    let is_as_it_was = gone.is_empty();
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
    if items.is_empty() && is_as_it_was && view.status() == SagaStatus::ResolvedManually {
        items.push(item(format!("the saga was {}", settlement.was.as_str()), String::new(), None));
    }
    (wrong, items)
}

/// Whether what breaks this rule goes on to its end though the saga is settled: nobody does it twice by that. Admin may
/// hear of something later than it was said; and inventory hears nothing of settlements, and does what no dead letter
/// ever held up.
fn ends_by_itself(rule: &str, view: &SagaView) -> bool {
    let step = match rule {
        _ if rule == Rule::ViewIsWhatWasSaid.text() => return true,
        _ if rule == Rule::StockBack.text() => "inventory-stock-release",
        _ if rule == Rule::ConfirmedIsSold.text() => "inventory-sale",
        _ => return false,
    };
    view.dead_letters.values().all(|parked| parked != step)
}

fn no_longer(gone: &Accepted, settlement: &ManualResolution) -> Found {
    let Accepted { rule, detail, difference } = gone;
    let ManualResolution { operator, reason, .. } = settlement;
    let detail = format!(
        "{operator} settled \"{rule}: {detail}\" ({reason}), and it is not so any more: was it done twice?"
    );
    Found {
        difference: difference.clone(),
        since: Some(settlement.at),
        ..Found::plain(Rule::SettledStays, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settlement(accepted: Vec<Accepted>) -> ManualResolution {
        let (operator, reason) = ("ada".to_owned(), "cheque 4711".to_owned());
        ManualResolution {
            operator,
            reason,
            at: Timestamp::UNIX_EPOCH,
            was: SagaStatus::Failed,
            accepted,
            revision: 1,
        }
    }

    fn wrong(of: Vec<Found>, now: Vec<Found>) -> Vec<&'static str> {
        let settlement = settlement(of.iter().map(accepted).collect());
        let (wrong, _) = held_against(&settlement, "an order", &SagaView::default(), now);
        wrong.into_iter().map(|found| found.rule.text()).collect()
    }

    /// Admin hears of what was said a moment later than the services say it: nothing is done twice by that.
    #[test]
    fn what_admin_had_not_heard_yet_when_it_was_settled_may_be_heard_later() {
        let money = || Found::plain(Rule::MoneyBack, "payment OPEN".to_owned());
        let unheard =
            Found::plain(Rule::ViewIsWhatWasSaid, "StockReleased said today, heard never".to_owned());
        assert_eq!(wrong(vec![money(), unheard.clone()], vec![money()]), [""; 0]);
        assert_eq!(wrong(vec![money(), unheard.clone()], vec![money(), unheard.clone()]), [""; 0]);
        // Money that is no longer as it was may have gone twice.
        assert_eq!(wrong(vec![money(), unheard.clone()], vec![unheard]), [Rule::SettledStays.text()]);
    }
}
