//! Pure: declarations of the metrics that every service has, for scrapes, dashboards and alerts. Services declare their
//! own in addition. A gauge is NaN while its value is unknown.

#![expect(missing_docs, reason = "each metric is described by its help text")]

use saga_core::metric::Metric;

/// Histogram bounds for durations, from a fifth of a millisecond to ten seconds.
pub const QUICK: &[f64] =
    &[0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Histogram bounds for batch sizes.
pub const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

// Inputs.

pub const INPUTS: Metric = Metric::counter(
    "saga_input_total",
    &["step", "outcome"],
    "Inputs processed, by step (a step, a task, command, due) and outcome: done, duplicate, rejected, retried, dead_lettered; of \
     a command done, replayed, rejected, key_reused, faulted; of due done, rejected, faulted",
);
pub const STEP_DURATION: Metric = Metric::histogram(
    "step_duration_seconds",
    &["step"],
    QUICK,
    "Time from accepting an input until its outcome is durable, by step",
);
pub const FOREIGN_MESSAGES: Metric = Metric::counter(
    "message_foreign_total",
    &["step"],
    "Messages of unknown producers that were dead-lettered, by the step that received them",
);

// The store.

pub const COMMIT_DURATION: Metric = Metric::histogram(
    "store_commit_duration_seconds",
    &[],
    QUICK,
    "Duration of one transaction of the engine, including the wait for the writer",
);
pub const STORE_FAULTS: Metric =
    Metric::counter("store_faults_total", &[], "Batches that could not be stored");
pub const BATCH_INPUTS: Metric =
    Metric::histogram("engine_batch_inputs", &[], SIZES, "Inputs in one transaction");
pub const ENGINE_QUEUE: Metric =
    Metric::gauge("engine_queue_inputs", &[], "Inputs that wait for a transaction");

// The outbox.

pub const OUTBOX_WRITTEN: Metric =
    Metric::counter("outbox_written_total", &[], "Messages written to the outbox");
pub const OUTBOX_PUBLISHED: Metric =
    Metric::counter("outbox_published_total", &[], "Messages of the outbox that the broker acknowledged");
pub const OUTBOX_REJECTED: Metric = Metric::counter(
    "outbox_rejected_total",
    &[],
    "Messages that the broker rejected while it accepted others; they wait for an operator",
);
pub const IN_FLIGHT: Metric = Metric::gauge(
    "saga_in_flight",
    &[],
    "Sagas of this service that have begun and not ended, of all replicas, as its own database has them; NaN where they are not counted",
);
pub const OUTBOX_PENDING: Metric =
    Metric::gauge("outbox_pending", &[], "Messages of the outbox that wait to be published");
pub const OUTBOX_FAILED: Metric = Metric::gauge(
    "outbox_failed",
    &[],
    "Messages that the broker rejected, and those of their sagas that are blocked behind them",
);
pub const STORE_FREE_BYTES: Metric =
    Metric::gauge("store_free_bytes", &[], "Free bytes on the disk of a SQLite database, NaN where unknown");
pub const STORE_LOG_BYTES: Metric = Metric::gauge(
    "store_log_bytes",
    &[],
    "Size of the write-ahead log of a SQLite database, NaN where unknown",
);
pub const OUTBOX_OLDEST_AGE: Metric = Metric::gauge(
    "outbox_oldest_pending_age_seconds",
    &[],
    "Age of the oldest message that waits to be published, 0 without one",
);
pub const PUBLISH_DURATION: Metric = Metric::histogram(
    "outbox_publish_duration_seconds",
    &[],
    QUICK,
    "Time from sending a batch of messages until the broker has acknowledged them; not recorded when it rejects all",
);
pub const PUBLISH_MESSAGES: Metric = Metric::histogram(
    "outbox_publish_messages",
    &[],
    SIZES,
    "Messages of one batch that the broker acknowledged; not recorded when it rejects all",
);

// Retries and dead letters.

pub const RETRIES_WAITING: Metric = Metric::gauge("retry_waiting", &[], "Messages that wait for a retry");
pub const DEAD_LETTERS_UNRESOLVED: Metric = Metric::gauge(
    "dead_letter_unresolved",
    &[],
    "Dead letters of this service that wait for an operator or are being replayed",
);

// Tasks.

pub const TASK_CALLS: Metric = Metric::counter(
    "task_call_total",
    &["task", "outcome"],
    "Task calls, by kind of task and outcome: answered, rejected (permanently) or failed",
);
pub const TASK_CALL_DURATION: Metric = Metric::histogram(
    "task_call_duration_seconds",
    &["task"],
    QUICK,
    "Duration of one task call, by kind of task",
);
pub const TASKS_OPEN: Metric =
    Metric::gauge("task_open", &[], "Tasks that are not finished: waiting, in flight, or to be retried");
pub const TASK_OLDEST_AGE: Metric =
    Metric::gauge("task_oldest_open_age_seconds", &[], "Age of the oldest open task, 0 without one");

// Breakers.

pub const BREAKER_STATE: Metric = Metric::gauge(
    "breaker_state",
    &["breaker"],
    "0 closed, 1 half-open, 2 open; forced states count like the others",
);
pub const BREAKER_CALLS: Metric = Metric::counter(
    "breaker_calls_total",
    &["breaker", "outcome"],
    "Calls recorded by the breaker, by outcome: success, failure, or ignored, which says nothing about the dependency",
);
pub const BREAKER_NOT_PERMITTED: Metric =
    Metric::counter("breaker_not_permitted_total", &["breaker"], "Calls that the breaker did not permit");
pub const BREAKER_FAILURE_RATIO: Metric = Metric::gauge(
    "breaker_failure_ratio",
    &["breaker"],
    "Share of failed calls in the breaker's window, 0 to 1; 0 below the minimum number of calls",
);

// Consumers.

pub const CONSUMER_LAG: Metric = Metric::gauge(
    "consumer_lag_messages",
    &["consumer"],
    "Facts that the broker has for this consumer and that are not acknowledged, with packs at the average size of those delivered lately; NaN while unknown",
);
pub const REDELIVERIES: Metric = Metric::counter(
    "consumer_redelivery_total",
    &["consumer"],
    "Messages redelivered to this consumer because they were not acknowledged in time",
);

// HTTP.

pub const HTTP_REQUESTS: Metric = Metric::counter(
    "http_request_total",
    &["method", "route", "status"],
    "Requests answered, by method, route template (none when there is no such route) and status; 499: the client closed the connection",
);
pub const HTTP_REQUEST_DURATION: Metric = Metric::histogram(
    "http_request_duration_seconds",
    &["method", "route"],
    QUICK,
    "Time from a request's head until its answer begins, by method and route template; includes its body and waits of Prefer: wait",
);

// The process.

/// Version of the build, a label of [`BUILD`].
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub const READINESS_CHECK: Metric =
    Metric::gauge("readiness_check", &["check"], "State of a check of /readyz: 0 ok, 1 degraded, 2 failed");
pub const CLOCK_OFFSET: Metric = Metric::gauge(
    "clock_offset_seconds",
    &[],
    "Offset of this machine's clock from the broker's; negative when it is late, NaN while unknown",
);
pub const LOG_DROPPED_LINES: Metric = Metric::counter(
    "log_dropped_lines_total",
    &[],
    "Log lines that were dropped because the log could not keep up",
);
pub const TRACE_SPANS: Metric = Metric::counter(
    "trace_span_total",
    &["outcome"],
    "Spans that were to be exported, by outcome: exported, dropped (the queue was full) or failed (the collector rejected them)",
);
pub const BUILD: Metric =
    Metric::gauge("build_info", &["service", "version"], "Always 1; the labels name the build");
pub const CPU: Metric =
    Metric::counter("process_cpu_seconds_total", &[], "CPU time of this process, of user and system");
pub const MEMORY: Metric =
    Metric::gauge("process_resident_memory_bytes", &[], "Resident memory of this process");
pub const OPEN_FILES: Metric =
    Metric::gauge("process_open_fds", &[], "Open files and sockets of this process");
pub const MAX_OPEN_FILES: Metric =
    Metric::gauge("process_max_fds", &[], "Maximum number of open files and sockets");
pub const PROCESS_START: Metric =
    Metric::gauge("process_start_time_seconds", &[], "Start time of this process, in seconds since 1970");

/// Metrics of every service, except those of the [process](PROCESS).
pub const ALL: [&Metric; 37] = [
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
    &IN_FLIGHT,
    &OUTBOX_PENDING,
    &OUTBOX_FAILED,
    &OUTBOX_OLDEST_AGE,
    &STORE_FREE_BYTES,
    &STORE_LOG_BYTES,
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

/// Metrics that are read from the kernel at each scrape.
pub const PROCESS: [&Metric; 5] = [&CPU, &MEMORY, &OPEN_FILES, &MAX_OPEN_FILES, &PROCESS_START];
