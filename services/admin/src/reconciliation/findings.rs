//! Pure: the rules between the ledgers, and what does not keep to them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// At most this many discrepancies are listed; the count tells of the rest.
const LISTED: usize = 200;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// An order is confirmed or cancelled by its deadline.
    EveryOrderEnds,
    /// What is known of an order is known of one that there is.
    EverythingHasAnOrder,
    /// What was heard, some service's history says it said.
    FactsAreOurs,
    /// An order costs what its lines cost.
    TotalIsItsLines,
    /// A line has a price that its product has had.
    PricesAreTheCatalogues,
    /// What is held or sold is what was ordered, sku by sku.
    LinesAgree,
    /// Whoever knows the customer knows the same one.
    CustomersAgree,
    /// Whoever knows the amount knows the same one.
    AmountsAgree,
    /// A card is charged for an order once at most.
    OneCharge,
    /// A confirmed order is paid.
    OneCapture,
    /// What was ordered is sold once the order is confirmed.
    ConfirmedIsSold,
    /// A cancelled order holds no stock.
    StockBack,
    /// A cancelled order keeps no money.
    MoneyBack,
    /// The bank and the payments tell the same of each charge, to the cent.
    BankIsPayments,
    /// The view of a saga is what its services have said.
    ViewIsWhatWasSaid,
    /// The stock of a product adds up.
    StockAddsUp,
    /// What products set aside and sold is what orders hold, sku by sku.
    StockIsReservations,
    /// The order service's copy of the catalogue is the catalogue.
    CopyIsCatalogue,
    /// A row is the fold of its events.
    RowsAreFolds,
    /// A row can be read.
    RowsCanBeRead,
    /// The broker takes what is said.
    FactsArePublished,
    /// A step has come to everything that was published for it.
    MessagesAreHandled,
    /// What was settled outside stays as it was accepted.
    SettledStays,
}

impl Rule {
    /// Its name in the report.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::EveryOrderEnds => "every order ends",
            Self::EverythingHasAnOrder => "everything belongs to an order",
            Self::FactsAreOurs => "every fact was said by a service",
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
            Self::ViewIsWhatWasSaid => "saga view = what was said",
            Self::StockAddsUp => "on hand + reserved + sold = supplied",
            Self::StockIsReservations => "stock = reservations",
            Self::CopyIsCatalogue => "catalogue copy = catalogue",
            Self::RowsAreFolds => "every row = fold of its events",
            Self::RowsCanBeRead => "every row can be read",
            Self::FactsArePublished => "every fact is published",
            Self::MessagesAreHandled => "published = handled + waiting + dead",
            Self::SettledStays => "what was settled stays as it was",
        }
    }

    /// Who looks at what breaks it: the command that shows more of it, or mends it.
    #[must_use]
    pub fn advice(self, subject: &str) -> String {
        match self {
            Self::EveryOrderEnds
            | Self::OneCapture
            | Self::ConfirmedIsSold
            | Self::StockBack
            | Self::MoneyBack
            | Self::ViewIsWhatWasSaid => format!(
                "sagactl saga show {subject} tells what was said of it and who owes the next step; a message of it \
                 that is parked, or was given up, stands in sagactl dlq list --status ALL --saga {subject}. What can \
                 never go through is done by hand, and then settled: sagactl saga settle {subject} --reason WHY"
            ),
            Self::EverythingHasAnOrder
            | Self::TotalIsItsLines
            | Self::PricesAreTheCatalogues
            | Self::LinesAgree
            | Self::CustomersAgree
            | Self::AmountsAgree
            | Self::FactsAreOurs => format!(
                "nothing that comes by itself mends it: compare sagactl saga show {subject} with the histories of its \
                 services (GET /api/orders/{subject}/events and so on), settle it with the customer, and then with \
                 sagactl saga settle {subject} --reason WHY"
            ),
            Self::OneCharge | Self::BankIsPayments => format!(
                "money is at stake: lay GET /api/payments/{subject}/events beside the bank's own statement, and \
                 settle the difference with the bank, and then with sagactl saga settle {subject} --reason WHY"
            ),
            Self::StockAddsUp | Self::StockIsReservations => {
                format!("count the pieces of {subject}; GET /api/products/{subject}/events tells what came and went")
            }
            Self::CopyIsCatalogue => {
                "have inventory say again what the order service missed: sagactl outbox republish inventory --since \
                 TIME --reason WHY"
                    .to_owned()
            }
            Self::RowsAreFolds | Self::RowsCanBeRead => format!(
                "the table is damaged, its history need not be: sagactl stop {subject}, sagactl rebuild {subject} KIND, \
                 sagactl start {subject}"
            ),
            Self::FactsArePublished => format!(
                "sagactl outbox list tells why; mend that, then sagactl outbox retry {subject} --reason WHY"
            ),
            Self::SettledStays => format!(
                "sagactl saga show {subject} tells what happened since; put right what was done twice, then sagactl saga \
                 unsettle {subject} --reason WHY, or settle it as it is now: sagactl saga settle {subject} --reason WHY"
            ),
            Self::MessagesAreHandled => format!(
                "have its producers say it again (sagactl outbox republish --since TIME --reason WHY); what the streams \
                 no longer have is accepted with sagactl audit --accept {subject} --reason WHY"
            ),
        }
    }

    /// Whether what breaks it is wrong whatever else is under way: nothing that is still to come can mend it.
    #[must_use]
    pub const fn holds_always(self) -> bool {
        match self {
            Self::TotalIsItsLines
            | Self::StockAddsUp
            | Self::RowsAreFolds
            | Self::RowsCanBeRead
            | Self::FactsArePublished => true,
            // Its deadline may be firing just now: a service that was away ends many at once.
            Self::EveryOrderEnds => false,
            // Asked of several ledgers, which were not read at the same moment.
            Self::EverythingHasAnOrder
            | Self::FactsAreOurs
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
            | Self::ViewIsWhatWasSaid
            | Self::StockIsReservations
            | Self::CopyIsCatalogue
            | Self::MessagesAreHandled
            | Self::SettledStays => false,
        }
    }
}

