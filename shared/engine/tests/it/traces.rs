//! Spans of inputs within their traces.

use std::sync::Arc;

use parking_lot::Mutex;
use saga_core::input::Input;
use saga_engine::runtime::tracer::{self, Callers, Tracer};

use crate::support::{Depot, DepotCommand, EngineHarness, Recorder, arrived, id, in_time, received};

fn command(number: u128) -> Input<Depot> {
    Input::command(id(number), id(number), DepotCommand::List("tea"), None)
}

/// With an id of its own, or with a fresh one.
#[tokio::test]
async fn command_span_is_child_of_its_request() {
    let recorder = Arc::new(Recorder::of_all());
    let tracer = Tracer::new(recorder.clone(), Callers::Link);
    let harness = EngineHarness::traced(tracer.clone()).await;
    let executed = async {
        harness.engine.execute(id(1), DepotCommand::List("tea"), None).await.expect("the store works");
        harness.engine.process(command(2)).await.expect("the store works");
        tracer::request_span()
    };
    let opened = in_time("the answer", tracer::answering(&tracer, None, executed)).await;
    let answer = opened.expect("the answer has a span").context;
    let parents: Vec<_> =
        recorder.spans.lock().iter().map(|span| (span.opened.parent, span.opened.context.trace_id)).collect();
    assert_eq!(parents, [(Some(answer.span_id), answer.trace_id); 2]);
}

/// Inputs without a request start traces of their own.
#[tokio::test]
async fn input_without_request_starts_a_trace() {
    let recorder = Arc::new(Recorder::of_all());
    let harness = EngineHarness::traced(Tracer::new(recorder.clone(), Callers::Link)).await;
    assert_eq!(harness.settle(command(1)).await, "done");
    assert_eq!(harness.settle(received(arrived(id(2), "tea", 1))).await, "done");
    let parents: Vec<_> = recorder.spans.lock().iter().map(|span| span.opened.parent).collect();
    assert_eq!(parents, [None, None]);
}

/// A closed connection drops the request at any point.
#[tokio::test]
async fn request_span_is_available_while_abandoned_request_is_dropped() {
    struct Seen(Arc<Mutex<Option<tracer::OpenSpan>>>);
    impl Drop for Seen {
        fn drop(&mut self) {
            *self.0.lock() = tracer::request_span();
        }
    }
    let recorder = Arc::new(Recorder::of_all());
    let tracer = Tracer::new(recorder.clone(), Callers::Link);
    let harness = EngineHarness::traced(tracer.clone()).await;
    let found = Arc::default();
    let (has_executed, executed) = tokio::sync::oneshot::channel();
    let answer = {
        let (seen, engine) = (Seen(Arc::clone(&found)), harness.engine.clone());
        async move {
            let _seen = seen;
            engine.execute(id(1), DepotCommand::List("tea"), None).await.expect("the store works");
            has_executed.send(()).expect("somebody waits for it");
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = tracer::answering(&tracer, None, answer) => panic!("it is never answered"),
        executed = in_time("the question", executed) => executed.expect("it was asked"),
    }
    let opened = found.lock().expect("its span was known");
    let executed = recorder.spans.lock()[0].opened.parent;
    assert_eq!(executed, Some(opened.context.span_id));
    assert_eq!(tracer::request_span(), None, "here nothing is answered");
}
