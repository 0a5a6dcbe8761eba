//! Shell: the discrepancies that a manual resolution of orders accepts.

use std::collections::{BTreeMap, BTreeSet};

use contract::manual_resolution::Accepted;
use saga_engine::host::http::Problem;
use saga_engine::host::queries::MAX_IDS;
use saga_engine::runtime::clock::Clock as _;
use uuid::Uuid;

use super::reconcile::baselines;
use super::request::Request;
use crate::app::AdminApp;
use crate::ledgers::account::Account;
use crate::ledgers::resolved::accepted;
use crate::ledgers::totals::Ledgers;
use crate::service_client::ServiceClient;
use admin_api::reconciliation::Unanswered;

/// State of an order that is to be resolved manually.
pub(crate) struct OrderState {
    /// Current discrepancies.
    pub(crate) accepted: Vec<Accepted>,
    /// True if payment calls the bank, or is to.
    pub(crate) has_open_call: bool,
}

/// Reads the state of orders.
///
/// # Errors
/// Returns 503 when a service does not answer, as unknown discrepancies cannot be accepted.
pub(crate) async fn states_of(
    app: &AdminApp,
    services: &ServiceClient,
    orders: &BTreeSet<Uuid>,
) -> Result<BTreeMap<Uuid, OrderState>, Problem> {
    let baselines = baselines(app).await?;
    let orders: Vec<Uuid> = orders.iter().copied().collect();
    let losses = Request::without_wait(app, services).stats().await.losses();
    let mut all = BTreeMap::new();
    for orders in orders.chunks(MAX_IDS) {
        let request = Request::without_wait(app, services);
        let keys: Vec<String> = orders.iter().map(Uuid::to_string).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let accounts = request.fresh(&keys, &[]).await.map_err(unknown)?.accounts;
        let ordered = accounts.values().filter_map(|account| account.order.as_ref());
        let skus: BTreeSet<&str> =
            ordered.flat_map(|order| order.lines.iter().map(|line| line.sku.as_str())).collect();
        let skus: Vec<&str> = skus.into_iter().collect();
        let copies = request.fresh(&[], &skus).await.map_err(unknown)?.copies;
        let mut ledgers = Ledgers::new(app.clock.now(), baselines.clone()).after_losses(losses.clone());
        copies.into_iter().for_each(|copy| ledgers.copy(copy));
        let nothing = Account::default();
        for (order, key) in orders.iter().zip(keys) {
            all.insert(*order, state_of(accounts.get(key).unwrap_or(&nothing), &ledgers));
        }
    }
    Ok(all)
}

fn unknown(Unanswered { service, why }: Unanswered) -> Problem {
    Problem::unavailable(
        format!("the current discrepancies are needed, and {service} did not answer: {why}"),
        1,
    )
}

fn state_of(account: &Account, ledgers: &Ledgers) -> OrderState {
    let found = account.violations(ledgers.reference());
    OrderState { accepted: found.iter().map(accepted).collect(), has_open_call: account.has_open_call() }
}
