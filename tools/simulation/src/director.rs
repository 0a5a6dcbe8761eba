//! Shell: the random events of a world while faults are on.

use std::time::Duration;

use bytes::Bytes;
use contract::money::{Currency, Money};
use inventory::domain::{Listing, ProductCommand};
use inventory::service::Command;
use jiff::{SignedDuration, Timestamp};
use payment::service::Refund;
use saga_core::input::Input;
use saga_core::message::Envelope;
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::store::roles::{Monitoring as _, Outbox as _, Retention as _};
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{RetentionCutoffs, TrimCutoffs};
use tokio::time::sleep;
use uuid::Uuid;

use crate::coverage::CoveragePoint;
use crate::deployment::AnyDeployment;
use crate::failure_reasons::forged;
use crate::invariants::BANK;
use crate::planted_fault::PlantedFault;
use crate::sim::ready;
use crate::world::World;

const EVENTS: usize = 130;
/// Event at which the broker loses its disk.
const DISK_LOST: usize = 65;
/// Event at which an operator republishes what was lost.
const LOSS_DETECTED: usize = 75;
/// Maximum pause between two events.
const PAUSE_MS: u64 = 1_300;
/// Maximum time until a redelivery, and minimum time for which an inbox mark is kept.
const MAX_REDELIVERY_TIME: Duration = Duration::from_secs(45);
/// Maximum difference of two clocks, by which a mark may look older.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(6);
/// Maximum time during which a client repeats a key.
const MAX_KEY_LIFETIME: Duration = Duration::from_secs(150);

impl World {
    /// Lists the products once all processes run.
    pub async fn list_products(&mut self) {
        sleep(Duration::from_secs(1)).await;
        for (sku, minor, pieces) in [("tea", 300, 6), ("cup", 500, 4), ("pot", 1_200, 1)] {
            let unit_price = Money::new(minor, Currency::EUR);
            let listing = Listing { name: sku.to_owned(), unit_price, replenish: false };
            let change = ProductCommand::List(listing, pieces);
            let id = self.sim.fresh_id();
            let command = Command { sku: sku.to_owned(), change, operator: None };
            if self.inventory.ask(&self.sim, (id, id), command, None).await.is_none() {
                self.sim.violation(format!("{sku} could not be listed"));
            }
        }
    }

    pub async fn run_events(&mut self) {
        self.start_faults();
        for event in 0..EVENTS {
            self.set_outages(event);
            self.lose_broker_disk(event);
            sleep(self.sim.up_to(PAUSE_MS)).await;
            while self.clients.try_join_next().is_some() {}
            match self.sim.below(100) {
                0..=17 => (0..self.sim.profile().burst).for_each(|_| self.place_order()),
                18..=23 => self.cancel_order(),
                24..=27 => self.refund_order(),
                28..=30 => self.change_product(),
                31..=39 => self.redeliver_random_message(),
                40..=44 => self.kill_process(),
                45 => sleep(Duration::from_secs(5) + self.sim.up_to(60_000)).await,
                46..=60 => self.act_on_dead_letter().await,
                61..=64 => self.extend_pending_order().await,
                _ => {}
            }
            self.inject_faults();
            if self.sim.chance(self.sim.profile().publish_rejected) {
                self.retry_rejected_entries();
            }
        }
        self.stop_faults();
    }

    fn set_outages(&self, event: usize) {
        let profile = self.sim.profile();
        self.sim.set_bank_away(profile.bank_away.is_on(event, EVENTS));
        let is_away = profile.broker_away.is_on(event, EVENTS);
        if self.broker.lock().is_away() != is_away {
            self.sim.note(|| format!("the broker is away: {is_away}"));
            self.broker.set_away(is_away);
        }
    }

    /// Loses all published messages; later an operator republishes them.
    fn lose_broker_disk(&self, event: usize) {
        if !self.sim.profile().disk_lost {
            return;
        }
        if event == DISK_LOST {
            self.sim.note(|| "the broker loses its disk".to_owned());
            self.broker.lock().lose_disk();
        }
        if event == LOSS_DETECTED && !self.sim.has(PlantedFault::LossNotRepublished) {
            for (name, store) in self.stores() {
                let count = republish(store);
                self.sim.note(|| format!("{name} republishes {count} messages"));
                self.sim.count_many(CoveragePoint::Republished, count);
            }
        }
    }

    /// Retries the outbox entries that the broker rejected, as an operator.
    pub fn retry_rejected_entries(&self) {
        for (name, store) in self.stores() {
            let count = ready(store.retry_failed_entries(None)).unwrap_or_default();
            if count > 0 {
                self.sim.note(|| format!("{name} retries {count} rejected entries"));
                self.sim.count_many(CoveragePoint::RejectedEntryRetried, count);
            }
        }
    }

