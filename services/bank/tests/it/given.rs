//! Pure: requests for the tests of the bank.

use bank::domain::ChargeRequest;
use bank::ledger::bank_reference;
use bank::service::{Answer, BankService, Command, CommandKind};
use contract::money::{Currency, Money};
use uuid::Uuid;

use saga_engine::testing::ServiceUnderTest;

pub const CHARGE: Uuid = Uuid::from_u128(1);
pub const LIMIT_MAJOR: i64 = 10_000;

pub fn bank() -> ServiceUnderTest<BankService> {
    ServiceUnderTest::of(BankService { limit_major: LIMIT_MAJOR })
}

pub fn request(token: &str, amount_minor: i64) -> ChargeRequest {
    let (amount, reference) = (Money::new(amount_minor, Currency::EUR), "order 1".to_owned());
    ChargeRequest { amount, token: token.to_owned(), reference }
}

pub fn capture(request: ChargeRequest) -> Command {
    Command { charge: CHARGE, kind: CommandKind::Capture(request) }
}

/// A capture that an injected fault declines.
pub fn decline(request: ChargeRequest) -> Command {
    Command { charge: CHARGE, kind: CommandKind::Decline(request) }
}

pub fn refund() -> Command {
    Command { charge: CHARGE, kind: CommandKind::Refund }
}

pub fn reverse() -> Command {
    Command { charge: CHARGE, kind: CommandKind::Reverse }
}

pub fn close() -> Command {
    Command { charge: CHARGE, kind: CommandKind::Close }
}

/// Answer to a captured charge.
pub fn captured(is_new: bool) -> Answer {
    Answer::Captured { reference: bank_reference(CHARGE), is_new }
}
