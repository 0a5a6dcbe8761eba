//! Pure: charges as the reconciliation of a merchant sees them.

use contract::reconciliation::{ChargeEntry, ChargeState};
use saga_core::row::PastEvent;
use uuid::Uuid;

use crate::domain::{Charge, ChargeEvent};

/// Builds the ledger entry of a charge.
#[must_use]
pub fn ledger_entry(id: Uuid, charge: &Charge, history: &[PastEvent<ChargeEvent>]) -> ChargeEntry {
    let state = match charge {
        Charge::Captured(_) => ChargeState::Captured,
        Charge::Refunded(_) => ChargeState::Refunded,
        Charge::New | Charge::FailedOnce | Charge::Refused(..) | Charge::Blocked => ChargeState::None,
    };
    let request = charge.request();
    let amount = request.map(|request| request.amount);
    let (mut captured, mut refunded) = (Vec::new(), Vec::new());
    for PastEvent { event, .. } in history {
        match event {
            ChargeEvent::Captured(request) => captured.push(request.amount),
            ChargeEvent::Refunded => refunded.extend(amount),
            ChargeEvent::FailedOnce | ChargeEvent::Refused(..) | ChargeEvent::Blocked => {}
        }
    }
    ChargeEntry {
        charge: id,
        id: bank_reference(id),
        reference: request.map(|request| request.reference.clone()).unwrap_or_default(),
        state,
        amount,
        captured,
        refunded,
    }
}

/// The bank's id of a charge.
#[must_use]
pub fn bank_reference(charge: Uuid) -> String {
    format!("ch_{}", charge.simple())
}
