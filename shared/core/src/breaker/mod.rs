//! Pure: circuit breakers, and the difference between a failed call and an unavailable dependency.

#[expect(clippy::module_inception, reason = "the breaker is the file that one looks for here")]
mod breaker;
mod outage;
mod policy;
mod view;
mod window;

pub use self::breaker::{Breaker, Permit, Recorded, State, Transition, Verdict};
pub use self::outage::OutageDetector;
pub use self::policy::BreakerPolicy;
pub use self::view::{BreakerAction, BreakerView, TransitionView};
pub use self::window::Window;
