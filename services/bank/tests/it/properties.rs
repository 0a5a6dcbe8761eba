//! Pure: what holds of charges whatever merchants ask for, in whatever order, however often.

use bank::domain::{Asked, Charge, ChargeCommand, ChargeEvent};
use bank::policy::{BankService, Command, Wish};
use proptest::prelude::*;
use uuid::Uuid;

use crate::domain::any_sequence;
use crate::given::{LIMIT_MAJOR, asked};
use crate::table::{TOKENS, commands};
use crate::world::{Stimulus, batches_do_what_single_inputs_do};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_charge_is_captured_and_given_back_at_most_once(
        wishes in prop::collection::vec(prop::sample::select(commands()), 0..16),
    ) {
        let mut happened = Vec::new();
        any_sequence::<Charge>(&wishes, stumbles, |charge, events| {
            happened.extend(events.iter().cloned());
            let count = |wanted: fn(&ChargeEvent) -> bool| happened.iter().filter(|event| wanted(event)).count();
            let captured = count(|event| matches!(event, ChargeEvent::Captured(_)));
            let refunded = count(|event| matches!(event, ChargeEvent::Refunded));
            assert!(captured <= 1 && refunded <= captured, "{happened:?}");
            assert_eq!(matches!(charge, Charge::Captured(_)), captured > refunded, "{charge:?} after {happened:?}");
        });
    }

    #[test]
    fn a_batch_does_what_its_inputs_do_one_by_one(
        wishes in prop::collection::vec((0..3_u128, wish()), 1..32), size in 2_usize..33,
    ) {
        let ask = |(number, (charge, wish)): (usize, (u128, Wish))| {
            let charge = Uuid::from_u128(charge);
            let id = Uuid::from_u128(1000 + number as u128);
            Stimulus::Command { id, saga: charge, command: Command { charge, wish }, key: None }
        };
        let wishes: Vec<_> = wishes.into_iter().enumerate().map(ask).collect();
        batches_do_what_single_inputs_do(|| BankService { limit_major: LIMIT_MAJOR }, &wishes, size, true);
    }
}

/// The one wish that does something else the second time: `tok_error_once`, by design.
fn stumbles(wish: &ChargeCommand) -> bool {
    match wish {
        ChargeCommand::Capture { asked: Asked { token, .. }, .. } => token == "tok_error_once",
        ChargeCommand::Decline(_) | ChargeCommand::Refund | ChargeCommand::Reverse => false,
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    let capture = prop::sample::select(TOKENS.to_vec()).prop_map(|token| Wish::Capture(asked(token, 3300)));
    let decline = Just(Wish::Decline(asked("tok_ok", 3300)));
    prop_oneof![3 => capture, 1 => decline, 1 => Just(Wish::Refund), 1 => Just(Wish::Reverse)]
}
