-- History of all rows: append-only. A row's state equals the fold of its events. `is_published` marks events whose
-- batch also stored a message about them.
CREATE TABLE event (
    seq          INTEGER PRIMARY KEY,
    kind         TEXT    NOT NULL,
    row_id       TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    data         TEXT    NOT NULL,
    causation_id BLOB    NOT NULL,
    recorded_at  INTEGER NOT NULL,
    is_published INTEGER NOT NULL DEFAULT FALSE
);
CREATE UNIQUE INDEX event_by_row ON event (kind, row_id, version);

-- Messages to publish, in the order of `seq`. Published entries stay for a while, to be published again to a broker that
-- lost them.
--
-- `status` is null for an entry that is published in sequence: it is published if the last `publication` covers it, and
-- pending otherwise. Publishing in sequence thus writes nothing to the entries. Other entries are out of sequence:
-- FAILED     the broker rejected the message;
-- BLOCKED    waits behind a failed entry of its saga;
-- RETRY      failed or blocked before, to be published next;
-- REPUBLISH  published before, to be published once more.
-- `published_at` is set on entries that were published out of sequence.
-- `trace` is the trace context of the cause (W3C Trace Context): 16 bytes of trace id, 8 of span id, 1 of flags.
--
-- The check has its null test first: SQLite builds a temporary table for a list of values each time it evaluates one.
CREATE TABLE outbox (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL,
    saga         BLOB    NOT NULL,
    subject      TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    status       TEXT    CHECK (status IS NULL OR status IN ('FAILED', 'BLOCKED', 'RETRY', 'REPUBLISH')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    last_error   TEXT,
    created_at   INTEGER NOT NULL,
    published_at INTEGER,
    trace        BLOB
);
CREATE INDEX outbox_out_of_sequence ON outbox (status, seq) WHERE status IS NOT NULL;
CREATE INDEX outbox_blocked_saga ON outbox (saga) WHERE status IN ('FAILED', 'BLOCKED');
CREATE INDEX outbox_published_out_of_sequence ON outbox (seq, published_at) WHERE published_at IS NOT NULL;

-- Progress of publishing in sequence: all entries up to and including `up_to` were published by `published_at`.
CREATE TABLE publication (
    up_to        INTEGER PRIMARY KEY,
    published_at INTEGER NOT NULL
);
CREATE INDEX publication_by_time ON publication (published_at);

-- Leases of this database. `fence` grows with each change of the owner.
CREATE TABLE lease (
    name  TEXT    PRIMARY KEY,
    owner TEXT    NOT NULL,
    fence INTEGER NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;

-- Messages that a step has processed. Message ids begin with the time of their saga, so that the oldest ids of a step
-- come first; an index by age would cost as much as the table.
CREATE TABLE inbox (
    step       TEXT    NOT NULL,
    message_id BLOB    NOT NULL,
    handled_at INTEGER NOT NULL,
    PRIMARY KEY (step, message_id)
) WITHOUT ROWID;

-- Position from which the next trim reads the inbox of a step.
CREATE TABLE inbox_scan (
    step    TEXT PRIMARY KEY,
    next_id BLOB NOT NULL
) WITHOUT ROWID;

-- Messages that failed and will be tried again. `delivery` and `dead_letter_id` are set for replays of dead letters.
CREATE TABLE retry (
    step            TEXT    NOT NULL,
    message_id      BLOB    NOT NULL,
    payload         BLOB    NOT NULL,
    attempts        INTEGER NOT NULL,
    next_attempt    INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    last_error      TEXT    NOT NULL,
    delivery        TEXT,
    dead_letter_id  BLOB,
    PRIMARY KEY (step, message_id)
) WITHOUT ROWID;
CREATE INDEX retry_by_time ON retry (next_attempt);

-- Calls to make after the commit. A worker claims a task by a lease; `claim` is its fencing token.
CREATE TABLE task (
    id             BLOB    PRIMARY KEY,
    kind           TEXT    NOT NULL,
    correlation_id BLOB    NOT NULL,
    payload        TEXT    NOT NULL,
    attempts       INTEGER NOT NULL,
    claim          INTEGER NOT NULL,
    owner          TEXT,
    lease_until    INTEGER,
    next_attempt   INTEGER NOT NULL,
    last_error     TEXT,
    created_at     INTEGER NOT NULL,
    dead_letter_id BLOB,
    trace          BLOB
) WITHOUT ROWID;
CREATE INDEX task_by_time ON task (next_attempt);

-- Dead letters. `status` is PENDING, REPLAYING, RESOLVED or DISCARDED; `revision` is that of the operator's last request;
-- `content` is the dead letter as JSON.
CREATE TABLE dead_letter (
    id             BLOB    PRIMARY KEY,
    step           TEXT    NOT NULL,
    message_id     BLOB    NOT NULL,
    saga           BLOB,
    status         TEXT    NOT NULL DEFAULT 'PENDING',
    origin         TEXT    NOT NULL,
    revision       INTEGER NOT NULL DEFAULT 0,
    content        TEXT    NOT NULL,
    last_failed_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX dead_letter_by_message ON dead_letter (step, message_id);
CREATE INDEX dead_letter_by_status ON dead_letter (status, origin, step);
CREATE INDEX dead_letter_by_time ON dead_letter (last_failed_at);

-- Replies to commands that carried an Idempotency-Key.
CREATE TABLE idempotency_key (
    key         TEXT    PRIMARY KEY,
    fingerprint TEXT    NOT NULL,
    reply       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at);

-- Lifetime counts of messages: published by subject, handled by step, and discarded by step (of purged dead letters).
CREATE TABLE message_count (
    outcome TEXT    NOT NULL CHECK (outcome IN ('published', 'handled', 'discarded')),
    name    TEXT    NOT NULL,
    count   INTEGER NOT NULL,
    PRIMARY KEY (outcome, name)
) WITHOUT ROWID;

-- Declarations from which the tables of the row kinds were created.
CREATE TABLE row_kind (
    name   TEXT PRIMARY KEY,
    fields TEXT NOT NULL
) WITHOUT ROWID;

-- Service that owns the database, and the id of the database: one row.
CREATE TABLE identity (
    service TEXT NOT NULL,
    id      BLOB NOT NULL
);

-- Losses of data that operators accepted, by name. What the service did before, for sagas that began before, may be forgotten.
CREATE TABLE accepted_loss (
    name        TEXT PRIMARY KEY,
    accepted_at INTEGER NOT NULL
) WITHOUT ROWID;

-- State of a row from which its fold begins once earlier events were purged.
CREATE TABLE snapshot (
    kind       TEXT    NOT NULL,
    row_id     TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- Last event that the retention scan has seen: one row.
CREATE TABLE retention_scan (up_to INTEGER NOT NULL);
INSERT INTO retention_scan (up_to) VALUES (0);

-- Finished rows that the retention scan has passed, but could not purge yet: work of their saga was open.
CREATE TABLE held_row (
    kind   TEXT NOT NULL,
    row_id TEXT NOT NULL,
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- Finished rows of sagas with lower ids may have been purged: one row or none. The first 48 bits of a saga id are its time.
CREATE TABLE purged_before (saga BLOB NOT NULL);

-- Sums over purged rows.
CREATE TABLE purged_sum (
    kind TEXT    NOT NULL,
    name TEXT    NOT NULL,
    sum  INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Purged rows whose events were restored from the archive. The rebuild of their kind takes them out of `purged_sum`.
CREATE TABLE restored_row (
    kind   TEXT NOT NULL,
    row_id TEXT NOT NULL,
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- Overrides by operators, such as forced circuit breakers: one row. `revision` grows with each change.
CREATE TABLE overrides (
    revision INTEGER NOT NULL,
    text     TEXT    NOT NULL
);
INSERT INTO overrides (revision, text) VALUES (0, '{}');
