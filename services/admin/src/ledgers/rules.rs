//! Pure: the rules between ledgers, and what violates them.

use admin_api::reconciliation::Discrepancy;
use contract::money::Money;
use jiff::Timestamp;

/// A condition that must hold between ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// An order is confirmed or cancelled by its deadline.
    EveryOrderEnds,
    /// Reservations, payments and charges belong to an existing order.
    EverythingHasAnOrder,
    /// Every fact in the saga view is in the history of a service.
    FactsHaveAnAuthor,
    /// The total of an order is the sum of its lines.
    TotalIsItsLines,
    /// Every line has a price that its product once had.
    PricesAreTheCatalogues,
    /// Reserved or sold pieces are the ordered ones, by SKU.
    LinesAgree,
    /// All services have the same customer for an order.
    CustomersAgree,
    /// All services have the same amount for an order.
    AmountsAgree,
    /// An order has at most one charge.
    OneCharge,
    /// A confirmed order is paid.
    OneCapture,
    /// The stock of a confirmed order is sold.
    ConfirmedIsSold,
    /// A cancelled order holds no stock.
    StockBack,
    /// The money of a cancelled order is back.
    MoneyBack,
    /// The bank and payment have the same amounts for each charge.
    BankIsPayments,
    /// The saga view has exactly the facts that services published.
    ViewIsWhatWasPublished,
    /// Available, reserved and sold pieces are the supplied ones.
    StockAddsUp,
    /// Reserved and sold pieces of a product are those of its reservations.
    StockIsReservations,
    /// The order service's copy of the catalogue equals the catalogue.
    CopyIsCatalogue,
    /// A row is the fold of its events.
    RowsAreFolds,
    /// A row can be read.
    RowsCanBeRead,
    /// The broker accepts every fact.
    FactsArePublished,
    /// A step has processed everything that was published for it.
    MessagesAreHandled,
    /// A manually resolved discrepancy stays as it was accepted.
    ResolutionHolds,
}

