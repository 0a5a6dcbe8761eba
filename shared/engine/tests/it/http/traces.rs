//! Shell: traces of requests: continued or linked, by route and caller.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use saga_core::trace::TraceContext;
use saga_engine::host::http::HttpSettings;
use saga_engine::runtime::tracer::{Callers, Span, Tracer};

use super::authorization::{ACCESS, TokenFile, bearer};
use super::server::Server;
use crate::support::Recorder;

const CALLER: TraceContext = TraceContext { trace_id: 0x0af7, span_id: 0xb7ad, is_sampled: true };

/// Names of the recorded spans, each a child of the caller's.
#[track_caller]
fn caused(recorder: &Recorder) -> Vec<String> {
    let spans = recorder.spans.lock();
    let is_caused = |span: &Span| {
        (span.opened.context.trace_id, span.opened.parent) == (CALLER.trace_id, Some(CALLER.span_id))
    };
    assert!(spans.iter().all(is_caused), "{spans:?}");
    spans.iter().map(|span| span.details.operation.name().into_owned()).collect()
}

async fn server(settings: HttpSettings, callers: Callers) -> (Arc<Recorder>, Server) {
    let recorded = Arc::new(Recorder::default());
    let tracer = Tracer::new(recorded.clone(), callers);
    (recorded.clone(), Server::traced(settings, &ACCESS, tracer).await)
}

/// Sends a request with a sampled trace context, and returns the status.
async fn request(server: &Server, line: &str, caller: TraceContext, headers: &str) -> u16 {
    let traceparent = format!("traceparent: {caller}\r\n");
    server.request(format!("{line} HTTP/1.1\r\nhost: localhost\r\n{traceparent}{headers}\r\n")).await.status
}

#[tokio::test]
async fn open_route_continues_trace_only_with_follow() {
    for (callers, expected) in [(Callers::Link, &[][..]), (Callers::Follow, &["GET /large"])] {
        let (recorded, server) = server(HttpSettings::default(), callers).await;
        assert_eq!(request(&server, "GET /large", CALLER, "connection: close\r\n").await, 200);
        assert_eq!(caused(&recorded), expected, "{callers:?}");
    }
}

#[tokio::test]
async fn guarded_route_continues_trace_and_denied_request_does_not() {
    let file = TokenFile::new();
    for callers in [Callers::Link, Callers::Follow] {
        let once = HttpSettings { rate: NonZeroU32::MIN, burst: NonZeroU32::MIN, ..file.settings() };
        let (recorded, server) = server(once, callers).await;
        for (headers, status) in [
            (String::new(), 401),
            (bearer("late"), 401),
            (bearer("vera"), 200),
            (bearer("vera"), 429),
            (bearer("oscar"), 200),
        ] {
            assert_eq!(request(&server, "GET /internal/who", CALLER, &headers).await, status);
        }
        let (unasked, other) = self::server(file.settings(), callers).await;
        assert_eq!(request(&other, "DELETE /internal/who", CALLER, &bearer("vera")).await, 403);
        assert_eq!(
            (request(&server, "DELETE /internal/who", CALLER, &bearer("ada")).await, caused(&unasked)),
            (200, vec![])
        );
        assert_eq!(caused(&recorded), ["GET /internal/who", "GET /internal/who", "DELETE /internal/who"]);
    }
}

#[tokio::test]
async fn server_error_records_its_trace() {
    let settings = HttpSettings { timeout: Duration::from_millis(20), ..HttpSettings::default() };
    let (recorded, server) = server(settings, Callers::Follow).await;
    let unrecorded = TraceContext { is_sampled: false, ..CALLER };
    assert_eq!(request(&server, "GET /internal/who", unrecorded, "").await, 200);
    assert_eq!(*recorded.kept.lock(), []);
    assert_eq!(request(&server, "GET /held", unrecorded, "").await, 503);
    assert_eq!(*recorded.kept.lock(), [CALLER.trace_id]);
}
