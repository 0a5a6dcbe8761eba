//! Pure: the name of the admin service, and the messages that it consumes.

use std::sync::LazyLock;

use contract::fact::FactRole;
use contract::{Fact, FactType, topology};
use saga_core::dead_letter::{DEAD_LETTER_TYPES, OperatorMessage};
use saga_core::service::{Step, Subscription};

pub const NAME: &str = topology::OPERATOR;

/// Facts of the shop, and the engine's own messages.
pub type AdminMessage = OperatorMessage<Fact>;

/// Messages that the admin service consumes: facts of sagas, changes by operators, and reports of dead letters, of every
/// service.
pub static STEPS: LazyLock<[Step; 3]> = LazyLock::new(|| {
    let facts = |wanted: fn(FactRole) -> bool| {
        let others = topology::producers().filter(|producer| *producer != NAME);
        let subscriptions = others.filter_map(move |producer| {
            let facts = FactType::published_by(producer).filter(|fact| wanted(fact.role()));
            let types: Vec<_> = facts.map(FactType::message_type).collect();
            (!types.is_empty()).then(|| Subscription::to(producer, types.leak()))
        });
        subscriptions.collect::<Vec<_>>().leak()
    };
    let dead_letters = topology::producers().map(|producer| Subscription::to(producer, &DEAD_LETTER_TYPES));
    // Leaked once: steps live as long as the process.
    [
        Step::new("admin-saga-view", facts(|role| matches!(role, FactRole::Progress | FactRole::Setback))),
        Step::new("admin-audit-log", facts(|role| role == FactRole::Audit)),
        Step::new("admin-dead-letters", dead_letters.collect::<Vec<_>>().leak()),
    ]
});
