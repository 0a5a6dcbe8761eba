//! Pure: all discrepancies of a reconciliation: counted by rule, with samples.

use std::collections::BTreeMap;

use admin_api::reconciliation::{Discrepancy, RuleCount};
use contract::money::Money;

use super::rules::{Rule, Violation};

/// Maximum number of discrepancies of each kind in a report. The counts include the rest.
const MAX_SAMPLE: usize = 200;

/// Maximum number of suspected discrepancies that are kept to be read again, some tens of megabytes.
pub const MAX_SUSPECTED: usize = 20_000;

/// All discrepancies of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discrepancies {
    /// Certain ones, enough for a sample, and suspected ones, to be read again.
    pub listed: Vec<Discrepancy>,
    pub count: u64,
    /// Number of those that nothing in flight can resolve.
    pub certain: u64,
    by_rule: BTreeMap<String, Tally>,
}

/// Number of discrepancies of one rule, and the money in the affected orders, by currency.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tally {
    certain: u64,
    suspected: u64,
    amounts: BTreeMap<&'static str, Money>,
}

impl Tally {
    fn add(&mut self, amount: Option<Money>, sign: i64) {
        if let Some(amount) = amount {
            let none = Money::new(0, amount.currency);
            let sum = self.amounts.entry(amount.currency.code()).or_insert(none);
            sum.amount_minor = sum.amount_minor.saturating_add(amount.amount_minor.saturating_mul(sign));
        }
    }
}

impl Discrepancies {
    pub fn report(&mut self, rule: Rule, subject: &str, detail: String) {
        self.take(Violation::new(rule, detail).discrepancy(subject));
    }

    pub fn take(&mut self, found: Discrepancy) {
        self.count += 1;
        self.certain += u64::from(found.certain);
        let tally = self.by_rule.entry(found.rule.clone()).or_default();
        tally.add(found.amount, 1);
        let (tallied, kept, limit) = match found.certain {
            true => (&mut tally.certain, self.certain, MAX_SAMPLE),
            false => (&mut tally.suspected, self.count - self.certain, MAX_SUSPECTED),
        };
        *tallied += 1;
        if kept <= limit as u64 {
            self.listed.push(found);
        }
    }

    /// Applies the recheck of listed suspicions: confirms them, keeps them or drops them.
    pub fn recheck(&mut self, again: impl Fn(&Discrepancy) -> Recheck) {
        let listed = std::mem::take(&mut self.listed);
        for mut found in listed {
            let recheck = if found.certain { Recheck::Open } else { again(&found) };
            let tally = self.by_rule.entry(found.rule.clone()).or_default();
            match recheck {
                Recheck::Open => self.listed.push(found),
                Recheck::Resolved => {
                    self.count -= 1;
                    tally.suspected -= 1;
                    tally.add(found.amount, -1);
                }
                Recheck::Confirmed => {
                    found.certain = true;
                    self.certain += 1;
                    (tally.certain, tally.suspected) = (tally.certain + 1, tally.suspected - 1);
                    self.listed.push(found);
                }
            }
        }
    }

    /// Counts by rule.
    pub fn counts(&self) -> Vec<RuleCount> {
        let is_left = |(_, tally): &(&String, &Tally)| tally.certain + tally.suspected > 0;
        let counted = |(rule, tally): (&String, &Tally)| RuleCount {
            rule: rule.clone(),
            certain: tally.certain,
            suspected: tally.suspected,
            amounts: tally.amounts.values().filter(|amount| amount.amount_minor != 0).copied().collect(),
        };
        self.by_rule.iter().filter(is_left).map(counted).collect()
    }

    /// Samples of the certain and of the suspected discrepancies.
    pub fn samples(self) -> (Vec<Discrepancy>, Vec<Discrepancy>) {
        let (mut certain, mut suspected): (Vec<_>, Vec<_>) =
            self.listed.into_iter().partition(|found| found.certain);
        certain.truncate(MAX_SAMPLE);
        suspected.truncate(MAX_SAMPLE);
        (certain, suspected)
    }
}

/// Result of reading a suspected discrepancy again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recheck {
    /// The ledgers agree now.
    Resolved,
    /// The ledgers disagree, and work in flight may resolve it.
    Open,
    /// The ledgers disagree as before, and nothing is in flight for it.
    Confirmed,
}

#[cfg(test)]
mod tests {
    use contract::money::Currency;

    use super::*;

    fn suspicion(order: u64) -> Discrepancy {
        let amount = Some(Money::new(1_000, Currency::EUR));
        Violation { amount, ..Violation::new(Rule::MoneyBack, String::new()) }.discrepancy(&order.to_string())
    }

    #[test]
    fn discrepancies_beyond_the_sample_are_rechecked_and_counted_by_rule_with_money() {
        let mut all = Discrepancies::default();
        (0..2_900).for_each(|order| all.take(suspicion(order)));
        all.report(Rule::StockAddsUp, "pen", String::new());
        let first = all.counts();
        assert_eq!((first[0].certain, first[0].suspected), (0, 2_900));
        assert_eq!(first[0].amounts, [Money::new(2_900_000, Currency::EUR)]);
        // One hundred were in flight, and one could not be read again.
        all.recheck(|found| match found.subject.as_str() {
            "2899" => Recheck::Open,
            order if order.len() < 3 => Recheck::Resolved,
            _ => Recheck::Confirmed,
        });
        assert_eq!((all.count, all.certain), (2_801, 2_800));
        let counts = all.counts();
        assert_eq!((counts[0].certain, counts[0].suspected), (2_799, 1));
        assert_eq!(counts[0].amounts, [Money::new(2_800_000, Currency::EUR)]);
        assert_eq!((counts[1].certain, counts[1].suspected), (1, 0));
        let (certain, suspected) = all.samples();
        assert_eq!((certain.len(), suspected.len()), (200, 1), "lists are samples");
    }
}
