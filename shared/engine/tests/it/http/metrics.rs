use saga_core::access::Access;
use saga_engine::host::http::HttpSettings;

use super::server::Server;

#[tokio::test]
async fn metrics_have_the_format_that_the_client_accepts() {
    let server = Server::guarded(HttpSettings::default(), &Access::CLOSED).await;
    let (prometheus, open_metrics) =
        ("text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0");
    for (accepted, content_type) in [
        ("", prometheus),
        ("accept: */*\r\n", prometheus),
        ("accept: text/plain;version=0.0.4\r\n", prometheus),
        ("accept: application/openmetrics-text\r\n", open_metrics),
        (
            "accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3\r\n",
            open_metrics,
        ),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\n{accepted}\r\n");
        let answer = server.request(request).await;
        assert_eq!(answer.status, 200, "{accepted}");
        assert!(
            answer.head.contains(&format!("content-type: {content_type}")),
            "{accepted}: {}",
            answer.head
        );
        let is_open_metrics = content_type == open_metrics;
        assert_eq!(answer.body.ends_with("# EOF\n"), is_open_metrics, "{accepted}");
        assert_eq!(answer.body.contains("# TYPE store_faults_total counter"), !is_open_metrics, "{accepted}");
    }
}
