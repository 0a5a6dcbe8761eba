//! Shell: the topology, compared with what each program declares.

use contract::FactType;
use contract::topology::{OPERATOR, PARTICIPANTS, Participant, named};
use saga_core::service::Service;

/// Compares the topology of a program with its steps and default settings.
#[track_caller]
fn declares<S: Service>(defaults: &str, calls: &[&str]) {
    let Participant { port, has_stream, calls: known_calls, .. } = named(S::NAME).expect("it is listed");
    for subscription in S::steps().iter().flat_map(|step| step.consumes) {
        for fact in subscription.types.iter().filter_map(|consumed| FactType::named(consumed.name)) {
            assert_eq!(fact.producer(), subscription.producer, "{} consumes {fact:?}", S::NAME);
        }
    }
    assert_eq!(S::OPERATOR.is_some(), *has_stream, "{} has a stream", S::NAME);
    assert!(defaults.contains(&format!(":{port}\"")), "{} listens on {port}:\n{defaults}", S::NAME);
    assert_eq!(&calls, known_calls, "{} calls", S::NAME);
}

#[test]
fn topology_matches_declared_programs() {
    declares::<order::service::OrderService>(order::program().defaults, &[]);
    declares::<inventory::service::InventoryService>(inventory::program().defaults, &[]);
    declares::<payment::service::PaymentService>(payment::program().defaults, &["bank"]);
    declares::<bank::service::BankService>(bank::program().defaults, &[]);
    let others: Vec<_> =
        PARTICIPANTS.iter().map(|other| other.name).filter(|name| *name != OPERATOR).collect();
    declares::<admin::service::AdminService>(admin::program().defaults, &others);
}
