//! Pure: ledger entries of charges.

use bank::domain::Charge;
use bank::ledger::{bank_reference, ledger_entry};
use bank::service::Command;
use contract::reconciliation::ChargeState;

use crate::given::{CHARGE, bank, capture, refund, request, reverse};

#[test]
fn ledger_entry_lists_captures_and_refunds() {
    let fine = || capture(request("tok_ok", 3300));
    let (amount, none) = (vec![request("tok_ok", 3300).amount], vec![]);
    let cases: [(Vec<Command>, _, _, _); 6] = [
        (vec![], ChargeState::None, &none, &none),
        (vec![fine()], ChargeState::Captured, &amount, &none),
        (vec![fine(), refund()], ChargeState::Refunded, &amount, &amount),
        (vec![capture(request("tok_declined", 3300))], ChargeState::None, &none, &none),
        (vec![reverse()], ChargeState::None, &none, &none),
        (
            vec![capture(request("tok_error_once", 3300)), capture(request("tok_error_once", 3300))],
            ChargeState::Captured,
            &amount,
            &none,
        ),
    ];
    for (commands, state, captured, refunded) in cases {
        let mut bank = bank();
        for command in &commands {
            bank.executes(command.clone());
        }
        let charge = bank.row::<Charge>(CHARGE);
        let entry = ledger_entry(CHARGE, &charge, &bank.history::<Charge>(CHARGE));
        assert_eq!((entry.charge, &entry.id), (CHARGE, &bank_reference(CHARGE)));
        assert_eq!(
            (entry.state, &entry.captured, &entry.refunded),
            (state, captured, refunded),
            "{commands:?}"
        );
        assert_eq!(entry.amount, charge.request().map(|request| request.amount));
        assert_eq!(entry.reference, charge.request().map_or("", |_| "order 1"));
    }
    assert_eq!(bank_reference(CHARGE), "ch_00000000000000000000000000000001");
}
