//! Pure: dead letters, messages about them, and operator commands.

mod message;
mod record;

pub use self::message::{
    DEAD_LETTER_TYPES, DeadLetterDiscarded, DeadLetterForgotten, DeadLetterMessage, DeadLetterResolved,
    DeadLetterRestored, OPERATOR_COMMANDS, OperatorCommand, OperatorCommandKind, OperatorMessage,
    ReplayEffect, ReplayRequested,
};
pub use self::record::{
    DeadLetterOrigin, DeadLetterStatus, DeadLettered, DeliveryInfo, EditedMessage, OriginalMessage,
    PACK_HEADER, StoredDeadLetter,
};
