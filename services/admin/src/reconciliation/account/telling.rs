//! Pure: what the services say that they said of an order, and what admin heard of it.

use std::collections::BTreeSet;

use contract::fact::FactType;
use contract::reconciliation::{OrderEntry, PublishedFact};
use jiff::Timestamp;

use super::faults::{Faults, list, named};
use super::known::Account;
use crate::reconciliation::findings::Rule;

/// Where a fact comes from that no history tells.
const FROM_OUTSIDE: &str = "no history says so: it came from outside, or its service has lost it";

impl Account {
    /// Facts about an order that no service knows anything of: whoever said them is none of ours.
    pub(super) fn check_strangers(&self, since: Timestamp, faults: &mut Faults) {
        let heard = self.heard().filter(|(_, at)| *at >= since);
        let names = in_order(heard.map(|(fact, _)| fact));
        faults.must(names.is_empty(), Rule::FactsAreOurs, || {
            format!("no service knows this order, heard {}; {FROM_OUTSIDE}", list(names))
        });
    }

    pub(super) fn traces(&self) -> String {
        let reservation = self.reservation.as_ref().map(|reservation| reservation.state);
        let payment = self.payment.as_ref().map(|payment| payment.state);
        format!(
            "no order; reservation {}, payment {}, the bank captured {}, heard {}",
            named(reservation),
            named(payment),
            list(self.moved().flat_map(|charge| &charge.captured)),
            list(in_order(self.heard().map(|(fact, _)| fact))),
        )
    }

    /// Every fact that some service's history told, at its time, and no other.
    pub(super) fn check_view(&self, order: &OrderEntry, since: Timestamp, faults: &mut Faults) {
        let said = Times::of(self.said().map(|PublishedFact { fact, at }| (*fact, *at)));
        let heard = Times::of(self.heard());
        for fact in FactType::ALL {
            match (said.earliest(*fact), heard.earliest(*fact)) {
                (None, None) => {}
                (None, Some(at)) => faults.must(at < since, Rule::FactsAreOurs, || {
                    format!("{} heard {at}; {FROM_OUTSIDE}", fact.name())
                }),
                (Some(at), None) => faults.must(at < since, Rule::ViewIsWhatWasSaid, || {
                    format!("{} said {at}, heard never", fact.name())
                }),
                // The histories keep microseconds.
                (Some(said), Some(heard)) => {
                    let agree = said.as_microsecond() == heard.as_microsecond();
                    faults.must(agree, Rule::ViewIsWhatWasSaid, || {
                        format!("{} said {said}, heard {heard}", fact.name())
                    });
                }
            }
        }
        let view = self.view.as_ref();
        let deadline = view.and_then(|view| view.deadline).unwrap_or(order.deadline);
        faults.must(deadline == order.deadline, Rule::ViewIsWhatWasSaid, || {
            format!("deadline {}, heard {deadline}", order.deadline)
        });
        let reason = view.and_then(|view| view.cancelled_because).or(order.cancelled_because);
        faults.must(reason == order.cancelled_because, Rule::ViewIsWhatWasSaid, || {
            format!("cancelled because {}, heard {}", named(order.cancelled_because), named(reason))
        });
    }
}

/// When facts were said: one place for each type, as an account that adds up asks for nearly all of them.
struct Times([Option<Timestamp>; FactType::ALL.len()]);

impl Times {
    /// Of each the earliest of these.
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

/// The names of these facts, in the order of the contract.
fn in_order(facts: impl Iterator<Item = FactType>) -> Vec<&'static str> {
    facts.collect::<BTreeSet<_>>().into_iter().map(FactType::name).collect()
}
