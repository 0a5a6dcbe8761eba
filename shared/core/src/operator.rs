//! Pure: a service that only publishes operator commands, for systems without one of their own.

use std::convert::Infallible;
use std::marker::PhantomData;

use crate::dead_letter::{DeadLetterMessage, OperatorMessage};
use crate::message::Message;
use crate::service::{HandlerError, Service};
use crate::unit_of_work::UnitOfWork;

/// Publishes each command that it gets and stores nothing.
///
/// The caller names the dead letter and numbers the commands about it
/// ([`OperatorCommand::revision`](crate::dead_letter::OperatorCommand::revision)). `F` is the type of the system's
/// facts.
pub struct Operator<F>(PhantomData<fn() -> F>);

impl<F> Operator<F> {
    /// Creates the service. It has no state.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<F> Default for Operator<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Message> Service for Operator<F> {
    const NAME: &'static str = "operator";
    type Fact = OperatorMessage<F>;
    type Command = DeadLetterMessage;
    type Reply = ();
    type Rejection = Infallible;

    fn on_command(
        &self,
        command: &DeadLetterMessage,
        work: &mut UnitOfWork<'_, OperatorMessage<F>>,
    ) -> Result<(), HandlerError<Infallible>> {
        work.publish(command.clone());
        Ok(())
    }
}
