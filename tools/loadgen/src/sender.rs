//! Shell: posting orders at little cost, as the generator shares its cores with the system.
//!
//! Below an HTTP client: a stack of kept-alive connections, each a task. It writes a request in one piece, and reads only
//! the status and two headers of the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use super::measurements::Rejected;
use super::options::MAX_CLIENTS;
use devstack::{Component, Endpoints};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of concurrent requests.
const MAX_CONNECTIONS: usize = MAX_CLIENTS as usize;
/// Larger than any answer of the order service.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 32;

/// Request to the order service.
#[derive(Debug)]
pub enum Request {
    /// Places an order with this body.
    Place(String),
    Cancel(Uuid),
}

/// Request with the number of its order.
#[derive(Debug)]
struct Job {
    number: u64,
    request: Request,
    sent: Instant,
}

pub struct Answer {
    pub number: u64,
    pub sent: Instant,
    pub outcome: Result<Uuid, Rejected>,
    /// True for an order, false for a cancellation.
    pub is_placing: bool,
}

/// Pool of connections, one for each concurrent request. Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    pool: Arc<Pool>,
}

struct Pool {
    authority: String,
    connections: Mutex<Connections>,
    answer: Box<dyn Fn(Answer) + Send + Sync>,
}

/// Idle connections, the last used last, and the number of all.
#[derive(Default)]
struct Connections {
    idle: Vec<mpsc::Sender<Job>>,
    count: usize,
}

impl Sender {
    /// Sender to the order service that passes each answer to `answer`.
    pub fn new(endpoints: &Endpoints, answer: impl Fn(Answer) + Send + Sync + 'static) -> Self {
        let authority = endpoints.authority_of(Component::ORDER);
        Self { pool: Arc::new(Pool { authority, connections: Mutex::default(), answer: Box::new(answer) }) }
    }

    /// Sends a request. Returns `false` if all connections are busy.
    pub fn send(&self, number: u64, request: Request) -> bool {
        let mut job = Job { number, request, sent: Instant::now() };
        let mut connections = self.pool.connections.lock();
        while let Some(idle) = connections.idle.pop() {
            match idle.try_send(job) {
                Ok(()) => return true,
                // The server has closed that connection.
                Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => {
                    job = back;
                }
            }
        }
        if connections.count >= MAX_CONNECTIONS {
            return false;
        }
        connections.count += 1;
        tokio::spawn(self.clone().run_connection(job));
        true
    }

    /// Opens a connection and serves its requests.
    async fn run_connection(self, first: Job) {
        let (itself, mut jobs) = mpsc::channel(1);
        let opened = timeout(TIMEOUT, Connection::open(&self.pool.authority)).await;
        if let Ok(Ok(mut connection)) = opened {
            let mut next = Some(first);
            while let Some(job) = next {
                let outcome = timeout(TIMEOUT, connection.exchange(&self.pool.authority, &job.request)).await;
                let is_broken = !matches!(outcome, Ok(Ok(_)));
                self.deliver(
                    &job,
                    match outcome {
                        Ok(Ok(answer)) => answer,
                        Ok(Err(_broke)) => Err(Rejected::failure("connection broke")),
                        Err(_elapsed) => Err(Rejected::failure("no answer in time")),
                    },
                );
                if is_broken {
                    break;
                }
                self.pool.connections.lock().idle.push(itself.clone());
                next = tokio::select! {
                    job = jobs.recv() => job,
                    () = connection.closed() => None,
                };
            }
            // A request that arrived while the server closed the connection is sent again.
            jobs.close();
            self.pool.connections.lock().count -= 1;
            if let Ok(Job { number, request, sent }) = jobs.try_recv() {
                let is_placing = matches!(request, Request::Place(_));
                if !self.send(number, request) {
                    let outcome = Err(Rejected::failure("dropped by the generator"));
                    (self.pool.answer)(Answer { number, sent, outcome, is_placing });
                }
            }
        } else {
            self.pool.connections.lock().count -= 1;
            self.deliver(&first, Err(Rejected::failure("no connection")));
        }
    }

