//! Pure: a service that somebody has tampered with, to plant a fault.

use shared::row::{RowKey, RowKind};
use shared::service::{Heard, Refusal, Service, Step};
use shared::unit::Unit;

/// Changes how a service reacts, to plant a fault; `None` lets it react as it does.
pub type Tamper<S> = fn(
    &Heard<'_, <S as Service>::Command>,
    &mut Unit<'_>,
) -> Option<Result<<S as Service>::Reply, Refusal<<S as Service>::Rejection>>>;

/// A service that may have been tampered with.
pub struct Tampered<S: Service> {
    /// The service.
    pub inner: S,
    /// The fault.
    pub tamper: Option<Tamper<S>>,
}

impl<S: Service> Service for Tampered<S> {
    const NAME: &'static str = S::NAME;
    type Command = S::Command;
    type Reply = S::Reply;
    type Rejection = S::Rejection;

    fn rows() -> Vec<RowKind> {
        S::rows()
    }

    fn steps() -> &'static [Step] {
        S::steps()
    }

    fn reads(&self, heard: &Heard<'_, S::Command>) -> Vec<RowKey> {
        self.inner.reads(heard)
    }

    fn react(
        &self,
        heard: &Heard<'_, S::Command>,
        unit: &mut Unit<'_>,
    ) -> Result<S::Reply, Refusal<S::Rejection>> {
        let tampered = self.tamper.and_then(|tamper| tamper(heard, unit));
        tampered.unwrap_or_else(|| self.inner.react(heard, unit))
    }
}
