//! Shell: the parcels example: two services on one broker, a carrier that fails, and an operator.
//!
//! Run it with `cargo run -p saga-engine --example parcels [nats://HOST:PORT]`, one at a time on one broker.

mod domain;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use saga_core::dead_letter::{DeadLetterMessage, DeadLetterStatus, DeadLettered, ReplayRequested};
use saga_core::{Service, operator::Operator, waiting::Task};
use saga_engine::host::embedded::{self, Database};
use saga_engine::runtime::task_runner::{CallFailed, NoTasks, TaskHandler};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::domain::{Courier, Depot, Fact, Parcel, ParcelCommand};

/// Simulated carrier, which fails in three ways. Maps each parcel to its van; `None` is final: rejected or released.
#[derive(Default)]
struct Carrier {
    places: Mutex<BTreeMap<Uuid, Option<String>>>,
    is_mended: Mutex<bool>,
}

impl TaskHandler for Carrier {
    fn dependency(&self) -> &'static str {
        "carrier"
    }
    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        Box::pin(async { self.answer(task).map(|fact| json!(fact)) })
    }
}

impl Carrier {
    fn answer(&self, task: &Task) -> Result<Fact, CallFailed> {
        let failed = |why: &str, is_final| {
            Err(CallFailed { context: why.into(), is_final, retry_after: None, source: None })
        };
        let (mut places, is_broken) = (self.places.lock(), !*self.is_mended.lock());
        match serde_json::from_str(&task.payload) {
            Ok(Fact::ParcelBooked { parcel, to }) => {
                let place = || (to != "Utopia").then(|| format!("the van to {to}"));
                match places.entry(parcel).or_insert_with(place).clone() {
                    _ if to == "Lyon" && task.attempts == 0 => failed("the line went dead", false),
                    _ if to == "Oslo" && is_broken => failed("the answer makes no sense", true),
                    Some(slot) => Ok(Fact::SlotBooked { parcel, slot }),
                    None => Ok(Fact::SlotRefused { parcel }),
                }
            }
            Ok(Fact::ParcelCancelled { parcel, .. }) if is_broken && places.get(&parcel) != Some(&None) => {
                failed("the answer makes no sense", true)
            }
            Ok(Fact::ParcelCancelled { parcel, .. }) => {
                places.insert(parcel, None);
                Ok(Fact::SlotReleased { parcel })
            }
            Ok(_) | Err(_) => failed("nothing to ask of a carrier", true),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("NATS_URL").ok());
    let story = story(url.as_deref().unwrap_or("nats://127.0.0.1:4222"));
    tokio::time::timeout(Duration::from_secs(60), story)
        .await
        .context("the example did not finish within a minute")?
}

async fn story(url: &str) -> anyhow::Result<()> {
    let bus = embedded::connect(url, &[Depot::NAME, Courier::NAME, Operator::<Fact>::NAME]).await?;
    let (folder, carrier) = (tempfile::tempdir()?, Arc::new(Carrier::default()));
    // A new folder for each run, so that it works on any broker.
    let database = Database::New(folder.path());
    let depot = embedded::start(Depot, Arc::new(NoTasks), database, &bus).await?;
    let courier = embedded::start(Courier, carrier.clone(), database, &bus).await?;
    let operator = embedded::start(Operator::<Fact>::new(), Arc::new(NoTasks), database, &bus).await?;

    let book = async |to: &str, seconds| {
        let (parcel, deadline) = (Uuid::now_v7(), Timestamp::now() + SignedDuration::from_secs(seconds));
        let command = (parcel, ParcelCommand::Book { to: to.to_owned(), deadline });
        depot.engine.execute(parcel, command, None).await.map(|_| parcel)
    };
    let (lyon, utopia, oslo) = (book("Lyon", 60).await?, book("Utopia", 60).await?, book("Oslo", 1).await?);

    depot.wait_for_row::<Parcel>(lyon, |parcel| matches!(parcel, Parcel::Dispatched { .. })).await?;
    println!("Lyon: the line to the carrier went dead, it was asked again, and the parcel is on its van");
    depot.wait_for_row::<Parcel>(utopia, |parcel| *parcel == Parcel::Returned).await?;
    println!("Utopia: the carrier does not go there, the parcel was cancelled and returned");

    depot.wait_for_row::<Parcel>(oslo, |parcel| matches!(parcel, Parcel::Cancelled { .. })).await?;
    let parked = courier.wait_for_dead_letters(oslo, DeadLetterStatus::Pending, 2).await?;
    ensure!(carrier.places.lock()[&oslo].is_some(), "the carrier forgot the place on the van to Oslo");
    let steps = parked.iter().map(|dead| format!("{} ({})", dead.step, dead.reason)).collect::<Vec<_>>();
    println!("Oslo: the deadline passed, the place is still taken; dead letters: {}", steps.join(", "));
    *carrier.is_mended.lock() = true;
    for DeadLettered { id, service, .. } in parked {
        let replay = ReplayRequested { dead_letter: id, service, revision: 1, edited: None };
        operator.engine.execute(id, DeadLetterMessage::ReplayRequested(replay), None).await?;
    }
    depot.wait_for_row::<Parcel>(oslo, |parcel| *parcel == Parcel::Returned).await?;
    courier.wait_for_dead_letters(oslo, DeadLetterStatus::Resolved, 2).await?;
    println!("Oslo: the carrier was mended, an operator replayed both, and the place was given back");

    let taken: Vec<_> = carrier.places.lock().values().flatten().cloned().collect();
    ensure!(taken == ["the van to Lyon"], "places still taken at the carrier: {taken:?}");
    Ok(())
}