    fn deliver(&self, job: &Job, outcome: Result<Uuid, Rejected>) {
        let is_placing = matches!(job.request, Request::Place(_));
        (self.pool.answer)(Answer { number: job.number, sent: job.sent, outcome, is_placing });
    }
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(authority: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, out: Vec::with_capacity(512), answer: Vec::with_capacity(4 * 1024) })
    }

    /// Waits until the server closes the connection or sends unexpected data.
    async fn closed(&self) {
        // An error ends it too.
        let _ = self.stream.readable().await;
    }

    async fn exchange(&mut self, host: &str, request: &Request) -> anyhow::Result<Result<Uuid, Rejected>> {
        self.out.clear();
        write_request(&mut self.out, host, request);
        self.stream.write_all(&self.out).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 || self.answer.len() > MAX_ANSWER_BYTES {
                bail!("incomplete answer");
            }
            if let Some(outcome) = outcome_of(&self.answer, request)? {
                return Ok(outcome);
            }
        }
    }
}

fn write_request(out: &mut Vec<u8>, host: &str, request: &Request) {
    use std::io::Write as _;
    // Writing to memory cannot fail.
    let _ = match request {
        Request::Place(body) => write!(
            out,
            "POST /api/orders HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
        Request::Cancel(order) => write!(
            out,
            "POST /api/orders/{order}/cancel HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n"
        ),
    };
}

/// Parses an answer; `None` while it is incomplete.
fn outcome_of(answer: &[u8], request: &Request) -> anyhow::Result<Option<Result<Uuid, Rejected>>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(begins) = head.parse(answer)? else { return Ok(None) };
    let value = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let length: usize = value("content-length").context("an answer without a length")?.parse()?;
    if answer.len() < begins + length {
        return Ok(None);
    }
    let status = head.code.unwrap_or_default();
    if !(200..300).contains(&status) {
        let may_retry = status == 503 && value("retry-after").is_some();
        return Ok(Some(Err(Rejected { reason: status.to_string(), may_retry })));
    }
    let order = match request {
        Request::Cancel(order) => *order,
        Request::Place(_) => {
            let location = value("location").context("an order without a location")?;
            location.rsplit('/').next().unwrap_or_default().parse()?
        }
    };
    Ok(Some(Ok(order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACED: &str = "HTTP/1.1 202 Accepted\r\nLocation: /api/orders/01890000-0000-7000-8000-000000000001\r\n\
                          Content-Length: 2\r\n\r\n{}";

    fn outcome(answer: &str) -> Option<Result<Uuid, Rejected>> {
        outcome_of(answer.as_bytes(), &Request::Place(String::new())).expect("an answer")
    }

    #[test]
    fn incomplete_answer_is_not_parsed() {
        for end in 0..PLACED.len() {
            assert_eq!(outcome(&PLACED[..end]), None, "{end}");
        }
        let order = Uuid::from_u128(0x0189_0000_0000_7000_8000_0000_0000_0001);
        assert_eq!(outcome(PLACED), Some(Ok(order)));
    }

    #[test]
    fn rejection_with_retry_after_may_be_retried() {
        let rejected = |head: &str| outcome(&format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n"));
        let expected = |reason: &str, may_retry| Some(Err(Rejected { reason: reason.to_owned(), may_retry }));
        assert_eq!(rejected("503 Service Unavailable\r\nretry-after: 5"), expected("503", true));
        assert_eq!(rejected("503 Service Unavailable"), expected("503", false));
        assert_eq!(rejected("422 Unprocessable\r\nretry-after: 5"), expected("422", false));
    }

    #[test]
    fn invalid_answer_is_an_error() {
        for bad in
            ["nonsense\r\n\r\n", "HTTP/1.1 202 A\r\n\r\n", "HTTP/1.1 202 A\r\ncontent-length: 0\r\n\r\n"]
        {
            assert!(outcome_of(bad.as_bytes(), &Request::Place(String::new())).is_err(), "{bad}");
        }
    }

    #[test]
    fn request_is_valid_http() {
        let mut out = Vec::new();
        write_request(&mut out, "here:1", &Request::Place("{}".to_owned()));
        let text = String::from_utf8_lossy(&out);
        assert!(text.starts_with("POST /api/orders HTTP/1.1\r\nhost: here:1\r\n"), "{text}");
        assert!(text.ends_with("content-length: 2\r\n\r\n{}"), "{text}");
        out.clear();
        write_request(&mut out, "here:1", &Request::Cancel(Uuid::nil()));
        let text = String::from_utf8_lossy(&out);
        assert!(text.starts_with("POST /api/orders/00000000-0000-0000-0000-000000000000/cancel "), "{text}");
    }
}
