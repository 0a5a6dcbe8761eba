//! Pure: forced redrives and replays in flight.

use admin::commands::{Command, CommandKind, Reply};
use admin::dead_letters::events::Tag;
use admin::dead_letters::view::DeadLetterView;
use admin::redrive::decider::Redrive;
use admin::redrive::events::{Plan, RedriveCommand};
use admin::service::AdminService;
use admin_api::dead_letters::Filter;
use uuid::Uuid;

use crate::given::{Admin, announced, asks, by_ada, command_id, replay};
use crate::routes::numbered;

fn forced(number: u128, canary: u32, filter: Filter) -> Command {
    let plan = Plan { filter, canary, rate: None, force: true, by: by_ada(), matching: 3 };
    let start = RedriveCommand::Start(Box::new(plan));
    asks(number, CommandKind::Redrive(command_id(number), start))
}

fn of(service: Option<&str>, step: Option<&str>) -> Filter {
    let text = |text: &str| text.to_owned();
    Filter { service: service.map(text), step: step.map(text), ..Filter::default() }
}

/// Number of these that the first round of the redrive sends.
pub fn send(admin: &mut Admin, number: u128, redrive: u128, dead_letters: &[Uuid]) -> u64 {
    let tag = Tag { redrive: command_id(redrive), round: 1 };
    match admin.executes(asks(number, CommandKind::Send { tag, dead_letters: dead_letters.to_vec() })).reply()
    {
        Reply::Many(many) => many.done,
        other @ (Reply::Done | Reply::Changed(_) | Reply::Notification(_)) => panic!("{other:?}"),
    }
}

fn admin_with_three() -> (Admin, [Uuid; 3]) {
    let mut admin = Admin::of(AdminService);
    let dead_letters = [1, 2, 4].map(numbered);
    dead_letters.iter().for_each(|dead| drop(admin.receives(announced(dead))));
    (admin, dead_letters.map(|dead| dead.id))
}

#[test]
fn two_drivers_of_a_forced_redrive_count_a_canary_once() {
    let (mut admin, dead) = admin_with_three();
    admin.executes(forced(1, 2, of(Some("payment"), None)));
    assert_eq!(send(&mut admin, 2, 1, &dead[..1]), 1);
    let again = send(&mut admin, 3, 1, &dead[..1]);
    let counted = admin.row::<Redrive>(command_id(1)).drive().expect("it was started").sent;
    assert_eq!((again, counted), (0, 1), "one dead letter was sent: a canary of one, not of two");
}

#[test]
fn two_drivers_of_a_forced_redrive_send_the_rest_once() {
    let (mut admin, dead) = admin_with_three();
    admin.executes(forced(1, 0, of(Some("payment"), None)));
    assert_eq!(send(&mut admin, 2, 1, &dead), 3);
    assert_eq!(send(&mut admin, 3, 1, &dead), 0, "all three are on their way");
}

#[test]
fn forced_redrive_skips_dead_letters_replayed_meanwhile() {
    let (mut admin, dead) = admin_with_three();
    admin.executes(forced(1, 0, of(Some("payment"), None)));
    admin.executes(asks(2, replay(dead[0]))).has_outcome("done");
    assert_eq!(send(&mut admin, 3, 1, &dead[..1]), 0, "it is on its way by hand");
    assert_eq!(admin.row::<DeadLetterView>(dead[0]).tag(), None);
}

#[test]
fn forced_redrive_skips_replays_of_another_redrive() {
    let (mut admin, dead) = admin_with_three();
    admin.executes(forced(1, 1, of(Some("payment"), None)));
    admin.executes(forced(2, 1, of(None, Some("payment-processing"))));
    assert_eq!(send(&mut admin, 3, 1, &dead[..1]), 1);
    send(&mut admin, 4, 2, &dead[..1]);
    let tag = admin.row::<DeadLetterView>(dead[0]).tag().expect("some redrive sent it");
    assert_eq!(tag.redrive, command_id(1), "the canary of the first was taken out of its sight");
}
