//! Room for tasks: who was left waiting for it is told when there is some, and once.

use std::time::Duration;

use saga_core::admission::{Admission, TaskBounds};
use uuid::Uuid;

const NOW: Duration = Duration::ZERO;

#[test]
fn whoever_finds_no_room_is_told_at_once_or_when_a_task_ends() {
    let mut admission = Admission::new("supplier", TaskBounds { backlog: 2, concurrency: 2 });
    let tasks = [1, 2].map(Uuid::from_u128);
    for task in tasks {
        assert!(admission.hold(task, 1));
    }
    assert_eq!(admission.room(NOW), 0);
    // Both end while somebody still looks into the store: their ends tell nobody.
    for task in tasks {
        assert_eq!(admission.release(task), (Some(1), false));
    }
    assert!(admission.want_room(NOW), "there is room by now");

    for task in tasks {
        assert!(admission.hold(task, 1));
    }
    assert!(!admission.want_room(NOW));
    assert_eq!(admission.release(tasks[0]), (Some(1), true), "half of it is room enough");
    assert_eq!(admission.release(tasks[1]), (Some(1), false), "once is enough");
}
