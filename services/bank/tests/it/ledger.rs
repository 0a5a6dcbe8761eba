//! Pure: what an auditor gets to see of the bank's charges.

use bank::domain::Charge;
use bank::policy::{Command, ledger_entry, reference};
use contract::reconciliation::ChargeState;

use crate::given::{CHARGE, asked, bank, capture, refund, reverse};

#[test]
fn a_charge_is_seen_with_what_was_captured_and_given_back() {
    let fine = || capture(asked("tok_ok", 3300));
    let (amount, none) = (vec![asked("tok_ok", 3300).amount], vec![]);
    let cases: [(Vec<Command>, _, _, _); 6] = [
        (vec![], ChargeState::None, &none, &none),
        (vec![fine()], ChargeState::Captured, &amount, &none),
        (vec![fine(), refund()], ChargeState::Refunded, &amount, &amount),
        (vec![capture(asked("tok_declined", 3300))], ChargeState::None, &none, &none),
        (vec![reverse()], ChargeState::None, &none, &none),
        (
            vec![capture(asked("tok_error_once", 3300)), capture(asked("tok_error_once", 3300))],
            ChargeState::Captured,
            &amount,
            &none,
        ),
    ];
    for (commands, state, captured, refunded) in cases {
        let mut bank = bank();
        for command in &commands {
            bank.is_asked(command.clone());
        }
        let charge = bank.row::<Charge>(CHARGE);
        let entry = ledger_entry(CHARGE, &charge, &bank.history::<Charge>(CHARGE));
        assert_eq!((entry.charge, &entry.id), (CHARGE, &reference(CHARGE)));
        assert_eq!(
            (entry.state, &entry.captured, &entry.refunded),
            (state, captured, refunded),
            "{commands:?}"
        );
        assert_eq!(entry.amount, charge.asked().map(|asked| asked.amount));
        assert_eq!(entry.reference, charge.asked().map_or("", |_| "order 1"));
    }
    assert_eq!(reference(CHARGE), "ch_00000000000000000000000000000001");
}
