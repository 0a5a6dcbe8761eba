//! Shell: commands that admin carries out: dead letters, sagas, breakers, faults, outboxes, notifications, the audit log.

// Dead letters, one by one and in bulk.
mod dead_letter;
mod dlq;
mod redrive;

// Sagas and payments, and manual resolution.
mod payment;
mod resolution;
mod saga;

// Other state of the system.
mod audit_log;
mod breakers;
mod faults;
mod notifications;
mod outbox;

use std::process::ExitCode;

use clap::Subcommand;

use crate::admin::{Admin, OrList};

#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// Dead letters: list, show, replay, edit, discard, resolve
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Redrives: replays of many dead letters with a canary, a rate and an automatic stop (dlq redrive starts one)
    #[command(subcommand)]
    Redrive(redrive::RedriveCommand),
    /// Sagas: list, show, extend deadlines, resolve
    #[command(subcommand)]
    Saga(saga::SagaCommand),
    /// Payments: show one with its charge at the bank, resolve its open call manually
    #[command(subcommand)]
    Payment(payment::PaymentCommand),
    /// Circuit breakers: list, open, close, reset
    Breakers(OrList<breakers::BreakerCommand>),
    /// Injected faults: list, inject, clear
    Faults(OrList<faults::FaultCommand>),
    /// Unpublished outbox entries: list, retry; publish messages again that the broker lost
    Outbox(OrList<outbox::OutboxCommand>),
    /// Notifications: list with their delivery, send a test
    Notifications(OrList<notifications::NotificationCommand>),
    /// Audit log: changes with operator, reason and outcome, newest first
    Log(OrList<audit_log::LogCommand, audit_log::LogOptions>),
}

/// Runs a command; `admin` creates the client.
pub async fn run(
    command: OperatorCommand,
    admin: impl FnOnce() -> anyhow::Result<Admin>,
) -> anyhow::Result<ExitCode> {
    match command {
        OperatorCommand::Dlq(command) => dlq::run(&admin()?, command).await,
        OperatorCommand::Redrive(command) => redrive::run(&admin()?, command).await,
        OperatorCommand::Saga(command) => saga::run(&admin()?, command).await,
        OperatorCommand::Payment(command) => payment::run(&admin()?, command).await,
        OperatorCommand::Breakers(command) => breakers::run(&admin()?, command).await,
        OperatorCommand::Faults(command) => faults::run(admin, command).await,
        OperatorCommand::Outbox(command) => outbox::run(&admin()?, command).await,
        OperatorCommand::Notifications(command) => notifications::run(&admin()?, command).await,
        OperatorCommand::Log(command) => audit_log::run(&admin()?, command).await,
    }
}
