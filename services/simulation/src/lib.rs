//! Shell: the whole system in one thread: the real engine core, relay, domains and SQLite store under a seeded
//! scheduler that reorders, repeats, loses, crashes and delays, and then checks the laws.
//!
//! A seed is the whole input: the same seed gives the same run. [`world`] is what can happen, [`node`] one
//! service in it, `network` what lies between, [`broker`] the stream between them, [`laws`] what must hold in the end, [`sabotage`] faults
//! that must be found.

pub mod broker;
pub mod laws;
mod network;
pub mod node;
pub mod sabotage;
pub mod world;

pub use sabotage::Sabotage;

/// How often each ending was reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endings {
    /// Orders confirmed.
    pub confirmed: u64,
    /// Orders cancelled for want of stock.
    pub out_of_stock: u64,
    /// Orders cancelled because the payment failed.
    pub payment_failed: u64,
    /// Orders cancelled by their deadline.
    pub timed_out: u64,
    /// Orders cancelled by their customer.
    pub customer_request: u64,
    /// Reservations whose cancellation came first.
    pub stock_void: u64,
    /// Payments whose cancellation came first.
    pub payment_void: u64,
    /// Payments cancelled while the bank was asked, whose capture went back.
    pub doomed_and_refunded: u64,
    /// Captures of cancelled orders that went back.
    pub refunded: u64,
    /// Charges reversed because the bank never answered clearly.
    pub reversed: u64,
    /// Messages tried again because something had to come first.
    pub retried: u64,
    /// Dead letters.
    pub parked: u64,
}

impl Endings {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts_mut().into_iter().zip(other.clone().counts_mut()) {
            *count.1 += *more.1;
        }
    }

    /// Endings that were never reached.
    #[must_use]
    pub fn missing(&mut self) -> Vec<&'static str> {
        self.counts_mut().into_iter().filter(|(_, count)| **count == 0).map(|(name, _)| name).collect()
    }

    fn counts_mut(&mut self) -> [(&'static str, &mut u64); 12] {
        [
            ("confirmed", &mut self.confirmed),
            ("out_of_stock", &mut self.out_of_stock),
            ("payment_failed", &mut self.payment_failed),
            ("timed_out", &mut self.timed_out),
            ("customer_request", &mut self.customer_request),
            ("stock_void", &mut self.stock_void),
            ("payment_void", &mut self.payment_void),
            ("doomed_and_refunded", &mut self.doomed_and_refunded),
            ("refunded", &mut self.refunded),
            ("reversed", &mut self.reversed),
            ("retried", &mut self.retried),
            ("parked", &mut self.parked),
        ]
    }
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// Laws that did not hold, each with what broke it.
    pub broken: Vec<String>,
    /// Endings reached.
    pub endings: Endings,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, sabotage: Sabotage, trace: bool) -> RunResult {
    let mut world = world::World::new(seed, sabotage, trace);
    world.live();
    world.come_to_rest();
    laws::check(&world)
}
