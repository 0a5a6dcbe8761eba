//! Shell: what an operator asks of admin: to see what is stuck or parked, and to mend it.
//!
//! Every command asks [`Admin`], and shows the answer: as it came with `--json`, else for people.

// What was parked, and how it is handed back, one by one or in bulk.
mod dead_letter;
mod dlq;
mod redrive;

// What is to be seen and done beside.
mod audit_log;
mod breakers;
mod faults;
mod notifications;
mod outbox;
mod saga;

// Manual resolution.
mod resolution;

use std::process::ExitCode;

use clap::Subcommand;

use crate::admin::{Admin, OrList};

/// What to ask of admin.
#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// Dead letters: list, look at, replay, edit, discard, resolve
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Redrives: bulk replays that watch themselves (start one with dlq redrive)
    #[command(subcommand)]
    Redrive(redrive::RedriveCommand),
    /// Sagas: where each stands, what it waits for
    #[command(subcommand)]
    Saga(saga::SagaCommand),
    /// Calls of payment to the bank: resolve one manually, or withdraw that
    #[command(subcommand)]
    Payment(resolution::PaymentCommand),
    /// Circuit breakers: list them; open, close or reset one
    Breakers(OrList<breakers::BreakerCommand>),
    /// Planted faults: list them; inject or clear some
    Faults(OrList<faults::FaultCommand>),
    /// What waits to be published; try again what was given up
    Outbox(OrList<outbox::OutboxCommand, outbox::OutboxOptions>),
    /// Notifications: what was sent, and whether it was delivered; send a test
    Notifications(OrList<notifications::NotificationCommand>),
    /// The audit log: who did what, newest first; --operator NAME shows only theirs
    Log(OrList<audit_log::LogCommand, audit_log::LogOptions>),
}

/// Runs one; `admin` is only made when somebody is to be asked. `named` is who was named as the operator.
pub async fn run(
    command: OperatorCommand,
    admin: impl FnOnce() -> anyhow::Result<Admin>,
    named: Option<String>,
) -> anyhow::Result<ExitCode> {
    match command {
        OperatorCommand::Dlq(command) => dlq::run(&admin()?, command).await,
        OperatorCommand::Redrive(command) => redrive::run(&admin()?, command).await,
        OperatorCommand::Saga(command) => saga::run(&admin()?, command).await,
        OperatorCommand::Payment(command) => resolution::run(&admin()?, command).await,
        OperatorCommand::Breakers(command) => breakers::run(&admin()?, command).await,
        OperatorCommand::Faults(command) => faults::run(admin, command).await,
        OperatorCommand::Outbox(command) => outbox::run(&admin()?, command).await,
        OperatorCommand::Notifications(command) => notifications::run(&admin()?, command).await,
        OperatorCommand::Log(command) => audit_log::run(&admin()?, command, named).await,
    }
}
