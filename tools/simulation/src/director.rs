//! Shell: what happens in a world while it is rough, one thing after another, at times that chance decides.

use std::time::Duration;

use bytes::Bytes;
use contract::money::{Currency, Money};
use inventory::domain::{Listing, ProductCommand};
use inventory::policy::Command;
use jiff::Timestamp;
use payment::policy::Refund;
use saga_core::input::Input;
use saga_core::message::Envelope;
use saga_engine::runtime::admission::BreakerAction;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Cutoffs, Departures, Store as _};
use tokio::time::sleep;
use uuid::Uuid;

use crate::endings::Ending;
use crate::reasons::forged;
use crate::sabotage::Sabotage;
use crate::sim::ready;
use crate::watch::BANK;
use crate::world::World;

/// Things that happen before the world comes to rest.
const HAPPENINGS: usize = 130;
/// Which of them is the loss of the broker's disk.
const DISK_LOST: usize = 65;
/// Which of them is the operator who has seen it.
const LOSS_SEEN: usize = 75;
/// Time between two of them, at most.
const PAUSE_MS: u64 = 1_300;
/// A redelivery takes no longer than this, whatever happens: how long an inbox mark is kept at least.
const LONGEST_REDELIVERY: Duration = Duration::from_secs(45);
/// A mark may have been made under a clock that is so far behind.
const CLOCKS_DIFFER: Duration = Duration::from_secs(6);
/// A client repeats a key no longer than this.
const LONGEST_REPETITION: Duration = Duration::from_secs(150);

impl World {
    /// Lists what can be ordered, as soon as everybody lives.
    pub async fn list_products(&mut self) {
        sleep(Duration::from_secs(1)).await;
        for (sku, minor, pieces) in [("tea", 300, 6), ("cup", 500, 4), ("pot", 1_200, 1)] {
            let unit_price = Money::new(minor, Currency::EUR);
            let listing = Listing { name: sku.to_owned(), unit_price, replenish: false };
            let asked = ProductCommand::List(listing, pieces);
            let id = self.sim.fresh_id();
            let command = Command { sku: sku.to_owned(), asked };
            if self.inventory.ask(&self.sim, (id, id), command, None).await.is_none() {
                self.sim.object(format!("{sku} could not be listed"));
            }
        }
    }

    pub async fn live(&mut self) {
        self.get_rough();
        for happening in 0..HAPPENINGS {
            self.set_outages(happening);
            self.lose_the_disk(happening);
            sleep(self.sim.up_to(PAUSE_MS)).await;
            while self.people.try_join_next().is_some() {}
            match self.sim.below(100) {
                0..=17 => self.place_an_order(),
                18..=23 => self.cancel_an_order(),
                24..=27 => self.refund_something(),
                28..=30 => self.change_a_product(),
                31..=39 => self.deliver_something_again(),
                40..=44 => self.kill_somebody(),
                45 => sleep(Duration::from_secs(5) + self.sim.up_to(60_000)).await,
                46..=60 => self.operate().await,
                _ => {}
            }
            self.go_wrong();
            if self.sim.chance(self.sim.weather().refuses) {
                self.retry_refused();
            }
        }
        self.get_calm();
    }

    fn set_outages(&self, happening: usize) {
        let weather = self.sim.weather();
        self.sim.set_bank_away(weather.bank_away.is_on(happening, HAPPENINGS));
        let is_away = weather.broker_away.is_on(happening, HAPPENINGS);
        if self.broker.lock().is_away() != is_away {
            self.sim.note(|| format!("the broker is away: {is_away}"));
            self.broker.set_away(is_away);
        }
    }

    /// What was published is gone, and an operator has it published again.
    fn lose_the_disk(&self, happening: usize) {
        if !self.sim.weather().disk_lost {
            return;
        }
        if happening == DISK_LOST {
            self.sim.note(|| "the broker loses its disk".to_owned());
            self.broker.lock().lose_everything();
        }
        if happening == LOSS_SEEN && !self.sim.has(Sabotage::LossNotMadeGood) {
            for (name, store) in self.stores() {
                let count = republish(store);
                self.sim.note(|| format!("{name} publishes {count} again"));
                self.sim.count_many(Ending::Republished, count);
            }
        }
    }

    /// An operator has everything tried again that the broker has refused.
    pub fn retry_refused(&self) {
        for (name, store) in self.stores() {
            let count = ready(store.retry_failed(None)).unwrap_or_default();
            if count > 0 {
                self.sim.note(|| format!("{name} tries {count} again that were refused"));
                self.sim.count_many(Ending::RefusedAndRetried, count);
            }
        }
    }

    fn go_wrong(&mut self) {
        let weather = self.sim.weather().clone();
        if self.sim.chance(weather.poison) {
            self.publish_poison();
        }
        if self.sim.chance(weather.pauses) {
            self.stop_somebody();
        }
        if self.sim.chance(weather.breaker_forced) {
            self.force_a_breaker();
        }
        if self.sim.chance(weather.trims) {
            self.trim();
        }
    }

