//! Pure: the states of a product's stock and of an order's reservation.

use contract::money::Money;
use contract::order::StockLine;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy, Sums};
use serde::{Deserialize, Serialize};

/// A product and its stock. Invariant: on hand + reserved + sold = supplied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// `None` while the product is not listed.
    pub listing: Option<Listing>,
    /// Pieces free to be ordered.
    pub on_hand: u32,
    pub reserved: u32,
    /// Pieces sold and not put back.
    pub sold: u32,
    /// All pieces ever supplied, listed ones included.
    pub supplied: u32,
    /// Increases with each change of listing or price.
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    pub name: String,
    pub unit_price: Money,
    pub replenish: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProductCommand {
    /// Lists the product with this many pieces.
    List(Listing, u32),
    Restock(u32),
    /// Adds pieces if fewer than `threshold` are on hand.
    Replenish {
        threshold: u32,
        amount: u32,
    },
    ChangePrice(Money),
    Reserve(u32),
    Release(u32),
    Sell(u32),
    /// Takes sold pieces back into stock.
    PutBack(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ProductEvent {
    Listed(Listing, u32),
    Restocked(u32),
    PriceChanged(Money),
    Reserved(u32),
    Released(u32),
    Sold(u32),
    PutBack(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProductRejection {
    #[error("there is no such product")]
    Unknown,
    #[error("the product is listed already")]
    AlreadyListed,
    /// The number of pieces would overflow.
    #[error("more pieces than can be counted")]
    TooMany,
    #[error("only {available} piece(s) are free")]
    OutOfStock {
        /// Pieces on hand; 0 also for an unlisted product.
        available: u32,
    },
    /// More pieces were to be released, sold or put back than were reserved or sold.
    #[error("more pieces than are reserved or sold")]
    NotReserved,
}

impl Decider for Product {
    const KIND: &'static str = "product";
    const FIELDS: &'static [&'static str] = &["on_hand", "replenish"];
    const NUMBERS: &'static [&'static str] = Self::FIELDS;
    /// A product never ends, and each order adds events to it.
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    type Command = ProductCommand;
    type Event = ProductEvent;
    type Rejection = ProductRejection;

    fn decide(&self, command: &ProductCommand) -> Result<Vec<ProductEvent>, ProductRejection> {
        use {ProductCommand as Command, ProductEvent as Event, ProductRejection as No};
        let Some(listing) = &self.listing else {
            return match command {
                Command::List(listing, pieces) => Ok(vec![Event::Listed(listing.clone(), *pieces)]),
                // An unlisted sku has no pieces: the same rejection as for a sold-out one.
                Command::Reserve(_) => Err(No::OutOfStock { available: 0 }),
                Command::Restock(_)
                | Command::Replenish { .. }
                | Command::ChangePrice(_)
                | Command::Release(_)
                | Command::Sell(_)
                | Command::PutBack(_) => Err(No::Unknown),
            };
        };
        match *command {
            Command::List(..) => Err(No::AlreadyListed),
            Command::Restock(pieces) => self.restocked(pieces),
            Command::Replenish { threshold, amount } if listing.replenish && self.on_hand < threshold => {
                self.restocked(amount)
            }
            Command::Replenish { .. } => Ok(vec![]),
            Command::ChangePrice(price) if price == listing.unit_price => Ok(vec![]),
            Command::ChangePrice(price) => Ok(vec![Event::PriceChanged(price)]),
            Command::Reserve(pieces) if pieces <= self.on_hand => Ok(vec![Event::Reserved(pieces)]),
            Command::Reserve(_) => Err(No::OutOfStock { available: self.on_hand }),
            Command::Release(pieces) if pieces <= self.reserved => Ok(vec![Event::Released(pieces)]),
            Command::Sell(pieces) if pieces <= self.reserved => Ok(vec![Event::Sold(pieces)]),
            Command::PutBack(pieces) if pieces <= self.sold => Ok(vec![Event::PutBack(pieces)]),
            Command::Release(_) | Command::Sell(_) | Command::PutBack(_) => Err(No::NotReserved),
        }
    }

    fn evolve(&mut self, event: &ProductEvent) {
        match event {
            ProductEvent::Listed(listing, pieces) => {
                self.listing = Some(listing.clone());
                self.on_hand = *pieces;
                self.supplied = *pieces;
                self.revision += 1;
            }
            ProductEvent::Restocked(pieces) => {
                self.on_hand = self.on_hand.saturating_add(*pieces);
                self.supplied = self.supplied.saturating_add(*pieces);
            }
            ProductEvent::PriceChanged(price) => {
                if let Some(listing) = &mut self.listing {
                    listing.unit_price = *price;
                }
                self.revision += 1;
            }
            ProductEvent::Reserved(pieces) => shift(&mut self.on_hand, &mut self.reserved, *pieces),
            ProductEvent::Released(pieces) => shift(&mut self.reserved, &mut self.on_hand, *pieces),
            ProductEvent::Sold(pieces) => shift(&mut self.reserved, &mut self.sold, *pieces),
            ProductEvent::PutBack(pieces) => shift(&mut self.sold, &mut self.on_hand, *pieces),
        }
    }

    fn event_name(event: &ProductEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        let replenish = self.listing.as_ref().is_some_and(|listing| listing.replenish);
        vec![i64::from(self.on_hand).into(), i64::from(replenish).into()]
    }
}

impl Product {
    fn restocked(&self, pieces: u32) -> Result<Vec<ProductEvent>, ProductRejection> {
        match self.supplied.checked_add(pieces) {
            Some(_) => Ok(vec![ProductEvent::Restocked(pieces)]),
            None => Err(ProductRejection::TooMany),
        }
    }
}

/// Moves pieces from one counter to another. Never creates or loses one.
fn shift(from: &mut u32, to: &mut u32, pieces: u32) {
    let pieces = pieces.min(*from);
    *from -= pieces;
    *to += pieces;
}

/// The stock that an order has reserved or bought.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum Reservation {
    #[default]
    New,
    Reserved(Vec<StockLine>),
    /// At least one line was short, so nothing is reserved.
    Refused,
    Sold(Vec<StockLine>),
    /// Released, or put back after a sale: the order was cancelled.
    Released,
    /// Cancelled before the request arrived: the late request has no effect.
    Void,
}

/// Commands for a reservation. The handler checks the stock before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationCommand {
    Reserve(Vec<StockLine>),
    /// Records that at least one line is short.
    Refuse,
    Sell,
    Release,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ReservationEvent {
    Reserved(Vec<StockLine>),
    Refused,
    Sold,
    /// Released, or put back after a sale.
    Released,
    /// Cancelled before anything was reserved.
    Voided,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReservationRejection {
    #[error("nothing is known of the order")]
    Unknown,
    #[error("nothing is reserved for the order")]
    NothingReserved,
}

impl Decider for Reservation {
    const KIND: &'static str = "reservation";
    const FIELDS: &'static [&'static str] = &["status"];
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeRows;
    type Command = ReservationCommand;
    type Event = ReservationEvent;
    type Rejection = ReservationRejection;

    fn decide(&self, command: &ReservationCommand) -> Result<Vec<ReservationEvent>, ReservationRejection> {
        use {Reservation as State, ReservationCommand as Command, ReservationEvent as Event};
        match (self, command) {
            (State::New, Command::Reserve(lines)) => Ok(vec![Event::Reserved(lines.clone())]),
            (State::New, Command::Refuse) => Ok(vec![Event::Refused]),
            (State::New, Command::Release) => Ok(vec![Event::Voided]),
            (State::New, Command::Sell) => Err(ReservationRejection::Unknown),

            (State::Reserved(_), Command::Sell) => Ok(vec![Event::Sold]),
            (State::Reserved(_) | State::Sold(_), Command::Release) => Ok(vec![Event::Released]),
            (State::Reserved(_), Command::Reserve(_) | Command::Refuse) => Ok(vec![]),
            (State::Sold(_), Command::Reserve(_) | Command::Refuse | Command::Sell) => Ok(vec![]),

            (
                State::Refused | State::Released | State::Void,
                Command::Reserve(_) | Command::Refuse | Command::Release,
            ) => Ok(vec![]),
            (State::Refused | State::Released | State::Void, Command::Sell) => {
                Err(ReservationRejection::NothingReserved)
            }
        }
    }

    fn evolve(&mut self, event: &ReservationEvent) {
        *self = match event {
            ReservationEvent::Reserved(lines) => Self::Reserved(lines.clone()),
            ReservationEvent::Refused => Self::Refused,
            ReservationEvent::Sold => Self::Sold(self.lines().to_vec()),
            ReservationEvent::Released => Self::Released,
            ReservationEvent::Voided => Self::Void,
        };
    }

    fn event_name(event: &ReservationEvent) -> &'static str {
        event.into()
    }

    fn fields(&self, _: &str) -> Vec<FieldValue> {
        vec![self.status().into()]
    }

    fn is_finished(&self) -> bool {
        match self {
            Self::New | Self::Reserved(_) => false,
            Self::Refused | Self::Sold(_) | Self::Released | Self::Void => true,
        }
    }

    /// Sold pieces stay in the product's counters after the reservation is purged.
    fn purged_sums(&self) -> Sums {
        self.lines().iter().map(|line| (line.sku.clone(), i64::from(line.quantity))).collect()
    }
}

impl Reservation {
    #[must_use]
    pub fn status(&self) -> &'static str {
        self.into()
    }

    #[must_use]
    pub fn lines(&self) -> &[StockLine] {
        match self {
            Self::Reserved(lines) | Self::Sold(lines) => lines,
            Self::New | Self::Refused | Self::Released | Self::Void => &[],
        }
    }
}