    fn inject_faults(&mut self) {
        let profile = self.sim.profile().clone();
        if self.sim.chance(profile.poison) {
            self.publish_poison();
        }
        if self.sim.chance(profile.pauses) {
            self.pause_process();
        }
        if self.sim.chance(profile.cuts) {
            self.cut_off_process();
        }
        if self.sim.chance(profile.clock_jumps) {
            self.disturb_clock();
        }
        if self.sim.chance(profile.breaker_forced) {
            self.force_breaker();
        }
        if self.sim.chance(profile.trims) {
            self.trim();
        }
    }

    /// Publishes an unreadable message, half of the time with an envelope.
    fn publish_poison(&mut self) {
        let subjects = self.broker.lock().subjects();
        let (subject, id) = (subjects[self.sim.below(subjects.len())].clone(), self.sim.fresh_id());
        let payload = match self.forge(id, &subject) {
            Some(forged) => {
                *self.forged.entry(subject.clone()).or_default() += 1;
                forged
            }
            None => self.sim.one_of(&[&b"no message"[..], b"{}", b"", b"\xff\xfe"]).to_vec(),
        };
        self.sim.note(|| format!("poison on {subject}: {:?}", String::from_utf8_lossy(&payload)));
        self.broker.store(id, &subject, Bytes::from(payload), false);
    }

    fn forge(&self, id: Uuid, subject: &str) -> Option<Vec<u8>> {
        let kind = self.sim.below(6);
        let broker = self.broker.lock();
        let of_subject = broker.messages().iter().rev().filter(|stored| stored.subject == subject);
        let mut facts = of_subject.flat_map(|stored| stored.facts.iter().rev());
        let envelope = facts.find(|fact| Envelope::from_bytes(&fact.payload).is_ok())?;
        if kind < 3 { forged(&envelope.payload, id, kind) } else { None }
    }

    /// Refunds an order, as an operator.
    fn refund_order(&mut self) {
        let (sim, live) = (self.sim.clone(), self.payment.live.clone());
        let customers = self.customers.lock();
        let Some(order) = customers.orders.get(sim.below(customers.orders.len())).copied() else { return };
        if !sim.chance(40) {
            return;
        }
        self.clients.spawn(async move {
            sim.note(|| format!("operator refunds order {order}"));
            live.ask(&sim, Input::command(sim.fresh_id(), order, Refund { order, operator: None }, None))
                .await;
        });
    }

    /// Restocks a product or changes its price.
    fn change_product(&mut self) {
        let (sim, live) = (self.sim.clone(), self.inventory.live.clone());
        let sku = sim.one_of(&["tea", "cup", "pot"]).to_owned();
        let change = match sim.below(3) {
            0 => ProductCommand::Restock(1),
            1 => ProductCommand::Replenish { threshold: 1, amount: 2 },
            _ => {
                let minor = i64::try_from(100 + sim.below(900)).unwrap_or(100);
                ProductCommand::ChangePrice(Money::new(minor, Currency::EUR))
            }
        };
        self.clients.spawn(async move {
            sim.note(|| format!("{sku}: {change:?}"));
            let id = sim.fresh_id();
            live.ask(&sim, Input::command(id, id, Command { sku, change, operator: None }, None)).await;
        });
    }

    fn redeliver_random_message(&self) {
        let messages = self.broker.lock().messages().len();
        self.redeliver(self.sim.below(messages));
    }

    fn kill_process(&self) {
        let processes = self.processes();
        if self.sim.profile().dies > 0 {
            let process = &processes[self.sim.below(processes.len())];
            self.sim.note(|| format!("{} is killed", process.name()));
            process.kill();
        }
    }

    /// Pauses a process, sometimes until its leases expire.
    fn pause_process(&mut self) {
        let (processes, sim) = (self.processes(), self.sim.clone());
        let process = processes[sim.below(processes.len())].clone();
        let span = sim.up_to(sim.one_of(&[2_000, 15_000, 45_000]));
        sim.note(|| format!("{} is paused for {span:?}", process.name()));
        process.pause();
        self.clients.spawn(async move {
            sleep(span).await;
            process.resume();
        });
    }

    /// Cuts a process off from the broker for a while.
    fn cut_off_process(&mut self) {
        let (processes, sim, broker) = (self.processes(), self.sim.clone(), self.broker.clone());
        let process = processes[sim.below(processes.len())].clone();
        let span = sim.up_to(sim.one_of(&[2_000, 15_000, 45_000]));
        sim.note(|| format!("{} loses the broker for {span:?}", process.name()));
        process.set_cut_off(true);
        broker.wake_all();
        self.clients.spawn(async move {
            sleep(span).await;
            process.set_cut_off(false);
            broker.wake_all();
        });
    }