impl Rule {
    /// Returns the name of the rule in the report.
    pub const fn text(self) -> &'static str {
        match self {
            Self::EveryOrderEnds => "every order ends",
            Self::EverythingHasAnOrder => "everything belongs to an order",
            Self::FactsHaveAnAuthor => "every fact was published by a service",
            Self::TotalIsItsLines => "total = sum of the lines",
            Self::PricesAreTheCatalogues => "prices are the catalogue's",
            Self::LinesAgree => "lines agree",
            Self::CustomersAgree => "customers agree",
            Self::AmountsAgree => "amounts agree",
            Self::OneCharge => "one charge per order",
            Self::OneCapture => "one capture per confirmed order",
            Self::ConfirmedIsSold => "confirmed = sold",
            Self::StockBack => "cancelled = stock back",
            Self::MoneyBack => "cancelled = money back",
            Self::BankIsPayments => "bank ledger = payments",
            Self::ViewIsWhatWasPublished => "saga view = published facts",
            Self::StockAddsUp => "on hand + reserved + sold = supplied",
            Self::StockIsReservations => "stock = reservations",
            Self::CopyIsCatalogue => "catalogue copy = catalogue",
            Self::RowsAreFolds => "every row = fold of its events",
            Self::RowsCanBeRead => "every row can be read",
            Self::FactsArePublished => "every fact is published",
            Self::MessagesAreHandled => "published = handled + waiting + dead",
            Self::ResolutionHolds => "manual resolution still holds",
        }
    }

    /// Returns the commands that show more of a violation, or repair it.
    pub fn advice(self, subject: &str) -> String {
        match self {
            Self::EveryOrderEnds
            | Self::OneCapture
            | Self::ConfirmedIsSold
            | Self::StockBack
            | Self::MoneyBack
            | Self::ViewIsWhatWasPublished => format!(
                "sagactl saga show {subject} shows its facts and the service that owes the next step; sagactl dlq \
                 list --status ALL --saga {subject} shows its dead letters. If it can never complete, do it by hand, then \
                 run sagactl saga resolve {subject} --reason WHY"
            ),
            Self::EverythingHasAnOrder
            | Self::TotalIsItsLines
            | Self::PricesAreTheCatalogues
            | Self::LinesAgree
            | Self::CustomersAgree
            | Self::AmountsAgree
            | Self::FactsHaveAnAuthor => format!(
                "compare sagactl saga show {subject} with the histories of its services \
                 (GET /api/orders/{subject}/events and so on), agree with the customer, then run sagactl saga resolve \
                 {subject} --reason WHY"
            ),
            Self::OneCharge | Self::BankIsPayments => format!(
                "money is at stake: compare GET /api/payments/{subject}/events with the bank's statement, correct the \
                 difference with the bank, then run sagactl saga resolve {subject} --reason WHY"
            ),
            Self::StockAddsUp | Self::StockIsReservations => {
                format!("count the pieces of {subject}; GET /api/products/{subject}/events shows its movements")
            }
            Self::CopyIsCatalogue => {
                "publish again what the order service missed: sagactl outbox republish inventory --since TIME --reason WHY"
                    .to_owned()
            }
            Self::RowsAreFolds | Self::RowsCanBeRead => format!(
                "rebuild the table from its events: sagactl stop {subject}, sagactl rebuild {subject} KIND, \
                 sagactl start {subject}"
            ),
            Self::FactsArePublished => format!(
                "sagactl outbox list shows the cause; fix it, then run sagactl outbox retry {subject} --reason WHY"
            ),
            Self::ResolutionHolds => format!(
                "sagactl saga show {subject} shows what happened since; correct what was done twice, then run sagactl \
                 saga withdraw-resolution {subject} --reason WHY, or accept it as it is now: sagactl saga resolve {subject} \
                 --reason WHY"
            ),
            Self::MessagesAreHandled => format!(
                "publish it again: sagactl outbox republish --since TIME --reason WHY; accept what is no longer kept: \
                 sagactl reconcile --accept {subject} --reason WHY"
            ),
        }
    }

    /// True if nothing in flight can resolve a violation.
    pub const fn holds_always(self) -> bool {
        match self {
            Self::TotalIsItsLines
            | Self::StockAddsUp
            | Self::RowsAreFolds
            | Self::RowsCanBeRead
            | Self::FactsArePublished => true,
            // Its deadline may be firing now: a service that was down ends many orders at once.
            Self::EveryOrderEnds => false,
            // Several ledgers are compared, which were not read at the same moment.
            Self::EverythingHasAnOrder
            | Self::FactsHaveAnAuthor
            | Self::PricesAreTheCatalogues
            | Self::LinesAgree
            | Self::CustomersAgree
            | Self::AmountsAgree
            | Self::OneCharge
            | Self::OneCapture
            | Self::ConfirmedIsSold
            | Self::StockBack
            | Self::MoneyBack
            | Self::BankIsPayments
            | Self::ViewIsWhatWasPublished
            | Self::StockIsReservations
            | Self::CopyIsCatalogue
            | Self::MessagesAreHandled
            | Self::ResolutionHolds => false,
        }
    }
}

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// Actual and expected values.
    pub detail: String,
    /// As in [`Discrepancy::difference`].
    pub difference: Option<String>,
    /// As in [`Discrepancy::since`].
    pub since: Option<Timestamp>,
    /// As in [`Discrepancy::amount`].
    pub amount: Option<Money>,
    /// Next steps, where they are not those of the rule.
    pub advice: Option<String>,
    /// True if nothing in flight can resolve it.
    pub certain: bool,
}

impl Violation {
    pub const fn new(rule: Rule, detail: String) -> Self {
        Self {
            rule,
            detail,
            difference: None,
            since: None,
            amount: None,
            advice: None,
            certain: rule.holds_always(),
        }
    }

    pub fn discrepancy(self, subject: &str) -> Discrepancy {
        let Self { rule, detail, difference, since, amount, advice, certain } = self;
        Discrepancy {
            rule: rule.text().to_owned(),
            subject: subject.to_owned(),
            detail,
            difference,
            since,
            amount,
            advice: advice.unwrap_or_else(|| rule.advice(subject)),
            certain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_violations_of_one_order_names_manual_resolution() {
        let how = "sagactl saga resolve 7 --reason WHY";
        for rule in
            [Rule::MoneyBack, Rule::EveryOrderEnds, Rule::LinesAgree, Rule::OneCharge, Rule::ResolutionHolds]
        {
            assert!(rule.advice("7").contains(how), "{}", rule.advice("7"));
        }
        assert!(!Rule::StockAddsUp.advice("7").contains("resolve"), "a product is no saga");
    }
}
