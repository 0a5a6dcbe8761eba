//! Pure: the laws that the simulation checks, with number and name.

use strum::Display;

/// A law, as comments and violations name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum Law {
    #[strum(serialize = "law 2 (every message is processed, waiting or dead-lettered)")]
    NoMessageLost,
    #[strum(serialize = "while one replica reaches broker and database, the outbox empties")]
    OutboxEmpties,
    #[strum(serialize = "law 3 (every order ends, with its stock and its money)")]
    OrderEnds,
    #[strum(serialize = "law 4 (one charge per order)")]
    OneCharge,
    #[strum(serialize = "law 5 (no oversell)")]
    NoOversell,
    #[strum(serialize = "law 6 (a rejection is not a fault)")]
    RejectionIsNoFault,
    #[strum(serialize = "law 7 (an outage consumes no attempts and makes no dead letters)")]
    OutageCostsNothing,
    #[strum(serialize = "law 8 (a replay reaches only its step, and is never swallowed)")]
    ReplayReachesItsStep,
}
