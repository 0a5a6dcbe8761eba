//! Stored trace contexts of failures are marked as recorded even if they were not sampled. After a restart nothing
//! else says so.

use saga_core::dead_letter::DeliveryInfo;
use saga_core::decision::Writes;
use saga_core::input::Input;
use saga_core::retry::{FailedAttempt, FailureKind};
use saga_core::trace::TraceContext;
use saga_core::waiting::Task;

use super::till::{COUNTING, FULL, Mood, Till, TillCommand, paid};
use super::world::World;

const HERE: TraceContext = TraceContext { trace_id: 7, span_id: 8, is_sampled: false };

fn world(keep_failed: bool) -> World {
    let mut world = World::new();
    world.rules.keep_failed = keep_failed;
    world
}

/// A message with a trace context of its own.
fn received(mood: Mood) -> Input<Till> {
    let headers =
        vec![("Nats-Msg-Id".to_owned(), "1".to_owned()), ("Traceparent".to_owned(), HERE.to_string())];
    let (stream, subject) = ("SHOP".to_owned(), "shop.paid".to_owned());
    let delivery = DeliveryInfo { stream, sequence: 7, subject, headers };
    let input = Input::from_broker(COUNTING, paid(1, "a", 5, mood).into(), delivery, u32::MAX);
    input.with_trace(Some(TraceContext { span_id: 9, ..HERE }))
}

/// True for each outbox entry and task whose trace is recorded.
fn recorded(writes: &Writes) -> (Vec<bool>, Vec<bool>) {
    let says = |trace: &Option<TraceContext>| trace.expect("it stands in a trace").is_sampled;
    let promised = writes.outbox.iter().map(|entry| says(&entry.trace));
    (promised.collect(), writes.tasks.iter().map(|task| says(&task.trace)).collect())
}

#[test]
fn retry_marks_trace_as_recorded() {
    for keep in [true, false] {
        let (writes, name) = world(keep).decide_one(received(Mood::NotYet));
        let delivery = writes.retries[0].delivery.as_ref().expect("it came from the broker");
        let at = TraceContext { is_sampled: keep, ..HERE };
        assert_eq!((name, delivery.trace()), ("retried", Some(at)), "what caused it caused its next try too");
        assert_eq!(delivery.headers[0].1, "1");
    }
}

#[test]
fn failed_task_marks_trace_as_recorded() {
    for (keep, trace) in [(true, Some(HERE.recorded())), (false, None)] {
        let mut world = world(keep);
        let command = world.command(TillCommand::Put("a", FULL)).with_trace(Some(HERE));
        let (writes, _) = world.decide_one(command);
        let task = Task { trace: Some(HERE), ..writes.tasks[0].clone() };
        let failed = FailedAttempt::new(FailureKind::Transient, "no answer");
        let (writes, name) = world.decide_one(Input::task_result(task, Err(failed), u32::MAX));
        assert_eq!((name, writes.task_retries[0].trace), ("retried", trace));
    }
}

#[test]
fn dead_letter_marks_trace_as_recorded() {
    for keep in [true, false] {
        let (writes, _) = world(keep).decide_one(received(Mood::Broken));
        let dead = &writes.new_dead_letters[0];
        let at = TraceContext { span_id: 9, is_sampled: keep, ..HERE };
        assert_eq!(dead.trace, Some(at.to_string()));
        let came_from = dead.delivery.as_ref().and_then(DeliveryInfo::trace);
        assert_eq!(
            came_from,
            Some(TraceContext { is_sampled: keep, ..HERE }),
            "its replay goes on from there"
        );
        assert_eq!(recorded(&writes), (vec![keep], vec![]), "and so does who hears of it");
    }
}

#[test]
fn effects_of_input_that_reports_failure_mark_trace_as_recorded() {
    for (keep, tin, is_recorded) in [(true, "wrong", true), (true, "a", false), (false, "wrong", false)] {
        let mut world = world(keep);
        let command = world.command(TillCommand::Put(tin, FULL)).with_trace(Some(HERE));
        assert_eq!(recorded(&world.decide_one(command).0), (vec![is_recorded], vec![is_recorded]), "{tin}");
    }
}
