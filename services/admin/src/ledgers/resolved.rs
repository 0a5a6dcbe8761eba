//! Pure: violations of an order compared with its manual resolution: accepted ones are listed apart, and accepted ones that
//! have changed since are violations again.

use admin_api::reconciliation::ResolvedItem;
use contract::manual_resolution::{Accepted, ManualResolution};
use contract::saga::SagaStatus;
use contract::saga_view::SagaView;

use super::rules::{Rule, Violation};

/// Maximum number of listed items. The count includes the rest.
const MAX_LISTED: usize = 200;

/// Discrepancies that were resolved manually and have not changed since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedItems {
    /// At most 200, those to check first.
    pub listed: Vec<ResolvedItem>,
    pub count: u64,
    /// Number of those to check, as money may have been returned twice.
    pub to_check: u64,
}

impl ResolvedItems {
    pub fn take(&mut self, items: Vec<ResolvedItem>) {
        // Most orders have none.
        if items.is_empty() {
            return;
        }
        self.count += items.len() as u64;
        self.to_check += items.iter().filter(|item| item.check.is_some()).count() as u64;
        self.listed.extend(items);
        self.listed.sort_by_key(|item| item.check.is_none());
        self.listed.truncate(MAX_LISTED);
    }
}

pub fn accepted(found: &Violation) -> Accepted {
    let Violation { rule, detail, difference, .. } = found;
    Accepted { rule: rule.text().to_owned(), detail: detail.clone(), difference: difference.clone() }
}

/// Splits violations into those that the resolution does not cover, and those that stand as accepted. An accepted violation
/// that is gone is a violation too, unless it completes automatically: it may have been done twice, by hand and by a service.
pub fn compare(
    resolution: &ManualResolution,
    subject: &str,
    view: &SagaView,
    found: Vec<Violation>,
) -> (Vec<Violation>, Vec<ResolvedItem>) {
    let is_accepted = |found: &Violation| resolution.accepted.contains(&accepted(found));
    let (stands, mut wrong): (Vec<_>, Vec<_>) = found.into_iter().partition(is_accepted);
    let there: Vec<Accepted> = stands.iter().map(accepted).collect();
    // A different violation of the same rule is reported as such.
    let is_reported =
        |known: &Accepted| wrong.iter().any(|found: &Violation| found.rule.text() == known.rule);
    let is_gone = |known: &&Accepted| {
        !there.contains(known) && !is_reported(known) && !completes_automatically(&known.rule, view)
    };
    let gone: Vec<_> = resolution.accepted.iter().filter(is_gone).collect();
    let is_as_it_was = gone.is_empty();
    wrong.extend(gone.into_iter().map(|gone| no_longer(gone, resolution)));
    let item = |what: String, detail: String, difference| ResolvedItem {
        subject: subject.to_owned(),
        what,
        detail,
        difference,
        amount: None,
        check: None,
        operator: resolution.operator.clone(),
        reason: resolution.reason.clone(),
        since: resolution.at,
    };
    let mut items: Vec<_> =
        stands.into_iter().map(|it| item(it.rule.text().to_owned(), it.detail, it.difference)).collect();
    if items.is_empty() && is_as_it_was && view.status() == SagaStatus::ResolvedManually {
        items.push(item(format!("the saga was {}", resolution.was.as_str()), String::new(), None));
    }
    (wrong, items)
}

/// True if the work behind a violation completes although the saga is resolved manually. Admin may consume a fact late;
/// and inventory does not know of manual resolutions, and does what no dead letter blocks.
fn completes_automatically(rule: &str, view: &SagaView) -> bool {
    let step = match rule {
        _ if rule == Rule::ViewIsWhatWasPublished.text() => return true,
        _ if rule == Rule::StockBack.text() => "inventory-stock-release",
        _ if rule == Rule::ConfirmedIsSold.text() => "inventory-sale",
        _ => return false,
    };
    view.dead_letters.values().all(|parked| parked != step)
}

fn no_longer(gone: &Accepted, resolution: &ManualResolution) -> Violation {
    let Accepted { rule, detail, difference } = gone;
    let ManualResolution { operator, reason, .. } = resolution;
    let detail = format!(
        "{operator} accepted \"{rule}: {detail}\" ({reason}), and it has changed since: was it done twice?"
    );
    Violation {
        difference: difference.clone(),
        since: Some(resolution.at),
        ..Violation::new(Rule::ResolutionHolds, detail)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn resolution(accepted: Vec<Accepted>) -> ManualResolution {
        let (operator, reason) = ("ada".to_owned(), "cheque 4711".to_owned());
        ManualResolution {
            operator,
            reason,
            at: Timestamp::UNIX_EPOCH,
            was: SagaStatus::CompensationStuck,
            accepted,
            revision: 1,
        }
    }

    fn wrong(of: Vec<Violation>, now: Vec<Violation>) -> Vec<&'static str> {
        let resolution = resolution(of.iter().map(accepted).collect());
        let (wrong, _) = compare(&resolution, "an order", &SagaView::default(), now);
        wrong.into_iter().map(|found| found.rule.text()).collect()
    }

    #[test]
    fn accepted_violation_with_another_detail_is_reported_once_as_what_it_is_now() {
        let money = |detail: &str| Violation::new(Rule::MoneyBack, detail.to_owned());
        let now = || vec![money("payment CAPTURED")];
        assert_eq!(wrong(vec![money("payment OPEN")], now()), [Rule::MoneyBack.text()]);
        // A violation of another rule does not explain that an accepted one is gone.
        let other = Violation::new(Rule::ViewIsWhatWasPublished, "more".to_owned());
        let expected = [Rule::ViewIsWhatWasPublished.text(), Rule::ResolutionHolds.text()];
        assert_eq!(wrong(vec![money("payment OPEN")], vec![other]), expected);
    }

    #[test]
    fn fact_that_reaches_admin_after_resolution_is_no_violation() {
        let money = || Violation::new(Rule::MoneyBack, "payment OPEN".to_owned());
        let late = Violation::new(
            Rule::ViewIsWhatWasPublished,
            "StockReleased published today, missing in the view".to_owned(),
        );
        assert_eq!(wrong(vec![money(), late.clone()], vec![money()]), [""; 0]);
        assert_eq!(wrong(vec![money(), late.clone()], vec![money(), late.clone()]), [""; 0]);
        // Money whose state changed may have been refunded twice.
        assert_eq!(wrong(vec![money(), late.clone()], vec![late]), [Rule::ResolutionHolds.text()]);
    }
}
