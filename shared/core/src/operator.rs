//! Pure: a service that does nothing but say what operators ask: for systems that have no such service of their own.

use std::convert::Infallible;
use std::marker::PhantomData;

use crate::dead_letter::{DeadLetterMessage, OperatorMessage};
use crate::message::Message;
use crate::service::{HandlerError, Service};
use crate::unit_of_work::UnitOfWork;

/// Says what it is asked to say, and keeps nothing: who asks must know the dead letter and number the commands about
/// it ([`OperatorCommand::revision`](crate::dead_letter::OperatorCommand::revision)). `F` is the facts of the system.
pub struct Operator<F>(PhantomData<fn() -> F>);

impl<F> Operator<F> {
    /// For a system with these facts.
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