/// Something that does not add up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Discrepancy {
    /// The rule it breaks.
    pub rule: String,
    /// The order, product, step or service.
    pub subject: String,
    /// What is there, and what should be.
    pub detail: String,
    /// How much too much, or too little with a minus before it: an amount, or pieces. Absent where nothing is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// When the last thing happened that it is about; absent where nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// What to do about it.
    #[serde(default)]
    pub advice: String,
    /// Whether it is wrong whatever is still to come; otherwise it may be that it only looks so.
    #[serde(skip)]
    pub certain: bool,
}

/// What breaks a rule, with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The rule.
    pub rule: Rule,
    /// What is there, and what should be.
    pub detail: String,
    /// As in [`Discrepancy::difference`].
    pub difference: Option<String>,
    /// As in [`Discrepancy::since`].
    pub since: Option<Timestamp>,
    /// Whether it is wrong whatever is still to come.
    pub certain: bool,
}

impl Found {
    /// Something of which no more is known.
    #[must_use]
    pub const fn plain(rule: Rule, detail: String) -> Self {
        Self { rule, detail, difference: None, since: None, certain: rule.holds_always() }
    }

    /// The same, told of something by name.
    #[must_use]
    pub fn of(self, subject: &str) -> Discrepancy {
        let Self { rule, detail, difference, since, certain } = self;
        Discrepancy {
            rule: rule.text().to_owned(),
            subject: subject.to_owned(),
            detail,
            difference,
            since,
            advice: rule.advice(subject),
            certain,
        }
    }
}

/// Everything that does not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// At most 200 of it that are certain, and 200 that are not.
    pub listed: Vec<Discrepancy>,
    /// How much it is.
    pub count: u64,
    /// How much of it is wrong whatever else is under way.
    pub certain: u64,
}

impl Findings {
    /// Takes note of something that breaks a rule.
    pub fn report(&mut self, rule: Rule, subject: &str, detail: String) {
        self.take(Found::plain(rule, detail).of(subject));
    }

    /// The same, with all that is known of it.
    pub fn take(&mut self, found: Discrepancy) {
        self.count += 1;
        self.certain += u64::from(found.certain);
        if self.listed.iter().filter(|listed| listed.certain == found.certain).count() < LISTED {
            self.listed.push(found);
        }
    }

    /// Looks at everything that is listed once more: what is said of it then is kept, and nothing is said of what was
    /// a matter of time. Of what was not listed nothing new is known.
    pub fn settle(&mut self, again: impl Fn(&Discrepancy) -> Standing) {
        let listed = std::mem::take(&mut self.listed);
        for mut found in listed {
            if found.certain {
                self.listed.push(found);
                continue;
            }
            match again(&found) {
                Standing::Gone => self.count -= 1,
                Standing::Open => self.listed.push(found),
                Standing::Wrong => {
                    found.certain = true;
                    self.certain += 1;
                    self.listed.push(found);
                }
            }
        }
    }
}

/// What a second look says of a suspicion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It adds up now: it was a matter of time.
    Gone,
    /// It looks wrong, and something is under way that may mend it.
    Open,
    /// It is wrong, as it was before, and nothing is under way for it.
    Wrong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_of_one_order_can_be_settled_and_the_advice_says_how() {
        let how = "sagactl saga settle 7 --reason WHY";
        for rule in
            [Rule::MoneyBack, Rule::EveryOrderEnds, Rule::LinesAgree, Rule::OneCharge, Rule::SettledStays]
        {
            assert!(rule.advice("7").contains(how), "{}", rule.advice("7"));
        }
        assert!(!Rule::StockAddsUp.advice("7").contains("settle"), "a product is no saga");
    }
}
