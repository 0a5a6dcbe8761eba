//! Pure: the facts of an order in the histories of the services, and in the saga view.

use std::collections::BTreeSet;

use contract::fact::FactType;
use contract::reconciliation::{OrderEntry, PublishedFact};
use jiff::{SignedDuration, Timestamp};

use super::broken_rules::{Reference, Violations, list, named};
use super::entries::Account;
use crate::ledgers::rules::Rule;

/// Explanation of a fact that is in no history.
const WITHOUT_AUTHOR: &str = "no history has it: it came from outside, or its service has lost it";

impl Account {
    /// Checks an order that no service knows for facts in the saga view.
    pub(super) fn check_unknown_order(&self, reference: Reference<'_>, violations: &mut Violations) {
        let is_due = |(fact, at): &(FactType, Timestamp)| {
            *at >= reference.view_complete_since && !reference.may_be_lost(*fact, *at)
        };
        let facts = self.viewed_facts().filter(is_due);
        let names = in_order(facts.map(|(fact, _)| fact));
        violations.require(names.is_empty(), Rule::FactsHaveAnAuthor, || {
            format!("no service knows this order, view has {}; {WITHOUT_AUTHOR}", list(names))
        });
    }

    pub(super) fn traces(&self) -> String {
        let reservation = self.reservation.as_ref().map(|reservation| reservation.state);
        let payment = self.payment.as_ref().map(|payment| payment.state);
        format!(
            "no order; reservation {}, payment {}, the bank captured {}, view has {}",
            named(reservation),
            named(payment),
            list(self.moved().flat_map(|charge| &charge.captured)),
            list(in_order(self.viewed_facts().map(|(fact, _)| fact))),
        )
    }

    /// Checks that the saga view has every fact of the histories, at its time, and no other. A fact keeps its first time in
    /// the view when a service that lost it decides it again.
    pub(super) fn check_view(
        &self,
        order: &OrderEntry,
        reference: Reference<'_>,
        violations: &mut Violations,
    ) {
        let since = reference.view_complete_since;
        let published = Times::of(self.published_facts().map(|PublishedFact { fact, at }| (*fact, *at)));
        let viewed = Times::of(self.viewed_facts());
        let is_extended = published.earliest(FactType::DeadlineExtended).is_some();
        for fact in FactType::ALL {
            match (published.earliest(*fact), viewed.earliest(*fact)) {
                (None, None) => {}
                (None, Some(at)) => {
                    let is_accepted = at < since || reference.may_be_lost(*fact, at);
                    violations.require(is_accepted, Rule::FactsHaveAnAuthor, || {
                        format!("{} in view at {at}; {WITHOUT_AUTHOR}", fact.name())
                    });
                }
                (Some(at), None) => violations.require(at < since, Rule::ViewIsWhatWasPublished, || {
                    format!("{} published {at}, missing in view", fact.name())
                }),
                // Histories keep microseconds.
                (Some(published), Some(viewed)) => {
                    let agree = published.as_microsecond() == viewed.as_microsecond()
                        || (viewed < published && reference.may_be_lost(*fact, viewed))
                        || (is_extended && is_repeated(*fact, published, viewed));
                    violations.require(agree, Rule::ViewIsWhatWasPublished, || {
                        format!("{} published {published}, in view at {viewed}", fact.name())
                    });
                }
            }
        }
        let view = self.view.as_ref();
        let deadline = view.and_then(|view| view.deadline).unwrap_or(order.deadline);
        violations.require(deadline == order.deadline, Rule::ViewIsWhatWasPublished, || {
            format!("deadline {}, in view {deadline}", order.deadline)
        });
        let reason = view.and_then(|view| view.cancelled_because).or(order.cancelled_because);
        violations.require(reason == order.cancelled_because, Rule::ViewIsWhatWasPublished, || {
            format!("cancelled because {}, in view {}", named(order.cancelled_because), named(reason))
        });
    }
}

/// Earliest times of facts, by type.
struct Times([Option<Timestamp>; FactType::ALL.len()]);

impl Times {
    fn of(facts: impl Iterator<Item = (FactType, Timestamp)>) -> Self {
        let mut times = Self([None; FactType::ALL.len()]);
        for (fact, at) in facts {
            let first = &mut times.0[fact as usize];
            *first = Some(first.map_or(at, |first| first.min(at)));
        }
        times
    }

    const fn earliest(&self, fact: FactType) -> Option<Timestamp> {
        self.0[fact as usize]
    }
}

/// Maximum difference between the clocks of two replicas, each of which may be off by two seconds.
const CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// True if the view may have the time of a repetition. Payment publishes its outcome again when a deadline is extended, and
/// the clock of the replica that does so may be behind.
fn is_repeated(fact: FactType, published: Timestamp, viewed: Timestamp) -> bool {
    let is_outcome = matches!(fact, FactType::PaymentProcessed | FactType::PaymentFailed);
    let ahead = published.duration_since(viewed);
    is_outcome && ahead.is_positive() && ahead <= CLOCK_DIFFERENCE
}

/// Returns the names of facts in the order of the contract.
fn in_order(facts: impl Iterator<Item = FactType>) -> Vec<&'static str> {
    facts.collect::<BTreeSet<_>>().into_iter().map(FactType::name).collect()
}
