//! Pure: what the bank's tests ask it for.

use bank::domain::Asked;
use bank::policy::{Answer, BankService, Command, CommandKind, reference};
use contract::money::{Currency, Money};
use uuid::Uuid;

use saga_engine::testing::ServiceUnderTest;

pub const CHARGE: Uuid = Uuid::from_u128(1);
pub const LIMIT_MAJOR: i64 = 10_000;

pub fn bank() -> ServiceUnderTest<BankService> {
    ServiceUnderTest::of(BankService { limit_major: LIMIT_MAJOR })
}

pub fn asked(token: &str, amount_minor: i64) -> Asked {
    let (amount, reference) = (Money::new(amount_minor, Currency::EUR), "order 1".to_owned());
    Asked { amount, token: token.to_owned(), reference }
}

pub fn capture(asked: Asked) -> Command {
    Command { charge: CHARGE, kind: CommandKind::Capture(asked) }
}

/// A capture that the bank is told to decline.
pub fn decline(asked: Asked) -> Command {
    Command { charge: CHARGE, kind: CommandKind::Decline(asked) }
}

pub fn refund() -> Command {
    Command { charge: CHARGE, kind: CommandKind::Refund }
}

pub fn reverse() -> Command {
    Command { charge: CHARGE, kind: CommandKind::Reverse }
}

/// The answer to a captured charge.
pub fn captured(is_first: bool) -> Answer {
    Answer::Captured { reference: reference(CHARGE), is_first }
}
