//! What is stored of a trace in which something goes wrong: that it is recorded, although it was not to be. Whoever goes
//! on with it after a restart knows it from nowhere else.

use saga_core::dead_letter::Delivery;
use saga_core::decision::Writes;
use saga_core::input::Input;
use saga_core::retry::{FailedTry, FailureKind};
use saga_core::trace::TraceContext;
use saga_core::waiting::Task;

use super::till::{COUNTING, FULL, Mood, Till, TillCommand, World, paid};

const HERE: TraceContext = TraceContext { trace_id: 7, span_id: 8, is_sampled: false };

fn world(keep_failed: bool) -> World {
    let mut world = World::new();
    world.rules.keep_failed = keep_failed;
    world
}

/// A message that came with its place in its trace, and was taken in.
fn heard(mood: Mood) -> Input<Till> {
    let headers =
        vec![("Nats-Msg-Id".to_owned(), "1".to_owned()), ("Traceparent".to_owned(), HERE.to_string())];
    let (stream, subject) = ("SHOP".to_owned(), "shop.paid".to_owned());
    let delivery = Delivery { stream, sequence: 7, subject, headers };
    let input = Input::delivered(COUNTING, paid(1, "a", 5, mood).into(), delivery, u32::MAX);
    input.traced(Some(TraceContext { span_id: 9, ..HERE }))
}

/// Whether each promise and each call of these says that its trace is recorded.
fn recorded(writes: &Writes) -> (Vec<bool>, Vec<bool>) {
    let says = |trace: &Option<TraceContext>| trace.expect("it stands in a trace").is_sampled;
    let promised = writes.outbox.iter().map(|promise| says(&promise.trace));
    (promised.collect(), writes.tasks.iter().map(|task| says(&task.trace)).collect())
}

#[test]
fn a_message_that_waits_for_its_next_try_says_that_its_trace_is_recorded() {
    for keep in [true, false] {
        let (writes, name) = world(keep).take(heard(Mood::NotYet));
        let delivery = writes.retries[0].delivery.as_ref().expect("it came from the broker");
        let at = TraceContext { is_sampled: keep, ..HERE };
        assert_eq!((name, delivery.trace()), ("retried", Some(at)), "what caused it caused its next try too");
        assert_eq!(delivery.headers[0].1, "1");
    }
}

#[test]
fn a_call_that_failed_says_that_its_trace_is_recorded() {
    for (keep, trace) in [(true, Some(HERE.recorded())), (false, None)] {
        let mut world = world(keep);
        let command = world.command(TillCommand::Put("a", FULL)).traced(Some(HERE));
        let (writes, _) = world.take(command);
        let task = Task { trace: Some(HERE), ..writes.tasks[0].clone() };
        let failed = FailedTry::new(FailureKind::Transient, "no answer");
        let (writes, name) = world.take(Input::called(task, Err(failed), u32::MAX));
        assert_eq!((name, writes.task_retries[0].trace), ("retried", trace));
    }
}

#[test]
fn a_dead_letter_says_that_its_trace_is_recorded() {
    for keep in [true, false] {
        let (writes, _) = world(keep).take(heard(Mood::Broken));
        let dead = &writes.parked[0];
        let at = TraceContext { span_id: 9, is_sampled: keep, ..HERE };
        assert_eq!(dead.trace, Some(at.to_string()));
        let came_from = dead.delivery.as_ref().and_then(Delivery::trace);
        assert_eq!(
            came_from,
            Some(TraceContext { is_sampled: keep, ..HERE }),
            "its replay goes on from there"
        );
        assert_eq!(recorded(&writes), (vec![keep], vec![]), "and so does who hears of it");
    }
}

#[test]
fn all_that_an_input_asks_for_which_tells_of_something_wrong_says_that_its_trace_is_recorded() {
    for (keep, tin, is_recorded) in [(true, "wrong", true), (true, "a", false), (false, "wrong", false)] {
        let mut world = world(keep);
        let command = world.command(TillCommand::Put(tin, FULL)).traced(Some(HERE));
        assert_eq!(recorded(&world.take(command).0), (vec![is_recorded], vec![is_recorded]), "{tin}");
    }
}
