//! Shell: the reconciliation raises no false alarm: an idle world has no discrepancies but those of discarded
//! or edited messages. The laws about orders and stock themselves are in `ledgers`.

use admin::ledgers::accounts::{Accounts, Pages};
use admin::ledgers::rules::Rule;
use admin::ledgers::totals::Ledgers;
use admin_api::reconciliation::Discrepancy;
use bank::domain::Charge;
use contract::saga_view::SagaView;
use inventory::domain::{Product, Reservation};
use jiff::Timestamp;
use order::catalogue::CatalogueItem;
use order::domain::Order;
use payment::domain::Payment;
use saga_core::decider::Decider;
use saga_core::query::{FoundRow, Query};
use saga_core::row::{RowKey, WithHistory};
use saga_engine::store::roles::{Queries as _, Verification as _};
use saga_engine::store::sqlite::SqliteStore;
use uuid::Uuid;

use super::dead_letters::{sagas_discarded, sagas_edited, skus_discarded};
use super::messages::service_stats;
use crate::sim::ready;
use crate::world::World;

/// Entries per page; few, so that every ledger has several pages.
const PAGE: usize = 3;

/// Databases of all services.
pub struct Databases<'a> {
    pub order: &'a SqliteStore,
    pub inventory: &'a SqliteStore,
    pub payment: &'a SqliteStore,
    pub bank: &'a SqliteStore,
    pub admin: &'a SqliteStore,
}

/// Runs the reconciliation on the idle world.
pub fn check_no_false_alarm(world: &World) {
    let databases = Databases {
        order: world.order.store(),
        inventory: world.inventory.store(),
        payment: world.payment.store(),
        bank: world.bank.store(),
        admin: world.admin.store(),
    };
    let mut ledgers = ready(reconcile(&databases, world.sim.now()));
    ledgers.messages(&service_stats(world));
    let (discarded, edited, skus) = (sagas_discarded(world), sagas_edited(world), skus_discarded(world));
    let is_excused = |found: &Discrepancy| {
        let is_copy = found.rule == Rule::CopyIsCatalogue.text() && skus.contains(&found.subject);
        // A correct finding: an operator has changed the lines.
        let is_of_lines = found.rule == Rule::LinesAgree.text();
        let is_by_operator =
            |order: Uuid| discarded.contains(&order) || (is_of_lines && edited.contains(&order));
        found.subject.parse().is_ok_and(is_by_operator) || is_copy
    };
    for found in ledgers.finish().discrepancies.listed.iter().filter(|found| !is_excused(found)) {
        let Discrepancy { rule, subject, detail, .. } = found;
        world.sim.violation(format!("the reconciliation: {rule}: {subject}: {detail}"));
    }
}

/// Reconciles databases, without message counts, and verifies their rows.
///
/// # Panics
///
/// If a database cannot be read.
pub async fn reconcile(databases: &Databases<'_>, at: Timestamp) -> Ledgers {
    let Databases { order, inventory, payment, bank, admin } = databases;
    let mut ledgers = Ledgers::new(at, [].into());
    let copies = read::<CatalogueItem, _>(order, &mut ledgers, |row, it| {
        Some(order::ledger::copy_entry(&row.id, &it.state, &it.events))
    });
    copies.await.into_iter().for_each(|copy| ledgers.copy(copy));
    let stock = read::<Product, _>(inventory, &mut ledgers, |row, it| {
        Some(inventory::ledger::stock_entry(&row.id, row.version, &it.state))
    });
    stock.await.into_iter().for_each(|stock| ledgers.stock(stock));
    let orders = read::<Order, _>(order, &mut ledgers, |row, it| {
        order::ledger::ledger_entry(row.id.parse().ok()?, &it.state, &it.events)
    });
    let orders = orders.await;
    let reservations = read::<Reservation, _>(inventory, &mut ledgers, |row, it| {
        Some(inventory::ledger::reservation_entry(row.id.parse().ok()?, &it.state, &it.events))
    });
    let reservations = reservations.await;
    let payments = read::<Payment, _>(payment, &mut ledgers, |row, it| {
        Some(payment::ledger::ledger_entry(row.id.parse().ok()?, &it.state, &it.events))
    });
    let payments = payments.await;
    let charges = read::<Charge, _>(bank, &mut ledgers, |row, it| {
        Some(bank::ledger::ledger_entry(row.id.parse().ok()?, &it.state, &it.events))
    });
    let mut charges = charges.await;
    charges.retain(|charge| charge.amount.is_some());
    charges.sort_by_key(|charge| charge.reference.clone());
    let views = read::<SagaView, _>(admin, &mut ledgers, |row, it| Some((row.id.clone(), it.state)));
    let views = views.await;

    let (mut orders, mut reservations) = (orders.into_iter(), reservations.into_iter());
    let (mut payments, mut views) = (payments.into_iter(), views.into_iter());
    let mut accounts = Accounts::default();
    loop {
        while accounts.want_more() {
            add_page(&mut accounts.orders, &mut orders);
            add_page(&mut accounts.reservations, &mut reservations);
            add_page(&mut accounts.payments, &mut payments);
            add_page(&mut accounts.views, &mut views);
            if accounts.charges.wants_more() {
                accounts.charges.take(std::mem::take(&mut charges), None);
            }
        }
        let Some((key, account)) = accounts.pop() else { break };
        ledgers.account(&key, &account);
    }
    let stores =
        [("order", order), ("inventory", inventory), ("payment", payment), ("bank", bank), ("admin", admin)];
    for (name, store) in stores {
        let report = store.verify().await.expect("a database can be read");
        ledgers.rows(name, report.rows, &report.differing);
    }
    ledgers
}

/// Ledger entries of all rows of a kind. Unreadable rows become discrepancies.
async fn read<D: Decider, T>(
    store: &SqliteStore,
    ledgers: &mut Ledgers,
    entry: impl Fn(&FoundRow, WithHistory<D>) -> Option<T>,
) -> Vec<T> {
    const MAX_ROWS: usize = 10_000;
    let query = Query { limit: MAX_ROWS, ..Query::default() };
    let rows = store.find(D::KIND, query).await.expect("a database can be read");
    assert!(rows.len() < MAX_ROWS, "more rows of {} than are compared", D::KIND);
    let mut entries = Vec::new();
    for row in rows {
        let history = store.events(RowKey::of::<D>(&row.id), 0, usize::MAX).await;
        let history = history.expect("a database can be read");
        match WithHistory::of(&row.state, &history).and_then(|it| entry(&row, it)) {
            Some(entry) => entries.push(entry),
            None => ledgers.unreadable(D::KIND, &[format!("{}/{}", D::KIND, row.id)]),
        }
    }
    entries
}

/// Adds a page if one is requested. Any cursor means that another follows.
fn add_page<T>(pages: &mut Pages<T>, rest: &mut impl ExactSizeIterator<Item = T>) {
    if pages.wants_more() {
        let page = rest.take(PAGE).collect();
        pages.take(page, (rest.len() > 0).then(String::new));
    }
}
