//! Steps, their consumers, and the one in which an engine hears operators.

use std::convert::Infallible;

use saga_core::row::{RowKey, RowKind};
use saga_core::service::{Refusal, Service, Step, Subscription, steps_of};
use saga_core::unit_of_work::UnitOfWork;

#[test]
fn a_step_that_hears_two_services_has_a_consumer_for_each() {
    static TWO: [Subscription; 2] = [Subscription::to("order", &[]), Subscription::to("payment", &[])];
    static ONE: [Subscription; 1] = [Subscription::to("order", &[])];
    let (two, one) = (Step::new("watching", &TWO), Step::new("watching", &ONE));
    assert_eq!(TWO.map(|it| two.durable(&it)), ["watching-order", "watching-payment"]);
    assert_eq!(one.durable(&ONE[0]), "watching");
}

/// What operators want of one service's dead letters is for that service alone: no other hears it.
#[test]
fn an_engine_hears_the_commands_that_are_said_to_its_service() {
    let [operations] = steps_of::<Quiet>()[..] else { panic!("one step, which nobody declared") };
    assert_eq!((operations.name, operations.is_for_operators()), ("quiet-operations", true));
    let [commands] = operations.hears else { panic!("one subscription") };
    let suffixes = ["replay_requested", "dead_letter_discarded", "dead_letter_restored"];
    assert_eq!(commands.subjects("quiet"), suffixes.map(|suffix| format!("admin.{suffix}.quiet")));
    assert_eq!(
        (commands.stream().as_str(), &operations.durable(commands)[..]),
        ("ADMIN", "quiet-operations")
    );
}

/// A service that nobody can ask for anything.
struct Quiet;

impl Service for Quiet {
    const NAME: &'static str = "quiet";
    const OPERATOR: Option<&'static str> = Some("admin");
    type Fact = Infallible;
    type Command = Infallible;
    type Reply = ();
    type Rejection = Infallible;

    fn rows() -> Vec<RowKind> {
        vec![]
    }

    fn rows_of_command(&self, command: &Infallible) -> Vec<RowKey> {
        match *command {}
    }

    fn execute(
        &self,
        command: &Infallible,
        _: &mut UnitOfWork<'_, Infallible>,
    ) -> Result<(), Refusal<Infallible>> {
        match *command {}
    }
}
