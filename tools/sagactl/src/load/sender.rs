//! Shell: posting orders, as cheaply as it goes: the generator shares its cores with the system.
//!
//! One level below `reqwest`, which costs half as much again per order: a stack of kept connections, each
//! carrying one request at a time.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::local::{Member, Reach};

/// An answer that takes longer is an error.
const TIMEOUT: Duration = Duration::from_secs(30);

type Connection = SendRequest<Full<Bytes>>;

/// Posts orders over kept connections, as many as there are requests at the same time. Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    idle: Arc<Mutex<Vec<Connection>>>,
    authority: Arc<str>,
    host: HeaderValue,
}

impl Sender {
    /// For the order service.
    pub fn new(reach: &Reach) -> anyhow::Result<Self> {
        let authority = reach.authority_of(Member::ORDER);
        Ok(Self {
            idle: Arc::default(),
            host: HeaderValue::try_from(&authority)?,
            authority: authority.into(),
        })
    }

    /// Posts an order; the error is a reason short enough to be counted by.
    pub async fn post(&self, body: String) -> Result<(), String> {
        match timeout(TIMEOUT, self.exchange(body)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err("no answer in time".to_owned()),
        }
    }

    async fn exchange(&self, body: String) -> Result<(), String> {
        let broke = |_| "connection broke".to_owned();
        let mut connection = self.connection().await.map_err(|_| "no connection".to_owned())?;
        connection.ready().await.map_err(broke)?;
        let response = connection.send_request(self.request(body)).await.map_err(broke)?;
        let status = response.status();
        // Read to its end, or the connection cannot carry the next one.
        response.into_body().collect().await.map_err(broke)?;
        self.idle.lock().push(connection);
        if status.is_success() { Ok(()) } else { Err(status.as_u16().to_string()) }
    }

    fn request(&self, body: String) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/api/orders");
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    async fn connection(&self) -> anyhow::Result<Connection> {
        while let Some(kept) = self.idle.lock().pop() {
            // The other side may have closed it since.
            if !kept.is_closed() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(&*self.authority).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(connection)
    }
}
