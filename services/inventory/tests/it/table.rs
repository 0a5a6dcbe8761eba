//! Pure: what every state of a product and of a reservation answers to every command, printed.
//!
//! The lists are complete by construction: a new variant stops the build in the `match` that walks them.

use std::iter::successors;

use contract::order::StockLine;
use inventory::domain::{Product, ProductCommand, Reservation, ReservationCommand};

use crate::given::{euros, listing};
use saga_core::decider::Decider as _;
use saga_engine::testing::decider::{Names, table};

#[test]
fn every_state_of_a_product_answers_every_command() {
    let unlisted = Product::default();
    let sold_out =
        Product { listing: Some(listing()), sold: 5, supplied: 5, revision: 1, ..Product::default() };
    let usual = Product { on_hand: 5, reserved: 4, sold: 3, supplied: 12, ..sold_out.clone() };
    let full = Product { on_hand: u32::MAX - 5, supplied: u32::MAX, ..sold_out.clone() };
    let names = Names { state: stock_in, command: name_of_command, rejection: |no| format!("{no:?}") };
    let table = table(&[unlisted, sold_out, usual, full], &product_commands(), &names);
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("product", format!("free+reserved+sold=supplied, price, revision\n\n{table}"));
    });
}

#[test]
fn every_state_of_a_reservation_answers_every_command() {
    let names = Names {
        state: |reservation: &Reservation| reservation.status().to_owned(),
        command: |asked| match asked {
            ReservationCommand::Hold(_) => "Hold".to_owned(),
            ReservationCommand::Refuse => "Refuse".to_owned(),
            ReservationCommand::Sell => "Sell".to_owned(),
            ReservationCommand::Release => "Release".to_owned(),
        },
        rejection: |no| format!("{no:?}"),
    };
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("reservation", table(&reservations(), &reservation_commands(), &names));
    });
}

/// What is sold counts for ever; what is held, or never was, does not.
#[test]
fn only_reservations_that_are_over_may_leave_and_what_they_sold_is_carried() {
    let all = reservations();
    let over: Vec<_> = all.iter().filter(|one| one.is_finished()).map(Reservation::status).collect();
    assert_eq!(over, ["REFUSED", "SOLD", "RELEASED", "VOID"]);
    let carried: Vec<_> = all.iter().filter(|one| one.is_finished()).flat_map(Reservation::carried).collect();
    assert_eq!(carried, [("beans".to_owned(), 2)]);
}

/// Commands around what the usual product has: 5 on hand, 4 reserved, 3 sold.
pub fn product_commands() -> Vec<ProductCommand> {
    use ProductCommand as CommandKind;
    let low = CommandKind::Replenish { threshold: 6, amount: 10 };
    let next = |asked: &CommandKind| {
        Some(match asked {
            CommandKind::List(..) => CommandKind::Restock(10),
            CommandKind::Restock(_) => low.clone(),
            CommandKind::Replenish { threshold: 6, .. } => {
                CommandKind::Replenish { threshold: 5, amount: 10 }
            }
            CommandKind::Replenish { .. } => CommandKind::ChangePrice(listing().unit_price),
            CommandKind::ChangePrice(price) if *price == listing().unit_price => {
                CommandKind::ChangePrice(euros(1300))
            }
            CommandKind::ChangePrice(_) => CommandKind::Reserve(5),
            CommandKind::Reserve(5) => CommandKind::Reserve(6),
            CommandKind::Reserve(_) => CommandKind::Release(4),
            CommandKind::Release(4) => CommandKind::Release(5),
            CommandKind::Release(_) => CommandKind::Sell(4),
            CommandKind::Sell(4) => CommandKind::Sell(5),
            CommandKind::Sell(_) => CommandKind::PutBack(3),
            CommandKind::PutBack(3) => CommandKind::PutBack(6),
            CommandKind::PutBack(_) => return None,
        })
    };
    successors(Some(CommandKind::List(listing(), 12)), next).collect()
}

pub fn reservation_commands() -> Vec<ReservationCommand> {
    let next = |asked: &ReservationCommand| match asked {
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

fn name_of_command(asked: &ProductCommand) -> String {
    match asked {
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
