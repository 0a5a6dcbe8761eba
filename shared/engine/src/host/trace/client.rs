//! Shell: HTTP client of the span exporter, with one time-out for the whole request.

use std::time::Duration;

use futures::future::BoxFuture;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

use crate::host::http::client_builder;

/// HTTP client that runs requests in the runtime. The exporter's thread has none.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

impl Client {
    /// Makes a client whose requests time out after `limit`, the last byte of the answer included. Must be called in
    /// the runtime.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub(super) fn within(limit: Duration) -> anyhow::Result<Self> {
        let http = client_builder().timeout(limit).build()?;
        Ok(Self { http, runtime: Handle::current() })
    }
}

impl HttpClient for Client {
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> BoxFuture<'async_trait, Result<Response<Bytes>, HttpError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        let http = self.http.clone();
        let answer = self.runtime.spawn(async move { http.send_bytes(request).await });
        Box::pin(async { answer.await? })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::*;

    /// A time-out for each read would never end such an answer.
    #[tokio::test]
    async fn request_times_out_while_answer_trickles() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let answering = async {
            let (mut stream, _) = listener.accept().await.expect("somebody asks");
            assert!(stream.read(&mut [0; 1024]).await.expect("a request") > 0);
            let (mut sent, mut part) = (0, &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..]);
            while sent < 1_000 && stream.write_all(part).await.is_ok() {
                (part, sent) = (b"1\r\nx\r\n", sent + 1);
                sleep(Duration::from_millis(10)).await;
            }
            sent
        };
        let client = Client::within(Duration::from_millis(200)).expect("a client");
        let request = Request::post(url).body(Bytes::new()).expect("a request");
        let (result, sent) = tokio::join!(client.send_bytes(request), answering);
        assert!(result.is_err() && (2..1_000).contains(&sent), "{result:?} after {sent} parts");
    }
}
