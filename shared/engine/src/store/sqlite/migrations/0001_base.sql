-- History: append-only, kept. A row's state is the fold of its events.
CREATE TABLE event (
    seq          INTEGER PRIMARY KEY,
    kind         TEXT    NOT NULL,
    row_id       TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    data         TEXT    NOT NULL,
    causation_id BLOB    NOT NULL,
    recorded_at  INTEGER NOT NULL,
    published_at INTEGER
);
CREATE UNIQUE INDEX event_by_row ON event (kind, row_id, version);

-- Promises to publish: only what is not published yet.
CREATE TABLE outbox (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL,
    event_seq    INTEGER,
    subject      TEXT    NOT NULL,
    payload      BLOB    NOT NULL,
    status       TEXT    NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'FAILED')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    next_attempt INTEGER NOT NULL DEFAULT 0,
    last_error   TEXT,
    created_at   INTEGER NOT NULL
);

-- Who may publish from this database, until when. The fence grows with each taking.
CREATE TABLE lease (
    name  TEXT    PRIMARY KEY,
    owner TEXT    NOT NULL,
    fence INTEGER NOT NULL,
    until INTEGER NOT NULL
) WITHOUT ROWID;

-- Ids that a step has handled.
CREATE TABLE inbox (
    step       TEXT    NOT NULL,
    message_id BLOB    NOT NULL,
    handled_at INTEGER NOT NULL,
    PRIMARY KEY (step, message_id)
) WITHOUT ROWID;
CREATE INDEX inbox_by_age ON inbox (handled_at);

-- Messages that failed and will be tried again.
CREATE TABLE retry (
    step            TEXT    NOT NULL,
    message_id      BLOB    NOT NULL,
    payload         BLOB    NOT NULL,
    attempts        INTEGER NOT NULL,
    next_attempt    INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    last_error      TEXT    NOT NULL,
    PRIMARY KEY (step, message_id)
) WITHOUT ROWID;
CREATE INDEX retry_by_time ON retry (next_attempt);

-- Notes to oneself to call the outside after the commit.
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
    created_at     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX task_by_time ON task (next_attempt);

-- Inputs parked for a human.
CREATE TABLE dead_letter (
    id             BLOB    PRIMARY KEY,
    step           TEXT    NOT NULL,
    message_id     BLOB    NOT NULL,
    status         TEXT    NOT NULL DEFAULT 'PENDING',
    letter         TEXT    NOT NULL,
    last_failed_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX dead_letter_by_message ON dead_letter (step, message_id);

-- Answers given under an Idempotency-Key.
CREATE TABLE idempotency_key (
    key         TEXT    PRIMARY KEY,
    fingerprint TEXT    NOT NULL,
    reply       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at);

-- How many facts were published per subject, and handled per step: counts that outlive trimming.
CREATE TABLE tally (
    what  TEXT    NOT NULL CHECK (what IN ('published', 'handled')),
    name  TEXT    NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (what, name)
) WITHOUT ROWID;

-- The declarations that the row tables were made from.
CREATE TABLE row_kind (
    name   TEXT PRIMARY KEY,
    fields TEXT NOT NULL
) WITHOUT ROWID;
