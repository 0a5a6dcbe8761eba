//! Room for tasks: a scan that found none is repeated once there is some, and only once.

mod naive;
mod walks;

use std::time::Duration;

use std::collections::VecDeque;

use saga_core::admission::{Admission, Slot, TaskBounds};
use uuid::Uuid;

const NOW: Duration = Duration::ZERO;

#[test]
fn scan_without_room_is_repeated_once_room_is_free() {
    let mut admission = Admission::new("supplier", TaskBounds { backlog: 2, concurrency: 2 });
    let tasks = [1, 2].map(Uuid::from_u128);
    for task in tasks {
        assert!(admission.hold(task, 1, false));
    }
    assert_eq!(admission.room(NOW), 0);
    // Both end during the scan: their ends request no other scan.
    for task in tasks {
        assert_eq!(admission.release(task), (Some(1), false));
    }
    assert!(admission.record_due_scan(true, NOW), "there is room by now");

    for task in tasks {
        assert!(admission.hold(task, 1, false));
    }
    assert!(!admission.record_due_scan(true, NOW));
    assert_eq!(admission.release(tasks[0]), (Some(1), true), "half of it is room enough");
    assert_eq!(admission.release(tasks[1]), (Some(1), false), "once is enough");
}

/// Messages get each slot that becomes free, without end. Due tasks get their share all the same.
#[test]
fn constant_load_leaves_room_for_due_tasks_and_messages() {
    for backlog in [2, 8, 1024] {
        let mut admission = Admission::new("supplier", TaskBounds { backlog, concurrency: 2 });
        let (mut open_tasks, mut ids) = (VecDeque::new(), (1..).map(Uuid::from_u128));
        let (mut from_messages, mut is_due) =
            (take_from_messages(&mut admission, &mut open_tasks, &mut ids), 0);
        assert!(!admission.record_due_scan(true, NOW), "there is no room");
        for _ in 0..20 * backlog {
            assert!(open_tasks.len() <= backlog);
            let (_, mut is_room) = admission.release(open_tasks.pop_front().expect("one is under way"));
            from_messages += take_from_messages(&mut admission, &mut open_tasks, &mut ids);
            while is_room {
                let room = admission.room(NOW);
                for task in ids.by_ref().take(room) {
                    assert!(admission.hold(task, 1, true));
                    open_tasks.push_back(task);
                    is_due += 1;
                }
                from_messages += take_from_messages(&mut admission, &mut open_tasks, &mut ids);
                is_room = admission.record_due_scan(true, NOW);
            }
        }
        assert!(is_due >= 2 * backlog, "{is_due} of those that came due, beside {from_messages}");
        assert!(
            from_messages >= 2 * backlog,
            "{from_messages} of those that messages brought, beside {is_due}"
        );
        // Without due tasks all slots are free again.
        assert!(!admission.record_due_scan(false, NOW));
        for task in open_tasks {
            admission.release(task);
        }
        let granted = (0..backlog).filter(|_| admission.reserve_slot(NOW) == Slot::Reserved);
        assert_eq!(granted.count(), backlog);
    }
}

/// A slot reserved for a message without a task is room for due tasks too.
#[test]
fn returned_slot_reports_room_for_due_tasks() {
    let bounds = TaskBounds { backlog: 1, concurrency: 1 };
    let mut admission = Admission::new("bank", bounds);
    assert_eq!(admission.reserve_slot(NOW), Slot::Reserved);
    assert!(!admission.record_due_scan(true, NOW), "there is no room");
    assert!(admission.return_slot());
    assert_eq!(admission.reserve_slot(NOW), Slot::Full, "it is the due task's");
    assert!(!admission.return_slot(), "told once");
}

/// Reserves slots for as many messages as fit.
fn take_from_messages(
    admission: &mut Admission,
    open_tasks: &mut VecDeque<Uuid>,
    ids: &mut impl Iterator<Item = Uuid>,
) -> usize {
    let before = open_tasks.len();
    while admission.reserve_slot(NOW) == Slot::Reserved {
        let task = ids.next().expect("an id");
        assert!(admission.hold(task, 1, false));
        admission.return_slot();
        open_tasks.push_back(task);
    }
    open_tasks.len() - before
}

/// Other calls would get the same answer.
#[test]
fn no_call_begins_while_the_dependency_asks_for_a_pause() {
    let mut admission = Admission::new("supplier", TaskBounds { backlog: 8, concurrency: 8 });
    let seconds = Duration::from_secs;
    assert!(admission.acquire_call(NOW).is_some());
    admission.pause_calls(seconds(30));
    admission.pause_calls(seconds(10));
    for at in [0, 10, 29] {
        assert!(admission.acquire_call(seconds(at)).is_none(), "after {at} seconds");
        assert_eq!(admission.calls_blocked_until(seconds(at)), Some(Some(seconds(30))));
    }
    assert_eq!(admission.calls_blocked_until(seconds(30)), None);
    assert!(admission.acquire_call(seconds(30)).is_some());
}