    /// Somebody publishes something that nobody can read: half of the time something with an envelope.
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
        let mut of_subject = broker.messages().iter().rev().filter(|stored| stored.subject == subject);
        let envelope = of_subject.find(|stored| Envelope::from_bytes(&stored.payload).is_ok())?;
        if kind < 3 { forged(&envelope.payload, id, kind) } else { None }
    }

    /// An operator gives money back, out of kindness.
    fn refund_something(&mut self) {
        let (sim, doors) = (self.sim.clone(), self.payment.doors.clone());
        let customers = self.customers.lock();
        let Some(order) = customers.orders.get(sim.below(customers.orders.len())).copied() else { return };
        if !sim.chance(40) {
            return;
        }
        self.people.spawn(async move {
            sim.note(|| format!("the money of order {order} is to go back"));
            doors.ask(&sim, Input::command(sim.fresh_id(), order, Refund { order }, None)).await;
        });
    }

    /// More pieces come in, or the price changes.
    fn change_a_product(&mut self) {
        let (sim, doors) = (self.sim.clone(), self.inventory.doors.clone());
        let sku = sim.one_of(&["tea", "cup", "pot"]).to_owned();
        let asked = match sim.below(3) {
            0 => ProductCommand::Restock(1),
            1 => ProductCommand::Replenish { threshold: 1, amount: 2 },
            _ => {
                let minor = i64::try_from(100 + sim.below(900)).unwrap_or(100);
                ProductCommand::ChangePrice(Money::new(minor, Currency::EUR))
            }
        };
        self.people.spawn(async move {
            sim.note(|| format!("{sku}: {asked:?}"));
            let id = sim.fresh_id();
            doors.ask(&sim, Input::command(id, id, Command { sku, asked }, None)).await;
        });
    }

    fn deliver_something_again(&self) {
        let messages = self.broker.lock().messages().len();
        self.deliver_again(self.sim.below(messages));
    }

    fn kill_somebody(&self) {
        let processes = self.processes();
        if self.sim.weather().dies > 0 {
            let process = &processes[self.sim.below(processes.len())];
            self.sim.note(|| format!("{} is killed", process.name()));
            process.kill();
        }
    }

    /// A process stands still so long that its leases lapse, now and then.
    fn stop_somebody(&mut self) {
        let (processes, sim) = (self.processes(), self.sim.clone());
        let process = processes[sim.below(processes.len())].clone();
        let span = sim.up_to(sim.one_of(&[2_000, 15_000, 45_000]));
        sim.note(|| format!("{} stands still for {span:?}", process.name()));
        process.pause();
        self.people.spawn(async move {
            sleep(span).await;
            process.resume();
        });
    }

    /// An operator thinks better of it after a while.
    fn force_a_breaker(&mut self) {
        let (sim, step) = (self.sim.clone(), self.sim.one_of(&Self::all_steps()).name);
        let name = if sim.below(4) == 0 { BANK } else { step };
        let action = sim.one_of(&[BreakerAction::Open, BreakerAction::Open, BreakerAction::Closed]);
        sim.note(|| format!("the breaker {name} is forced: {action:?}"));
        sim.count(Ending::BreakerForced);
        let all = (
            self.order.doors.clone(),
            self.inventory.doors.clone(),
            self.payment.doors.clone(),
            self.admin.doors.clone(),
        );
        self.people.spawn(async move {
            for action in [action, BreakerAction::Reset] {
                all.0.turn_breaker(&sim, name, action);
                all.1.turn_breaker(&sim, name, action);
                all.2.turn_breaker(&sim, name, action);
                all.3.turn_breaker(&sim, name, action);
                sleep(sim.up_to(12_000)).await;
            }
        });
    }

    /// What is finished is trimmed, but for what a redelivery or a repetition may still ask for.
    fn trim(&mut self) {
        let age = self.sim.age();
        let stats = self.stores().map(|(_, store)| ready(store.stats()).unwrap_or_default());
        let unsettled = stats.iter().filter_map(|stats| self.sim.age_at(stats.outbox_oldest?));
        let under_way = unsettled.chain(self.broker.lock().oldest_on_its_way()).min().unwrap_or(age);
        let finished = age.saturating_sub(LONGEST_REDELIVERY).min(under_way);
        let Some(mut inbox) = finished.checked_sub(CLOCKS_DIFFER) else { return };
        let mut keys = age.saturating_sub(LONGEST_REPETITION);
        if self.sim.has(Sabotage::InboxTrimmedTooEarly) {
            inbox = age;
        } else {
            self.trimmed_until = self.trimmed_until.max(finished);
        }
        if self.sim.has(Sabotage::KeyForgottenTooEarly) {
            keys = age;
        }
        let cutoffs =
            Cutoffs { inbox: self.sim.at(inbox), keys: self.sim.at(keys), published: self.sim.at(inbox) };
        // The laws read whole histories.
        let before =
            Departures { history: Timestamp::MIN, began: Timestamp::MIN, dead_letters: self.sim.at(inbox) };
        let depart = |store: &SqliteStore| {
            let leaving = ready(store.departures(before, 100)).unwrap_or_default();
            ready(store.depart(leaving)).unwrap_or(0)
        };
        let trim = |store: &SqliteStore| ready(store.trim(cutoffs, 100)).unwrap_or(0);
        let gone: u64 = self.stores().into_iter().map(|(_, store)| trim(store) + depart(store)).sum();
        self.sim.note(|| format!("{gone} finished entries are trimmed"));
        self.sim.count_many(Ending::Trimmed, gone);
    }
}

/// Has everything published again that ever was, a few at a time.
fn republish(store: &SqliteStore) -> u64 {
    let (mut count, mut after) = (0, 0);
    loop {
        let marked = ready(store.republish(Timestamp::MIN, after, 10)).unwrap_or_default();
        let Some(last) = marked.last else { return count };
        (count, after) = (count + marked.count as u64, last);
    }
}
