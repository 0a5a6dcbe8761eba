//! Pure: the rules between the ledgers, and what does not keep to them.

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
        }
    }

    /// Whether what breaks it is wrong whatever else is under way: nothing that is still to come can mend it.
    #[must_use]
    pub const fn holds_always(self) -> bool {
        match self {
            Self::EveryOrderEnds
            | Self::TotalIsItsLines
            | Self::StockAddsUp
            | Self::RowsAreFolds
            | Self::RowsCanBeRead
            | Self::FactsArePublished => true,
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
            | Self::MessagesAreHandled => false,
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
}

/// Everything that does not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// At most 200 of it.
    pub listed: Vec<Discrepancy>,
    /// How much it is.
    pub count: u64,
    /// How much of it is wrong whatever else is under way.
    pub certain: u64,
}

impl Findings {
    /// Takes note of something that breaks a rule.
    pub fn report(&mut self, rule: Rule, subject: &str, detail: String) {
        self.count += 1;
        self.certain += u64::from(rule.holds_always());
        if self.listed.len() < LISTED {
            let (rule, subject) = (rule.text().to_owned(), subject.to_owned());
            self.listed.push(Discrepancy { rule, subject, detail });
        }
    }
}
