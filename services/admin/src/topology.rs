//! Pure: the name of the admin service, and the messages that it consumes.

use contract::FactType::{
    DeadlineExtended, OrderCancelled, OrderConfirmed, OrderCreated, PaymentFailed, PaymentProcessed,
    PaymentRefunded, PaymentVoided, StockReleased, StockReservationFailed, StockReserved,
};
use saga_core::dead_letter::DEAD_LETTER_TYPES;
use saga_core::service::{Step, Subscription};

pub const NAME: &str = "admin";

/// Messages that the admin service consumes: facts of sagas, and reports of dead letters.
pub static STEPS: [Step; 2] = [
    Step::new(
        "admin-saga-view",
        &[
            Subscription::to(
                "order",
                &[
                    OrderCreated.message_type(),
                    OrderConfirmed.message_type(),
                    OrderCancelled.message_type(),
                    DeadlineExtended.message_type(),
                ],
            ),
            Subscription::to(
                "inventory",
                &[
                    StockReserved.message_type(),
                    StockReservationFailed.message_type(),
                    StockReleased.message_type(),
                ],
            ),
            Subscription::to(
                "payment",
                &[
                    PaymentProcessed.message_type(),
                    PaymentFailed.message_type(),
                    PaymentRefunded.message_type(),
                    PaymentVoided.message_type(),
                ],
            ),
        ],
    ),
    Step::new(
        "admin-dead-letters",
        &[
            Subscription::to("order", &DEAD_LETTER_TYPES),
            Subscription::to("inventory", &DEAD_LETTER_TYPES),
            Subscription::to("payment", &DEAD_LETTER_TYPES),
            Subscription::to("admin", &DEAD_LETTER_TYPES),
        ],
    ),
];
