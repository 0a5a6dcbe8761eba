//! Pure: the payment of an order, and its charges at the bank.

use contract::money::Money;
use contract::reconciliation::{ChargeState, OrderEntry, OrderState, PaymentState};

use super::broken_rules::{Violations, list, named};
use super::entries::Account;
use crate::ledgers::rules::Rule;

impl Account {
    pub(super) fn check_money(&self, order: &OrderEntry, violations: &mut Violations) {
        let payment = self.payment.as_ref().map(|payment| payment.state);
        let kept = self.charges.iter().filter(|charge| charge.state == ChargeState::Captured).count();
        let detail = || format!("payment {}, {kept} charges captured at the bank", named(payment));
        let moved = self.moved().count();
        violations.require(moved <= 1, Rule::OneCharge, || format!("{moved} charges at the bank"));
        match order.state {
            OrderState::Pending => {}
            OrderState::Confirmed => {
                let is_kindness = self.payment.as_ref().is_some_and(|payment| payment.refunded_by_operator);
                let is_paid = match payment {
                    Some(PaymentState::Captured) => kept == 1,
                    Some(PaymentState::Refunded) => is_kindness && kept == 0,
                    Some(PaymentState::Open | PaymentState::None) | None => false,
                };
                violations.require(is_paid, Rule::OneCapture, detail);
            }
            OrderState::Cancelled => {
                let is_undone = matches!(payment, None | Some(PaymentState::None | PaymentState::Refunded));
                violations.require(is_undone && kept == 0, Rule::MoneyBack, detail);
            }
        }
    }

    /// Warns about a payment that was resolved manually although the bank does not have its money.
    pub(super) fn possible_double_payment(&self, order: &str) -> Option<String> {
        let is_resolved = self.payment.as_ref().is_some_and(|payment| payment.resolved_manually);
        if !is_resolved || self.charges.iter().any(|charge| charge.state == ChargeState::Captured) {
            return None;
        }
        let refunded: Vec<Money> = self.charges.iter().flat_map(|charge| &charge.refunded).copied().collect();
        let bank = match refunded.is_empty() {
            true => "never captured the money".to_owned(),
            false => format!("refunded {}", list(&refunded)),
        };
        Some(format!(
            "the bank {bank}: if it was paid back by other means too, the customer was paid twice. If not, sagactl saga \
             withdraw-resolution {order} --reason WHY lets payment finish"
        ))
    }

    /// Compares captures, refunds and references of payment and bank.
    pub(super) fn check_bank(&self, order: &OrderEntry, violations: &mut Violations) {
        let captured: Vec<Money> = self.charges.iter().flat_map(|charge| &charge.captured).copied().collect();
        let refunded: Vec<Money> = self.charges.iter().flat_map(|charge| &charge.refunded).copied().collect();
        let bank = || format!("the bank captured {} and refunded {}", list(&captured), list(&refunded));
        for charge in self.moved() {
            violations.require(charge.charge == order.payment, Rule::BankIsPayments, || {
                format!("charge {} is not the payment's", charge.id)
            });
            // Money is captured and refunded once, and as a whole.
            let whole = std::slice::from_ref(&order.total);
            let (came, went): (&[Money], &[Money]) = match charge.state {
                ChargeState::None => (&[], &[]),
                ChargeState::Captured => (whole, &[]),
                ChargeState::Refunded => (whole, whole),
            };
            let is_whole = (charge.captured.as_slice(), charge.refunded.as_slice()) == (came, went);
            violations.require(is_whole, Rule::AmountsAgree, || format!("order {}, {}", order.total, bank()));
        }
        let Some(payment) = &self.payment else {
            return violations
                .require(captured == refunded, Rule::BankIsPayments, || format!("no payment; {}", bank()));
        };
        let agree = match payment.state {
            // A call is in flight, or its outcome is unknown.
            PaymentState::Open => true,
            // A capture without an answer was reversed.
            PaymentState::None => captured == refunded && payment.captured.is_empty(),
            PaymentState::Captured => {
                (&captured, &refunded) == (&payment.captured, &payment.refunded) && refunded.is_empty()
            }
            PaymentState::Refunded => {
                (&captured, &refunded) == (&payment.captured, &payment.refunded) && captured == refunded
            }
        };
        violations.require(agree, Rule::BankIsPayments, || {
            let (came, went) = (list(&payment.captured), list(&payment.refunded));
            format!("payment {}, captured {came} and refunded {went}; {}", named(Some(payment.state)), bank())
        });
        if matches!(payment.state, PaymentState::Captured | PaymentState::Refunded) {
            let is_its_own = self.moved().any(|charge| charge.id == payment.reference);
            violations.require(is_its_own, Rule::BankIsPayments, || {
                let own = list(self.moved().map(|charge| &charge.id));
                format!("payment says {}, the bank's charges of the order are {own}", payment.reference)
            });
        }
    }
}
