//! Shell: posting orders, as cheaply as it goes: the generator shares its cores with the system.
//!
//! One level below an HTTP client: a stack of kept connections, each a task of its own that writes a request in one
//! piece, reads the answer in one, and takes from it no more than its status and two headers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use super::measured::Refused;
use super::options::MOST_CLIENTS;
use devstack::{Member, Reach};

/// An answer that takes longer is an error.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Requests that wait for an answer at the same time.
const CONNECTIONS: usize = MOST_CLIENTS as usize;
/// No answer of the order service is longer.
const LONGEST_ANSWER: usize = 64 * 1024;
/// No answer of it has more headers.
const MOST_HEADERS: usize = 32;

/// What is asked of the order service.
#[derive(Debug)]
pub enum Request {
    /// An order, by its body.
    Place(String),
    /// That an order is cancelled.
    Cancel(Uuid),
}

/// A request, to be answered under this number.
#[derive(Debug)]
struct Job {
    number: u64,
    request: Request,
    sent: Instant,
}

/// What became of a request.
pub struct Answer {
    pub number: u64,
    pub sent: Instant,
    /// The order, or why not.
    pub outcome: Result<Uuid, Refused>,
    /// Whether it was placed, not cancelled.
    pub is_placing: bool,
}

/// Posts over kept connections, as many as there are requests at the same time. Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    pool: Arc<Pool>,
}

struct Pool {
    authority: String,
    lines: Mutex<Lines>,
    answer: Box<dyn Fn(Answer) + Send + Sync>,
}

/// The connections: those that wait for work, the last used last, and how many there are in all.
#[derive(Default)]
struct Lines {
    idle: Vec<mpsc::Sender<Job>>,
    count: usize,
}

impl Sender {
    /// To the order service; what became of a request is told to `answer`.
    pub fn new(reach: &Reach, answer: impl Fn(Answer) + Send + Sync + 'static) -> Self {
        let authority = reach.authority_of(Member::ORDER);
        Self { pool: Arc::new(Pool { authority, lines: Mutex::default(), answer: Box::new(answer) }) }
    }

    /// Sends a request. `false` when no connection is free and there can be no more.
    pub fn send(&self, number: u64, request: Request) -> bool {
        let mut job = Job { number, request, sent: Instant::now() };
        let mut lines = self.pool.lines.lock();
        while let Some(idle) = lines.idle.pop() {
            match idle.try_send(job) {
                Ok(()) => return true,
                // That one has ended since: the other side closed it.
                Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => {
                    job = back;
                }
            }
        }
        if lines.count >= CONNECTIONS {
            return false;
        }
        lines.count += 1;
        tokio::spawn(self.clone().run_line(job));
        true
    }

    /// A connection, from its first request on.
    async fn run_line(self, first: Job) {
        let (itself, mut jobs) = mpsc::channel(1);
        let opened = timeout(TIMEOUT, Line::open(&self.pool.authority)).await;
        if let Ok(Ok(mut line)) = opened {
            let mut next = Some(first);
            while let Some(job) = next {
                let outcome = timeout(TIMEOUT, line.exchange(&self.pool.authority, &job.request)).await;
                let is_broken = !matches!(outcome, Ok(Ok(_)));
                self.tell(
                    &job,
                    match outcome {
                        Ok(Ok(answer)) => answer,
                        Ok(Err(_broke)) => Err(Refused::broken("connection broke")),
                        Err(_elapsed) => Err(Refused::broken("no answer in time")),
                    },
                );
                if is_broken {
                    break;
                }
                self.pool.lines.lock().idle.push(itself.clone());
                next = tokio::select! {
                    job = jobs.recv() => job,
                    () = line.closed() => None,
                };
            }
            // Closed by the other side, and at the same moment given a request: that goes out anew.
            jobs.close();
            self.pool.lines.lock().count -= 1;
            if let Ok(Job { number, request, sent }) = jobs.try_recv() {
                let is_placing = matches!(request, Request::Place(_));
                if !self.send(number, request) {
                    let outcome = Err(Refused::broken("shed by the generator"));
                    (self.pool.answer)(Answer { number, sent, outcome, is_placing });
                }
            }
        } else {
            self.pool.lines.lock().count -= 1;
            self.tell(&first, Err(Refused::broken("no connection")));
        }
    }

    fn tell(&self, job: &Job, outcome: Result<Uuid, Refused>) {
        let is_placing = matches!(job.request, Request::Place(_));
        (self.pool.answer)(Answer { number: job.number, sent: job.sent, outcome, is_placing });
    }
}

/// A connection.
struct Line {
    stream: TcpStream,
    out: Vec<u8>,
    answer: Vec<u8>,
}

impl Line {
    async fn open(authority: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, out: Vec::with_capacity(512), answer: Vec::with_capacity(4 * 1024) })
    }

    /// Until the other side closes it, or says what nobody asked for.
    async fn closed(&self) {
        // An error is an end, too.
        let _ = self.stream.readable().await;
    }

    async fn exchange(&mut self, host: &str, request: &Request) -> anyhow::Result<Result<Uuid, Refused>> {
        self.out.clear();
        write_request(&mut self.out, host, request);
        self.stream.write_all(&self.out).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 || self.answer.len() > LONGEST_ANSWER {
                bail!("the answer has no end");
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

/// What an answer says, once all of it is there.
fn outcome_of(answer: &[u8], request: &Request) -> anyhow::Result<Option<Result<Uuid, Refused>>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
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
        let may_come_again = status == 503 && value("retry-after").is_some();
        return Ok(Some(Err(Refused { reason: status.to_string(), may_come_again })));
    }
    let order = match request {
        Request::Cancel(order) => *order,
        Request::Place(_) => {
            let location = value("location").context("an order without a place")?;
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

    fn outcome(answer: &str) -> Option<Result<Uuid, Refused>> {
        outcome_of(answer.as_bytes(), &Request::Place(String::new())).expect("an answer")
    }

    #[test]
    fn an_answer_counts_once_all_of_it_is_there() {
        for end in 0..PLACED.len() {
            assert_eq!(outcome(&PLACED[..end]), None, "{end}");
        }
        let order = Uuid::from_u128(0x0189_0000_0000_7000_8000_0000_0000_0001);
        assert_eq!(outcome(PLACED), Some(Ok(order)));
    }

    #[test]
    fn who_is_refused_knows_whether_to_come_again() {
        let refused = |head: &str| outcome(&format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n"));
        let said =
            |reason: &str, may_come_again| Some(Err(Refused { reason: reason.to_owned(), may_come_again }));
        assert_eq!(refused("503 Service Unavailable\r\nretry-after: 5"), said("503", true));
        assert_eq!(refused("503 Service Unavailable"), said("503", false));
        assert_eq!(refused("422 Unprocessable\r\nretry-after: 5"), said("422", false));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for bad in
            ["nonsense\r\n\r\n", "HTTP/1.1 202 A\r\n\r\n", "HTTP/1.1 202 A\r\ncontent-length: 0\r\n\r\n"]
        {
            assert!(outcome_of(bad.as_bytes(), &Request::Place(String::new())).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_is_one_piece_of_http() {
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
