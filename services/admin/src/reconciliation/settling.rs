//! Shell: what does not add up of some orders now, which whoever settles them outside accepts: that, and no more.

use std::collections::{BTreeMap, BTreeSet};

use contract::manual_resolution::Accepted;
use saga_engine::host::http::Problem;
use saga_engine::host::queries::MAX_IDS;
use saga_engine::runtime::clock::Clock as _;
use uuid::Uuid;

use super::account::Account;
use super::answers::Asking;
use super::ledgers::Ledgers;
use super::report::baselines;
use super::settled::accepted;
use super::under_way::Unanswered;
use crate::AdminApp;
use crate::other_services::OtherServices;

/// What is known of an order that is to be settled.
pub(crate) struct Known {
    /// What does not add up of it.
    pub(crate) accepted: Vec<Accepted>,
    /// Whether payment asks the bank, or is to, for something that is not settled.
    pub(crate) has_open_call: bool,
}

/// What is known of each of these orders.
///
/// # Errors
/// 503 when a service does not answer: what is not known cannot be accepted.
pub(crate) async fn known_of(
    app: &AdminApp,
    services: &OtherServices,
    orders: &BTreeSet<Uuid>,
) -> Result<BTreeMap<Uuid, Known>, Problem> {
    let baselines = baselines(app).await?;
    let orders: Vec<Uuid> = orders.iter().copied().collect();
    let mut all = BTreeMap::new();
    for orders in orders.chunks(MAX_IDS) {
        let asking = Asking::at_once(app, services);
        let keys: Vec<String> = orders.iter().map(Uuid::to_string).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let accounts = asking.fresh(&keys, &[]).await.map_err(unknown)?.accounts;
        let ordered = accounts.values().filter_map(|account| account.order.as_ref());
        let skus: BTreeSet<&str> =
            ordered.flat_map(|order| order.lines.iter().map(|line| line.sku.as_str())).collect();
        let skus: Vec<&str> = skus.into_iter().collect();
        let copies = asking.fresh(&[], &skus).await.map_err(unknown)?.copies;
        let mut ledgers = Ledgers::new(app.clock.now(), baselines.clone());
        copies.into_iter().for_each(|copy| ledgers.copy(copy));
        let nothing = Account::default();
        for (order, key) in orders.iter().zip(keys) {
            all.insert(*order, known(accounts.get(key).unwrap_or(&nothing), &ledgers));
        }
    }
    Ok(all)
}

fn unknown(Unanswered { service, why }: Unanswered) -> Problem {
    Problem::unavailable(format!("what is settled must be known first, and {service} did not tell: {why}"), 1)
}

fn known(account: &Account, ledgers: &Ledgers) -> Known {
    let found = account.found(ledgers.standard());
    Known { accepted: found.iter().map(accepted).collect(), has_open_call: account.has_open_call() }
}
