//! Room for tasks: who was left waiting for it is told when there is some, and once.

mod naive;
mod walks;

use std::time::Duration;

use std::collections::VecDeque;

use saga_core::admission::{Admission, Room, TaskBounds};
use uuid::Uuid;

const NOW: Duration = Duration::ZERO;

#[test]
fn whoever_finds_no_room_is_told_at_once_or_when_a_task_ends() {
    let mut admission = Admission::new("supplier", TaskBounds { backlog: 2, concurrency: 2 });
    let tasks = [1, 2].map(Uuid::from_u128);
    for task in tasks {
        assert!(admission.hold(task, 1, false));
    }
    assert_eq!(admission.room(NOW), 0);
    // Both end while somebody still looks into the store: their ends tell nobody.
    for task in tasks {
        assert_eq!(admission.release(task), (Some(1), false));
    }
    assert!(admission.looked_for_due(true, NOW), "there is room by now");

    for task in tasks {
        assert!(admission.hold(task, 1, false));
    }
    assert!(!admission.looked_for_due(true, NOW));
    assert_eq!(admission.release(tasks[0]), (Some(1), true), "half of it is room enough");
    assert_eq!(admission.release(tasks[1]), (Some(1), false), "once is enough");
}

/// Messages are first at each freed place, and there is no end of them: what came due gets its share all the same.
#[test]
fn under_a_load_that_does_not_end_due_tasks_and_messages_both_get_places() {
    for backlog in [2, 8, 1024] {
        let mut admission = Admission::new("supplier", TaskBounds { backlog, concurrency: 2 });
        let (mut held, mut ids) = (VecDeque::new(), (1..).map(Uuid::from_u128));
        let (mut brought, mut came_due) = (bring(&mut admission, &mut held, &mut ids), 0);
        assert!(!admission.looked_for_due(true, NOW), "there is no room");
        for _ in 0..20 * backlog {
            assert!(held.len() <= backlog);
            let (_, mut is_room) = admission.release(held.pop_front().expect("one is under way"));
            brought += bring(&mut admission, &mut held, &mut ids);
            while is_room {
                let room = admission.room(NOW);
                for task in ids.by_ref().take(room) {
                    assert!(admission.hold(task, 1, true));
                    held.push_back(task);
                    came_due += 1;
                }
                brought += bring(&mut admission, &mut held, &mut ids);
                is_room = admission.looked_for_due(true, NOW);
            }
        }
        assert!(came_due >= 2 * backlog, "{came_due} of those that came due, beside {brought}");
        assert!(brought >= 2 * backlog, "{brought} of those that messages brought, beside {came_due}");
        // When none is left, all places are everybody's.
        assert!(!admission.looked_for_due(false, NOW));
        for task in held {
            admission.release(task);
        }
        let granted = (0..backlog).filter(|_| admission.take_slot(NOW) == Room::Granted);
        assert_eq!(granted.count(), backlog);
    }
}

/// What was promised to messages that brought no task is room for due tasks, too, and they are told.
#[test]
fn the_end_of_a_message_without_a_task_tells_that_there_is_room_for_due_ones() {
    let bounds = TaskBounds { backlog: 1, concurrency: 1 };
    let mut admission = Admission::new("bank", bounds);
    assert_eq!(admission.take_slot(NOW), Room::Granted);
    assert!(!admission.looked_for_due(true, NOW), "there is no room");
    assert!(admission.give_slot_back());
    assert_eq!(admission.take_slot(NOW), Room::Full, "it is the due task's");
    assert!(!admission.give_slot_back(), "told once");
}

/// As many messages as get a place.
fn bring(
    admission: &mut Admission,
    held: &mut VecDeque<Uuid>,
    ids: &mut impl Iterator<Item = Uuid>,
) -> usize {
    let before = held.len();
    while admission.take_slot(NOW) == Room::Granted {
        let task = ids.next().expect("an id");
        assert!(admission.hold(task, 1, false));
        admission.give_slot_back();
        held.push_back(task);
    }
    held.len() - before
}