    /// Lets the broker's clock jump days ahead for seconds, or starts a process on a machine whose clock is.
    fn disturb_clock(&mut self) {
        let sim = self.sim.clone();
        if sim.is_any_clock_wrong() {
            return;
        }
        // Those that follow the broker's clock.
        let services = self.services().into_iter();
        let processes: Vec<_> = services.flat_map(|service| service.processes().to_vec()).collect();
        let offset = SignedDuration::from_hours(sim.one_of(&[48, 240]));
        self.sim.set_clock_wrong(true);
        if sim.below(2) == 0 {
            let process = processes[sim.below(processes.len())].clone();
            let (span, is_cut_off) = (sim.up_to(45_000), sim.below(2) == 0);
            sim.note(|| format!("{} restarts, its clock is {offset:#} ahead for {span:?}", process.name()));
            process.set_clock_offset(offset);
            process.set_cut_off(is_cut_off);
            self.broker.wake_all();
            process.kill();
            let broker = self.broker.clone();
            self.clients.spawn(async move {
                sleep(span).await;
                process.set_clock_offset(SignedDuration::ZERO);
                process.set_cut_off(false);
                broker.wake_all();
                sim.set_clock_wrong(false);
            });
            return;
        }
        // Shorter than the doubt about a jump that the clocks of machines confirm.
        let span = Duration::from_secs(3) + sim.up_to(20_000);
        let with_machines = sim.below(2) == 0;
        sim.note(|| {
            format!("the broker's clock jumps {offset:#} ahead for {span:?}, machines: {with_machines}")
        });
        sim.count(CoveragePoint::BrokerClockJumped);
        sim.set_broker_offset(offset);
        if with_machines {
            processes.iter().for_each(|process| process.jump_clock(offset));
        }
        self.clients.spawn(async move {
            sleep(span).await;
            sim.note(|| "the broker's clock is right again".to_owned());
            sim.set_broker_offset(SignedDuration::ZERO);
            processes.iter().for_each(|process| process.set_clock_jump(SignedDuration::ZERO));
            sim.set_clock_wrong(false);
        });
    }

    /// Forces a breaker and resets it later, as an operator.
    fn force_breaker(&mut self) {
        let (sim, step) = (self.sim.clone(), self.sim.one_of(&Self::all_steps()).name);
        let name = if sim.below(4) == 0 { BANK } else { step };
        let action = sim.one_of(&[BreakerAction::Open, BreakerAction::Open, BreakerAction::Closed]);
        sim.note(|| format!("operator forces breaker {name}: {action:?}"));
        sim.count(CoveragePoint::BreakerForced);
        let services = self.services().map(AnyDeployment::boxed);
        self.clients.spawn(async move {
            for action in [action, BreakerAction::Reset] {
                services.iter().for_each(|service| service.set_breaker(&sim, name, action));
                sleep(sim.up_to(12_000)).await;
            }
        });
    }

    /// Purges finished entries that no redelivery or repetition can need.
    fn trim(&mut self) {
        let age = self.sim.age();
        let stats = self.stores().map(|(_, store)| ready(store.stats()).unwrap_or_default());
        let unsettled = stats.iter().filter_map(|stats| self.sim.age_at(stats.outbox_oldest?));
        let in_flight = unsettled.chain(self.broker.lock().oldest_pending()).min().unwrap_or(age);
        let finished = age.saturating_sub(MAX_REDELIVERY_TIME).min(in_flight);
        let Some(mut inbox) = finished.checked_sub(MAX_CLOCK_DIFFERENCE) else { return };
        let mut keys = age.saturating_sub(MAX_KEY_LIFETIME);
        if self.sim.has(PlantedFault::InboxTrimmedTooEarly) {
            inbox = age;
        } else {
            self.trimmed_until = self.trimmed_until.max(finished);
        }
        if self.sim.has(PlantedFault::KeyForgottenTooEarly) {
            keys = age;
        }
        let cutoffs =
            TrimCutoffs { inbox: self.sim.at(inbox), keys: self.sim.at(keys), published: self.sim.at(inbox) };
        // The laws read complete histories.
        let before = RetentionCutoffs {
            history: Timestamp::MIN,
            began: Timestamp::MIN,
            dead_letters: self.sim.at(inbox),
        };
        let purge = |store: &SqliteStore| {
            let batch = ready(store.find_purgeable(before, 100)).unwrap_or_default();
            ready(store.purge(batch)).unwrap_or(0)
        };
        let trim = |store: &SqliteStore| ready(store.trim(cutoffs, 100)).unwrap_or(0);
        let purged: u64 = self.stores().into_iter().map(|(_, store)| trim(store) + purge(store)).sum();
        self.sim.note(|| format!("{purged} finished entries are purged"));
        self.sim.count_many(CoveragePoint::Trimmed, purged);
    }
}

/// Republishes everything, in small pages.
fn republish(store: &SqliteStore) -> u64 {
    let (mut count, mut after) = (0, 0);
    loop {
        let marked = ready(store.republish(Timestamp::MIN, after, 10)).unwrap_or_default();
        let Some(last) = marked.last else { return count };
        (count, after) = (count + marked.count as u64, last);
    }
}
