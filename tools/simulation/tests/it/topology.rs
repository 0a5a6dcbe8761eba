//! Shell: the topology, compared with what each program declares.

use std::collections::BTreeSet;

use contract::FactType;
use contract::topology::{PARTICIPANTS, Participant};
use saga_core::service::{Service, Step};

/// Compares the topology of a program with its steps and default settings.
#[track_caller]
fn declares<S: Service>(steps: &[Step], defaults: &str, calls: &[&str]) {
    let known = PARTICIPANTS.iter().find(|participant| participant.name == S::NAME);
    let Participant { port, has_stream, consumes, calls: known_calls, .. } = known.expect("it is listed");
    let heard: BTreeSet<_> =
        steps.iter().flat_map(|step| step.consumes).map(|heard| heard.producer).collect();
    assert_eq!(heard, consumes.iter().copied().collect(), "{} hears", S::NAME);
    for subscription in steps.iter().flat_map(|step| step.consumes) {
        for fact in subscription.types.iter().filter_map(|heard| FactType::named(heard.name)) {
            assert_eq!(fact.producer(), subscription.producer, "{} hears {fact:?}", S::NAME);
        }
    }
    assert_eq!(S::OPERATOR.is_some(), *has_stream, "{} has a stream", S::NAME);
    assert!(defaults.contains(&format!(":{port}\"")), "{} listens on {port}:\n{defaults}", S::NAME);
    assert_eq!(&calls, known_calls, "{} calls", S::NAME);
}

#[test]
fn topology_matches_declared_programs() {
    declares::<order::service::OrderService>(&order::STEPS, order::program().defaults, &[]);
    declares::<inventory::service::InventoryService>(&inventory::STEPS, inventory::program().defaults, &[]);
    declares::<payment::service::PaymentService>(&payment::STEPS, payment::program().defaults, &["bank"]);
    declares::<bank::service::BankService>(&[], bank::program().defaults, &[]);
    let others: Vec<_> =
        PARTICIPANTS.iter().map(|other| other.name).filter(|name| *name != "admin").collect();
    declares::<admin::policy::AdminService>(&admin::STEPS, admin::program().defaults, &others);
}
