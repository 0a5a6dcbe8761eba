//! Dead letters: what nobody could handle, parked for a human; what operators may ask of it, and what comes of that.

mod message;
mod parked;

pub use self::message::{
    DEAD_LETTER_TYPES, DeadLetterDiscarded, DeadLetterForgotten, DeadLetterMessage, DeadLetterResolved,
    DeadLetterRestored, OPERATOR_COMMANDS, OperatorCommand, OperatorCommandKind, OperatorMessage,
    ReplayEffect, ReplayRequested,
};
pub use self::parked::{
    DeadLetterOrigin, DeadLetterStatus, DeadLettered, Delivery, EditedMessage, OriginalMessage, PACK_HEADER,
    StoredDeadLetter,
};
