//! Pure: every metric that each service has, by name: what Prometheus scrapes, dashboards show and alerts stand on. What a
//! service counts of its own trade it declares itself. A gauge is NaN while what it tells is not known.

use saga_core::metric::Metric;

/// Bounds for what is quick when all is well: from a fifth of a millisecond to ten seconds.
pub const QUICK: &[f64] =
    &[0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Bounds for how many at once: up to what one batch holds.
pub const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

// Inputs.

/// What became of each input.
pub const INPUTS: Metric = Metric::counter(
    "saga_input_total",
    &["step", "outcome"],
    "Inputs settled, by what reacted (a step, a task, command, due) and outcome: done, duplicate, rejected, retried, dead; of \
     a command done, replayed, rejected, key_reused, faulted; of due done, rejected, faulted",
);
/// How long a step takes.
pub const STEP_DURATION: Metric = Metric::histogram(
    "step_duration_seconds",
    &["step"],
    QUICK,
    "Time from taking an input in until its outcome is durable, by what reacted",
);
/// Messages of nobody.
pub const FOREIGN_MESSAGES: Metric = Metric::counter(
    "message_foreign_total",
    &["step"],
    "Messages parked that nobody of this system sent, by the step that heard them",
);

// The store.

/// How long a commit takes.
pub const COMMIT_DURATION: Metric = Metric::histogram(
    "store_commit_duration_seconds",
    &[],
    QUICK,
    "Time of one transaction of the engine, waiting for the writer included",
);
/// What could not be stored.
pub const STORE_FAULTS: Metric =
    Metric::counter("store_faults_total", &[], "Batches that could not be stored");
/// How much goes into one transaction.
pub const BATCH_INPUTS: Metric =
    Metric::histogram("engine_batch_inputs", &[], SIZES, "Inputs in one transaction");
/// What waits for the engine.
pub const ENGINE_QUEUE: Metric =
    Metric::gauge("engine_queue_inputs", &[], "Inputs that wait for their transaction");

// The outbox.

/// What was promised.
pub const OUTBOX_WRITTEN: Metric =
    Metric::counter("outbox_written_total", &[], "Messages promised: written to the outbox");
/// What was kept of that.
pub const OUTBOX_PUBLISHED: Metric =
    Metric::counter("outbox_published_total", &[], "Messages of the outbox that the broker has taken");
/// What the broker does not take.
pub const OUTBOX_REJECTED: Metric = Metric::counter(
    "outbox_rejected_total",
    &[],
    "Messages that the broker does not take though it takes others: they wait for an operator",
);
/// What waits.
pub const OUTBOX_PENDING: Metric =
    Metric::gauge("outbox_pending", &[], "Messages of the outbox that wait to be published");
/// What waits for an operator.
pub const OUTBOX_FAILED: Metric = Metric::gauge(
    "outbox_failed",
    &[],
    "Messages that the broker refused, and those of their sagas that are held behind them",
);
/// How long the oldest has waited.
pub const OUTBOX_OLDEST_AGE: Metric = Metric::gauge(
    "outbox_oldest_pending_age_seconds",
    &[],
    "Age of the oldest message that waits to be published, 0 when none does",
);
/// How long the broker takes.
pub const PUBLISH_DURATION: Metric = Metric::histogram(
    "outbox_publish_duration_seconds",
    &[],
    QUICK,
    "Time from handing a batch of messages to the broker until it has said which of them it takes; none when it takes none",
);
/// How much goes at once.
pub const PUBLISH_MESSAGES: Metric = Metric::histogram(
    "outbox_publish_messages",
    &[],
    SIZES,
    "Messages that the broker took of one batch; none when it takes none",
);

// What waits for another time.

/// Retries.
pub const RETRIES_WAITING: Metric = Metric::gauge("retry_waiting", &[], "Messages that wait for another try");
/// Dead letters of this service.
pub const DEAD_LETTERS_UNRESOLVED: Metric = Metric::gauge(
    "dead_letter_unresolved",
    &[],
    "Dead letters of this service that wait for a human or are being replayed",
);

// Calls to the outside.

/// What became of each call.
pub const TASK_CALLS: Metric = Metric::counter(
    "task_call_total",
    &["task", "outcome"],
    "Calls to the outside, by kind of task and outcome: answered, refused (for good) or failed",
);
/// How long a call takes.
pub const TASK_CALL_DURATION: Metric = Metric::histogram(
    "task_call_duration_seconds",
    &["task"],
    QUICK,
    "Time of one call to the outside, by kind of task",
);
/// Open tasks.
pub const TASKS_OPEN: Metric =
    Metric::gauge("task_open", &[], "Tasks that are not settled: waiting, under way, or to be tried again");
/// The oldest of them.
pub const TASK_OLDEST_AGE: Metric =
    Metric::gauge("task_oldest_open_age_seconds", &[], "Age of the oldest open task, 0 when there is none");

// Breakers.

/// State of a breaker.
pub const BREAKER_STATE: Metric = Metric::gauge(
    "breaker_state",
    &["breaker"],
    "0 closed, 1 half-open, 2 open; forced states count like the others",
);
/// What it recorded.
pub const BREAKER_CALLS: Metric = Metric::counter(
    "breaker_calls_total",
    &["breaker", "outcome"],
    "Calls recorded by the breaker, by outcome: success, failure, or ignored, which says nothing of the other side",
);
/// What it refused.
pub const BREAKER_NOT_PERMITTED: Metric =
    Metric::counter("breaker_not_permitted_total", &["breaker"], "Calls that the breaker did not permit");
/// How bad it is.
pub const BREAKER_FAILURE_RATIO: Metric = Metric::gauge(
    "breaker_failure_ratio",
    &["breaker"],
    "Failed part of the calls in the breaker's window, 0 to 1; 0 while there are too few to tell",
);

// Consumers.

/// What waits at the broker.
pub const CONSUMER_LAG: Metric = Metric::gauge(
    "consumer_lag_messages",
    &["consumer"],
    "Messages that the broker has for this consumer and that are not acknowledged; NaN while it does not say",
);
/// What came again.
pub const REDELIVERIES: Metric = Metric::counter(
    "consumer_redelivery_total",
    &["consumer"],
    "Messages delivered to this consumer once more, as the broker had not heard of them in time",
);

// HTTP.

/// Answers.
pub const HTTP_REQUESTS: Metric = Metric::counter(
    "http_request_total",
    &["method", "route", "status"],
    "Requests answered, by method, route template (none when there is no such route) and status; 499: who asked hung up",
);
/// How long an answer takes.
pub const HTTP_REQUEST_DURATION: Metric = Metric::histogram(
    "http_request_duration_seconds",
    &["method", "route"],
    QUICK,
    "Time from a request's head until its answer begins, by method and route template; its body, and what waits by Prefer: wait, included",
);

// The process.

/// What runs, as [`BUILD`] says it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Readiness, check by check.
pub const READINESS_CHECK: Metric =
    Metric::gauge("readiness_check", &["check"], "How a check of /readyz stands: 0 ok, 1 degraded, 2 failed");
/// The clock.
pub const CLOCK_OFFSET: Metric = Metric::gauge(
    "clock_offset_seconds",
    &[],
    "How far this machine's clock is ahead of the broker's; negative when it is behind, NaN while the broker does not say",
);
/// The log.
pub const LOG_DROPPED_LINES: Metric = Metric::counter(
    "log_dropped_lines_total",
    &[],
    "Lines that the log could not take, as it did not keep up",
);
/// Traces.
pub const TRACE_SPANS: Metric = Metric::counter(
    "trace_span_total",
    &["outcome"],
    "Spans that were to be exported, by outcome: exported, dropped (the queue was full) or failed (the collector did not take them)",
);
/// The build.
pub const BUILD: Metric =
    Metric::gauge("build_info", &["service", "version"], "Always 1; the labels say what runs");
/// CPU time.
pub const CPU: Metric =
    Metric::counter("process_cpu_seconds_total", &[], "CPU time of this process, of user and system");
/// Memory.
pub const MEMORY: Metric =
    Metric::gauge("process_resident_memory_bytes", &[], "Memory of this process that is not swapped out");
/// Files.
pub const OPEN_FILES: Metric =
    Metric::gauge("process_open_fds", &[], "Files, sockets and the like that are open");
/// Their limit.
pub const MAX_OPEN_FILES: Metric = Metric::gauge("process_max_fds", &[], "How many of them may be open");
/// Since when.
pub const PROCESS_START: Metric =
    Metric::gauge("process_start_time_seconds", &[], "When this process started, in seconds since 1970");

/// All of them but those that [the process](PROCESS) is asked for.
pub const ALL: [&Metric; 34] = [
    &INPUTS,
    &STEP_DURATION,
    &FOREIGN_MESSAGES,
    &COMMIT_DURATION,
    &STORE_FAULTS,
    &BATCH_INPUTS,
    &ENGINE_QUEUE,
    &OUTBOX_WRITTEN,
    &OUTBOX_PUBLISHED,
    &OUTBOX_REJECTED,
    &OUTBOX_PENDING,
    &OUTBOX_FAILED,
    &OUTBOX_OLDEST_AGE,
    &PUBLISH_DURATION,
    &PUBLISH_MESSAGES,
    &RETRIES_WAITING,
    &DEAD_LETTERS_UNRESOLVED,
    &TASK_CALLS,
    &TASK_CALL_DURATION,
    &TASKS_OPEN,
    &TASK_OLDEST_AGE,
    &BREAKER_STATE,
    &BREAKER_CALLS,
    &BREAKER_NOT_PERMITTED,
    &BREAKER_FAILURE_RATIO,
    &CONSUMER_LAG,
    &REDELIVERIES,
    &HTTP_REQUESTS,
    &HTTP_REQUEST_DURATION,
    &READINESS_CHECK,
    &CLOCK_OFFSET,
    &LOG_DROPPED_LINES,
    &TRACE_SPANS,
    &BUILD,
];

/// What the kernel says of the process at each scrape.
pub const PROCESS: [&Metric; 5] = [&CPU, &MEMORY, &OPEN_FILES, &MAX_OPEN_FILES, &PROCESS_START];
