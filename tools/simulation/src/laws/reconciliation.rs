//! Shell: the reconciliation raises no false alarm: an idle world has no discrepancies but those of discarded
//! or edited messages. The laws about orders and stock themselves are in `ledgers`.

use admin::ledgers::account::Account;
use admin::ledgers::accounts::Accounts;
use admin::ledgers::rules::Rule;
use admin::ledgers::totals::Ledgers;
use admin_api::reconciliation::Discrepancy;
use bank::domain::Charge;
use contract::saga_view::SagaView;
use inventory::domain::{Product, Reservation};
use order::catalogue::CatalogueItem;
use order::domain::Order;
use payment::domain::Payment;
use saga_core::decider::Decider;
use saga_core::row::{PastEvent, WithHistory};
use saga_engine::store::roles::Verification as _;
use saga_engine::store::sqlite::SqliteStore;
use uuid::Uuid;

use super::dead_letters::{sagas_discarded, sagas_edited, skus_discarded};
use super::messages::service_stats;
use crate::sim::ready;
use crate::world::{World, history, rows};

/// Entries per page; few, so that every ledger has several pages.
const PAGE: usize = 3;

/// Runs the reconciliation on the idle world.
pub fn check_no_false_alarm(world: &World) {
    let (discarded, skus) = (sagas_discarded(world), skus_discarded(world));
    let mut ledgers = Ledgers::new(world.sim.now(), [].into());
    for (sku, WithHistory { state, events }) in with_history::<CatalogueItem>(world.order.store()) {
        ledgers.copy(order::ledger::copy_entry(&sku, &state, &events));
    }
    for (sku, product) in rows::<Product>(world.inventory.store()) {
        ledgers.stock(inventory::ledger::stock_entry(&sku, 1, &product));
    }
    for (key, account) in accounts(world) {
        ledgers.account(&key, &account);
    }
    ledgers.messages(&service_stats(world));
    for (name, store) in world.stores().into_iter().chain([("bank", world.bank.store())]) {
        let report = ready(store.verify()).unwrap_or_default();
        ledgers.rows(name, report.rows, &report.differing);
    }
    let edited = sagas_edited(world);
    let is_excused = |found: &Discrepancy| {
        let is_copy = found.rule == Rule::CopyIsCatalogue.text() && skus.contains(&found.subject);
        // A correct finding: an operator has changed the lines.
        let is_of_lines = found.rule == Rule::LinesAgree.text();
        let is_mans_doing =
            |order: Uuid| discarded.contains(&order) || (is_of_lines && edited.contains(&order));
        found.subject.parse().is_ok_and(is_mans_doing) || is_copy
    };
    for found in ledgers.finish().discrepancies.listed.iter().filter(|found| !is_excused(found)) {
        let Discrepancy { rule, subject, detail, .. } = found;
        world.sim.violation(format!("the reconciliation: {rule}: {subject}: {detail}"));
    }
}

fn accounts(world: &World) -> Vec<(String, Account)> {
    let orders = with_history::<Order>(world.order.store());
    let orders = orders
        .iter()
        .filter_map(|(id, it)| order::ledger::ledger_entry(id.parse().ok()?, &it.state, &it.events));
    let reservations = with_history::<Reservation>(world.inventory.store());
    let reservations = reservations.iter().filter_map(|(id, it)| {
        Some(inventory::ledger::reservation_entry(id.parse().ok()?, &it.state, &it.events))
    });
    let payments = with_history::<Payment>(world.payment.store());
    let payments = payments
        .iter()
        .filter_map(|(id, it)| Some(payment::ledger::ledger_entry(id.parse().ok()?, &it.state, &it.events)));
    let charges = with_history::<Charge>(world.bank.store());
    let charges = charges
        .iter()
        .filter_map(|(id, it)| Some(bank::ledger::ledger_entry(id.parse().ok()?, &it.state, &it.events)));
    let mut charges: Vec<_> = charges.filter(|charge| charge.amount.is_some()).collect();
    charges.sort_by_key(|charge| charge.reference.clone());

    let (mut orders, mut reservations) = (orders.peekable(), reservations.peekable());
    let (mut payments, mut views) =
        (payments.peekable(), rows::<SagaView>(world.admin.store()).into_iter().peekable());
    let (mut merged, mut all) = (Accounts::default(), Vec::new());
    loop {
        while merged.want_more() {
            hand(&mut merged.orders, &mut orders);
            hand(&mut merged.reservations, &mut reservations);
            hand(&mut merged.payments, &mut payments);
            hand(&mut merged.views, &mut views);
            if merged.charges.wants_more() {
                merged.charges.take(std::mem::take(&mut charges), None);
            }
        }
        match merged.pop() {
            Some(account) => all.push(account),
            None => return all,
        }
    }
}

/// Passes on a page if one is requested. Any cursor means that another follows.
fn hand<T>(
    pages: &mut admin::ledgers::accounts::Pages<T>,
    rest: &mut std::iter::Peekable<impl Iterator<Item = T>>,
) {
    if pages.wants_more() {
        let page = rest.by_ref().take(PAGE).collect();
        pages.take(page, rest.peek().map(|_| String::new()));
    }
}

fn with_history<D: Decider>(store: &SqliteStore) -> Vec<(String, WithHistory<D>)> {
    let read = |(id, state): (String, D)| {
        let events = PastEvent::of(&history::<D>(store, &id));
        (id, WithHistory { state, events })
    };
    rows::<D>(store).into_iter().map(read).collect()
}
