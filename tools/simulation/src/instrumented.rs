//! Shell: a service wrapped for observation, whose handlers a planted fault may override.

use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::UnitOfWork;
use saga_core::message::Received;
use saga_core::row::{RowKey, RowKind};
use saga_core::service::{HandlerError, HandlerResult, Service, Step, TaskResult};

use crate::journal::BatchInputs;

/// Replaces the reaction to a message, to plant a fault; `None` keeps the original.
pub type HandlerOverride<S> = fn(
    &Received<<S as Service>::Fact>,
    &mut UnitOfWork<'_, <S as Service>::Fact>,
) -> Option<HandlerResult<S>>;

pub struct Instrumented<S: Service> {
    pub inner: S,
    pub handler_override: Option<HandlerOverride<S>>,
    /// Planted fault: runs every task, also if it is no longer needed.
    pub needs_all_tasks: bool,
    /// Planted fault: loads only the rows that a message names.
    pub ignores_additional_rows: bool,
    /// Inputs of the current batch so far.
    pub batch: Arc<Mutex<BatchInputs>>,
}

impl<S: Service> Service for Instrumented<S> {
    const NAME: &'static str = S::NAME;
    const OPERATOR: Option<&'static str> = S::OPERATOR;
    type Fact = S::Fact;
    type Command = S::Command;
    type Reply = S::Reply;
    type Rejection = S::Rejection;

    fn rows() -> Vec<RowKind> {
        S::rows()
    }

    fn steps() -> &'static [Step] {
        S::steps()
    }

    fn rows_of_command(&self, command: &S::Command) -> Vec<RowKey> {
        self.inner.rows_of_command(command)
    }

    fn on_command(
        &self,
        command: &S::Command,
        work: &mut UnitOfWork<'_, S::Fact>,
    ) -> Result<S::Reply, HandlerError<S::Rejection>> {
        self.batch.lock().commands += 1;
        self.inner.on_command(command, work)
    }

    fn rows_of_message(&self, message: &Received<S::Fact>) -> Vec<RowKey> {
        self.inner.rows_of_message(message)
    }

    fn additional_rows(
        &self,
        message: &Received<S::Fact>,
        work: &mut UnitOfWork<'_, S::Fact>,
    ) -> Vec<RowKey> {
        if self.ignores_additional_rows { vec![] } else { self.inner.additional_rows(message, work) }
    }

    fn on_message(
        &self,
        step: &'static Step,
        message: &Received<S::Fact>,
        work: &mut UnitOfWork<'_, S::Fact>,
    ) -> HandlerResult<Self> {
        let overridden = self.handler_override.and_then(|handler_override| handler_override(message, work));
        overridden.unwrap_or_else(|| self.inner.on_message(step, message, work))
    }

    fn rows_of_result(&self, result: &TaskResult<'_>) -> Vec<RowKey> {
        self.inner.rows_of_result(result)
    }

    fn is_task_needed(&self, result: &TaskResult<'_>, work: &mut UnitOfWork<'_, S::Fact>) -> bool {
        self.needs_all_tasks || self.inner.is_task_needed(result, work)
    }

    fn on_task_result(
        &self,
        result: &TaskResult<'_>,
        work: &mut UnitOfWork<'_, S::Fact>,
    ) -> HandlerResult<Self> {
        self.batch.lock().results += 1;
        self.inner.on_task_result(result, work)
    }

    fn on_deadline(&self, row: &RowKey, work: &mut UnitOfWork<'_, S::Fact>) -> HandlerResult<Self> {
        self.batch.lock().due += 1;
        self.inner.on_deadline(row, work)
    }
}
