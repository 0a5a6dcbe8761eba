//! Pure: properties of charges under any order and repetition of requests.

use bank::domain::{Charge, ChargeCommand, ChargeEvent, ChargeRequest};
use bank::service::{BankService, Command, CommandKind};
use proptest::prelude::*;
use uuid::Uuid;

use crate::given::{LIMIT_MAJOR, request};
use crate::table::{TOKENS, commands};
use saga_engine::testing::decider::any_sequence;
use saga_engine::testing::{Stimulus, batches_do_what_single_inputs_do};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn charge_is_captured_and_refunded_at_most_once(
        commands in prop::collection::vec(prop::sample::select(commands()), 0..16),
    ) {
        let mut happened = Vec::new();
        any_sequence::<Charge>(&commands, fails_once, |charge, events| {
            happened.extend(events.iter().cloned());
            let count = |wanted: fn(&ChargeEvent) -> bool| happened.iter().filter(|event| wanted(event)).count();
            let captured = count(|event| matches!(event, ChargeEvent::Captured(_)));
            let refunded = count(|event| matches!(event, ChargeEvent::Refunded));
            assert!(captured <= 1 && refunded <= captured, "{happened:?}");
            assert_eq!(matches!(charge, Charge::Captured(_)), captured > refunded, "{charge:?} after {happened:?}");
        });
    }

    #[test]
    fn batch_has_same_effect_as_single_inputs(
        commands in prop::collection::vec((0..3_u128, kind()), 1..32), size in 2_usize..33,
    ) {
        let ask = |(number, (charge, kind)): (usize, (u128, CommandKind))| {
            let charge = Uuid::from_u128(charge);
            let id = Uuid::from_u128(1000 + number as u128);
            Stimulus::Command { id, saga: charge, command: Command { charge, kind }, key: None }
        };
        let commands: Vec<_> = commands.into_iter().enumerate().map(ask).collect();
        batches_do_what_single_inputs_do(|| BankService { limit_major: LIMIT_MAJOR }, &commands, size, true);
    }
}

/// True for `tok_error_once`, the only request that has another effect when repeated.
fn fails_once(kind: &ChargeCommand) -> bool {
    match kind {
        ChargeCommand::Capture { request: ChargeRequest { token, .. }, .. } => token == "tok_error_once",
        ChargeCommand::Decline(_) | ChargeCommand::Refund | ChargeCommand::Reverse | ChargeCommand::Close => {
            false
        }
    }
}

fn kind() -> impl Strategy<Value = CommandKind> {
    let capture =
        prop::sample::select(TOKENS.to_vec()).prop_map(|token| CommandKind::Capture(request(token, 3300)));
    let decline = Just(CommandKind::Decline(request("tok_ok", 3300)));
    let undone = prop::sample::select(vec![CommandKind::Refund, CommandKind::Reverse, CommandKind::Close]);
    prop_oneof![3 => capture, 1 => decline, 3 => undone]
}
