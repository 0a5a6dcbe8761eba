//! Pure: what may happen to stock, and to what an order holds of it.

use contract::money::Money;
use contract::order::StockLine;
use saga_core::decider::{Decider, FieldValue, RetentionPolicy, Sums};
use serde::{Deserialize, Serialize};

/// A product and its stock. Always: on hand + reserved + sold = supplied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// What it is; `None` for a product that is not listed.
    pub listing: Option<Listing>,
    /// Pieces that no order holds.
    pub on_hand: u32,
    /// Pieces set aside for orders.
    pub reserved: u32,
    /// Pieces sold and not taken back.
    pub sold: u32,
    /// All pieces that ever came in.
    pub supplied: u32,
    /// Grows with every change of listing or price.
    pub revision: u64,
}

/// What a product is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// What people call it.
    pub name: String,
    /// Price of one piece.
    pub unit_price: Money,
    /// Whether the monitor replenishes it.
    pub replenish: bool,
}

/// What may be asked of a product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProductCommand {
    /// List it, with this many pieces.
    List(Listing, u32),
    /// More pieces came in.
    Restock(u32),
    /// More pieces come in if fewer than `threshold` are free.
    Replenish {
        /// So many free pieces are enough.
        threshold: u32,
        /// Pieces that come in when there are fewer.
        amount: u32,
    },
    /// Sell it at another price.
    ChangePrice(Money),
    /// Set pieces aside.
    Reserve(u32),
    /// Free pieces that were set aside.
    Release(u32),
    /// Sell pieces that were set aside.
    Sell(u32),
    /// Take sold pieces back.
    PutBack(u32),
}

/// What happened to a product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ProductEvent {
    /// It was listed, with this many pieces.
    Listed(Listing, u32),
    /// More pieces came in.
    Restocked(u32),
    /// Its price changed.
    PriceChanged(Money),
    /// Pieces were set aside.
    Reserved(u32),
    /// Pieces were freed.
    Released(u32),
    /// Pieces were sold.
    Sold(u32),
    /// Sold pieces came back.
    PutBack(u32),
}

/// Why a product says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProductRejection {
    /// There is no such product.
    #[error("there is no such product")]
    Unknown,
    /// It is listed already.
    #[error("the product is listed already")]
    AlreadyListed,
    /// So many pieces do not fit the ledger.
    #[error("more pieces than can be counted")]
    TooMany,
    /// Not enough pieces are free.
    #[error("only {available} piece(s) are free")]
    OutOfStock {
        /// How many are; 0 also for a product that nobody listed.
        available: u32,
    },
    /// More was to be freed, sold or put back than was set aside or sold.
    #[error("more pieces than the order holds")]
    NotHeld,
}

impl Decider for Product {
    const KIND: &'static str = "product";
    const FIELDS: &'static [&'static str] = &["on_hand", "replenish"];
    const NUMBERS: &'static [&'static str] = Self::FIELDS;
    /// Every order adds to it.
    const RETENTION: RetentionPolicy = RetentionPolicy::PurgeEvents;
    type Command = ProductCommand;
    type Event = ProductEvent;
    type Rejection = ProductRejection;

    fn decide(&self, command: &ProductCommand) -> Result<Vec<ProductEvent>, ProductRejection> {
        use {ProductCommand as Command, ProductEvent as Event, ProductRejection as No};
        let Some(listing) = &self.listing else {
            return match command {
                Command::List(listing, pieces) => Ok(vec![Event::Listed(listing.clone(), *pieces)]),
                // A sku that nobody ever listed has no pieces: the same no as for one that ran out.
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
            Command::Release(_) | Command::Sell(_) | Command::PutBack(_) => Err(No::NotHeld),
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

/// Moves pieces; never makes or loses one, whatever it is asked.
fn shift(from: &mut u32, to: &mut u32, pieces: u32) {
    let pieces = pieces.min(*from);
    *from -= pieces;
    *to += pieces;
}

/// What an order holds of the stock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reservation {
    /// Nothing is known of the order.
    #[default]
    New,
    /// These pieces are set aside.
    Held(Vec<StockLine>),
    /// Not every line was there, so nothing is set aside.
    Refused,
    /// These pieces are sold.
    Sold(Vec<StockLine>),
    /// Freed, or put back: the order was cancelled.
    Released,
    /// The cancellation came before the request: the late request does nothing.
    Void,
}

/// What may be asked of a reservation. Whether the stock suffices is the products' matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Hold these pieces.
    Hold(Vec<StockLine>),
    /// Refuse: something is short.
    Refuse,
    /// The order was confirmed: the pieces are sold.
    Sell,
    /// The order was cancelled: the pieces are free again.
    Release,
}

/// What happened to a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum ReservationEvent {
    /// These pieces were set aside.
    Held(Vec<StockLine>),
    /// Nothing was set aside.
    Refused,
    /// The pieces were sold.
    Sold,
    /// The pieces were freed, or put back after the sale.
    Released,
    /// The cancellation came first.
    Voided,
}

/// Why a reservation says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReservationRejection {
    /// Nothing is known of the order.
    #[error("nothing is known of the order")]
    Unknown,
    /// The order holds nothing that could be sold.
    #[error("the order holds nothing that could be sold")]
    NothingHeld,
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
            (State::New, Command::Hold(lines)) => Ok(vec![Event::Held(lines.clone())]),
            (State::New, Command::Refuse) => Ok(vec![Event::Refused]),
            (State::New, Command::Release) => Ok(vec![Event::Voided]),
            (State::New, Command::Sell) => Err(ReservationRejection::Unknown),

            (State::Held(_), Command::Sell) => Ok(vec![Event::Sold]),
            (State::Held(_) | State::Sold(_), Command::Release) => Ok(vec![Event::Released]),
            (State::Held(_), Command::Hold(_) | Command::Refuse) => Ok(vec![]),
            (State::Sold(_), Command::Hold(_) | Command::Refuse | Command::Sell) => Ok(vec![]),

            (
                State::Refused | State::Released | State::Void,
                Command::Hold(_) | Command::Refuse | Command::Release,
            ) => Ok(vec![]),
            (State::Refused | State::Released | State::Void, Command::Sell) => {
                Err(ReservationRejection::NothingHeld)
            }
        }
    }

    fn evolve(&mut self, event: &ReservationEvent) {
        *self = match event {
            ReservationEvent::Held(lines) => Self::Held(lines.clone()),
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
            Self::New | Self::Held(_) => false,
            Self::Refused | Self::Sold(_) | Self::Released | Self::Void => true,
        }
    }

    /// Pieces sold: their products count them for ever.
    fn carried(&self) -> Sums {
        self.lines().iter().map(|line| (line.sku.clone(), i64::from(line.quantity))).collect()
    }
}

impl Reservation {
    /// The status in the API.
    #[must_use]
    pub const fn status(&self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Held(_) => "HELD",
            Self::Refused => "REFUSED",
            Self::Sold(_) => "SOLD",
            Self::Released => "RELEASED",
            Self::Void => "VOID",
        }
    }

    /// The pieces that are set aside or sold.
    #[must_use]
    pub fn lines(&self) -> &[StockLine] {
        match self {
            Self::Held(lines) | Self::Sold(lines) => lines,
            Self::New | Self::Refused | Self::Released | Self::Void => &[],
        }
    }
}
