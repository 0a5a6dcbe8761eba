//! Pure: what every state of a product and of a reservation answers to every wish, printed.
//!
//! The lists are complete by construction: a new variant stops the build in the `match` that walks them.

use std::iter::successors;

use inventory::domain::{Product, ProductCommand, Reservation, ReservationCommand};
use shared::contract::StockLine;

use crate::domain::{Names, table};
use crate::given::{euros, listing};

#[test]
fn every_state_of_a_product_answers_every_wish() {
    let unlisted = Product::default();
    let sold_out =
        Product { listing: Some(listing()), sold: 5, supplied: 5, revision: 1, ..Product::default() };
    let usual = Product { on_hand: 5, reserved: 4, sold: 3, supplied: 12, ..sold_out.clone() };
    let full = Product { on_hand: u32::MAX - 5, supplied: u32::MAX, ..sold_out.clone() };
    let names = Names { state: stock_in, command: name_of_wish, rejection: |no| format!("{no:?}") };
    let table = table(&[unlisted, sold_out, usual, full], &product_wishes(), &names);
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("product", format!("free+reserved+sold=supplied, price, revision\n\n{table}"));
    });
}

#[test]
fn every_state_of_a_reservation_answers_every_wish() {
    let names = Names {
        state: |reservation: &Reservation| reservation.status().to_owned(),
        command: |wish| match wish {
            ReservationCommand::Hold(_) => "Hold".to_owned(),
            ReservationCommand::Refuse => "Refuse".to_owned(),
            ReservationCommand::Sell => "Sell".to_owned(),
            ReservationCommand::Release => "Release".to_owned(),
        },
        rejection: |no| format!("{no:?}"),
    };
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("reservation", table(&reservations(), &reservation_wishes(), &names));
    });
}

/// Wishes around what the usual product has: 5 on hand, 4 reserved, 3 sold.
pub fn product_wishes() -> Vec<ProductCommand> {
    use ProductCommand as Wish;
    let low = Wish::Replenish { threshold: 6, amount: 10 };
    let next = |wish: &Wish| {
        Some(match wish {
            Wish::List(..) => Wish::Restock(10),
            Wish::Restock(_) => low.clone(),
            Wish::Replenish { threshold: 6, .. } => Wish::Replenish { threshold: 5, amount: 10 },
            Wish::Replenish { .. } => Wish::ChangePrice(listing().unit_price),
            Wish::ChangePrice(price) if *price == listing().unit_price => Wish::ChangePrice(euros(1300)),
            Wish::ChangePrice(_) => Wish::Reserve(5),
            Wish::Reserve(5) => Wish::Reserve(6),
            Wish::Reserve(_) => Wish::Release(4),
            Wish::Release(4) => Wish::Release(5),
            Wish::Release(_) => Wish::Sell(4),
            Wish::Sell(4) => Wish::Sell(5),
            Wish::Sell(_) => Wish::PutBack(3),
            Wish::PutBack(3) => Wish::PutBack(6),
            Wish::PutBack(_) => return None,
        })
    };
    successors(Some(Wish::List(listing(), 12)), next).collect()
}

pub fn reservation_wishes() -> Vec<ReservationCommand> {
    let next = |wish: &ReservationCommand| match wish {
        ReservationCommand::Hold(_) => Some(ReservationCommand::Refuse),
        ReservationCommand::Refuse => Some(ReservationCommand::Sell),
        ReservationCommand::Sell => Some(ReservationCommand::Release),
        ReservationCommand::Release => None,
    };
    successors(Some(ReservationCommand::Hold(lines())), next).collect()
}

fn reservations() -> Vec<Reservation> {
    let next = |reservation: &Reservation| match reservation {
        Reservation::New => Some(Reservation::Held(lines())),
        Reservation::Held(_) => Some(Reservation::Refused),
        Reservation::Refused => Some(Reservation::Sold(lines())),
        Reservation::Sold(_) => Some(Reservation::Released),
        Reservation::Released => Some(Reservation::Void),
        Reservation::Void => None,
    };
    successors(Some(Reservation::New), next).collect()
}

fn lines() -> Vec<StockLine> {
    vec![StockLine { sku: "beans".to_owned(), quantity: 2 }]
}

/// Every field of a product is shown; a new one stops the build here.
fn stock_in(product: &Product) -> String {
    let Product { listing, on_hand, reserved, sold, supplied, revision } = product;
    match listing {
        None => "not listed".to_owned(),
        Some(listing) => {
            let price = listing.unit_price;
            let near_full = |pieces: &u32| match u32::MAX - pieces {
                0 => "max".to_owned(),
                missing @ 1..100 => format!("max-{missing}"),
                _ => pieces.to_string(),
            };
            let [on_hand, reserved, sold, supplied] = [on_hand, reserved, sold, supplied].map(near_full);
            format!("{on_hand}+{reserved}+{sold}={supplied}, {price}, {revision}")
        }
    }
}

fn name_of_wish(wish: &ProductCommand) -> String {
    match wish {
        ProductCommand::List(_, pieces) => format!("List({pieces})"),
        ProductCommand::Restock(pieces) => format!("Restock({pieces})"),
        ProductCommand::Replenish { threshold, amount } => format!("Replenish(below {threshold}: {amount})"),
        ProductCommand::ChangePrice(price) => format!("ChangePrice({price})"),
        ProductCommand::Reserve(pieces) => format!("Reserve({pieces})"),
        ProductCommand::Release(pieces) => format!("Release({pieces})"),
        ProductCommand::Sell(pieces) => format!("Sell({pieces})"),
        ProductCommand::PutBack(pieces) => format!("PutBack({pieces})"),
    }
}
