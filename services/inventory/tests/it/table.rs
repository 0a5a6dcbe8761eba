//! Pure: each state × command of products and reservations, printed.
//!
//! The lists are complete: a new variant fails to compile in the `match` that walks them.

use std::iter::successors;

use contract::order::StockLine;
use inventory::domain::{Product, ProductCommand, Reservation, ReservationCommand};

use crate::given::{euros, listing};
use saga_core::decider::Decider as _;
use saga_engine::testing::decider::{Names, table};

#[test]
fn product_state_table() {
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
fn reservation_state_table() {
    let names = Names {
        state: |reservation: &Reservation| reservation.status().to_owned(),
        command: |change| match change {
            ReservationCommand::Reserve(_) => "Reserve".to_owned(),
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

/// Sold pieces stay counted after a purge; open and refused reservations have none.
#[test]
fn only_ended_reservations_may_be_purged_and_sold_pieces_are_carried_over() {
    let all = reservations();
    let over: Vec<_> = all.iter().filter(|one| one.is_finished()).map(Reservation::status).collect();
    assert_eq!(over, ["REFUSED", "SOLD", "RELEASED", "VOID"]);
    let carried: Vec<_> =
        all.iter().filter(|one| one.is_finished()).flat_map(Reservation::purged_sums).collect();
    assert_eq!(carried, [("beans".to_owned(), 2)]);
}

/// Commands around the usual product: 5 on hand, 4 reserved, 3 sold.
pub fn product_commands() -> Vec<ProductCommand> {
    use ProductCommand as CommandKind;
    let low = CommandKind::Replenish { threshold: 6, amount: 10 };
    let next = |change: &CommandKind| {
        Some(match change {
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
    let next = |change: &ReservationCommand| match change {
        ReservationCommand::Reserve(_) => Some(ReservationCommand::Refuse),
        ReservationCommand::Refuse => Some(ReservationCommand::Sell),
        ReservationCommand::Sell => Some(ReservationCommand::Release),
        ReservationCommand::Release => None,
    };
    successors(Some(ReservationCommand::Reserve(lines())), next).collect()
}

fn reservations() -> Vec<Reservation> {
    let next = |reservation: &Reservation| match reservation {
        Reservation::New => Some(Reservation::Reserved(lines())),
        Reservation::Reserved(_) => Some(Reservation::Refused),
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

/// Prints every field: a new one fails to compile here.
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

fn name_of_command(change: &ProductCommand) -> String {
    match change {
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
