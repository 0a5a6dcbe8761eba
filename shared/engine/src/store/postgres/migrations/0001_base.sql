-- Last positions given to events and outbox entries, and a number that grows with each writing transaction: one row. A
-- batch locks it from its first write to its commit, so that positions follow the order of commits, without gaps.
CREATE TABLE head (
    generation bigint NOT NULL,
    event      bigint NOT NULL,
    outbox     bigint NOT NULL
);
INSERT INTO head (generation, event, outbox) VALUES (0, 0, 0);

-- Tokens of committed batches. A process that lost the reply to its COMMIT looks its token up here.
CREATE TABLE batch (
    token        uuid   PRIMARY KEY,
    committed_at bigint NOT NULL
);
CREATE INDEX batch_by_time ON batch (committed_at);

-- History of all rows: append-only. A row's state equals the fold of its events. `is_published` marks events whose
-- batch also stored a message about them.
CREATE TABLE event (
    seq          bigint           PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL,
    row_id       text COLLATE "C" NOT NULL,
    version      bigint           NOT NULL,
    name         text             NOT NULL,
    data         text             NOT NULL,
    causation_id uuid             NOT NULL,
    recorded_at  bigint           NOT NULL,
    is_published boolean          NOT NULL DEFAULT false
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
CREATE TABLE outbox (
    seq          bigint PRIMARY KEY,
    id           uuid   NOT NULL,
    saga         uuid   NOT NULL,
    subject      text   NOT NULL,
    payload      bytea  NOT NULL,
    status       text   CHECK (status IS NULL OR status IN ('FAILED', 'BLOCKED', 'RETRY', 'REPUBLISH')),
    attempts     bigint NOT NULL DEFAULT 0,
    last_error   text,
    created_at   bigint NOT NULL,
    published_at bigint,
    trace        bytea
);
CREATE INDEX outbox_out_of_sequence ON outbox (status, seq) WHERE status IS NOT NULL;
CREATE INDEX outbox_blocked_saga ON outbox (saga) WHERE status IN ('FAILED', 'BLOCKED');
CREATE INDEX outbox_published_out_of_sequence ON outbox (seq, published_at) WHERE published_at IS NOT NULL;

-- Progress of publishing in sequence: all entries up to and including `up_to` were published by `published_at`.
CREATE TABLE publication (
    up_to        bigint PRIMARY KEY,
    published_at bigint NOT NULL
);
CREATE INDEX publication_by_time ON publication (published_at);

-- Leases of this database. `fence` grows with each change of the owner.
CREATE TABLE lease (
    name  text   PRIMARY KEY,
    owner text   NOT NULL,
    fence bigint NOT NULL,
    until bigint NOT NULL
);

-- Messages that a step has processed. Message ids begin with the time of their saga, so that the oldest ids of a step
-- come first; an index by age would cost as much as the table.
CREATE TABLE inbox (
    step       text COLLATE "C" NOT NULL,
    message_id uuid             NOT NULL,
    handled_at bigint           NOT NULL,
    PRIMARY KEY (step, message_id)
);

-- Position from which the next trim reads the inbox of a step.
CREATE TABLE inbox_scan (
    step    text COLLATE "C" PRIMARY KEY,
    next_id uuid             NOT NULL
);

-- Messages that failed and will be tried again. `delivery` and `dead_letter_id` are set for replays of dead letters. A due
-- retry is handed to one process at a time: to `owner` until `claimed_until`.
CREATE TABLE retry (
    step            text COLLATE "C" NOT NULL,
    message_id      uuid             NOT NULL,
    payload         bytea            NOT NULL,
    attempts        bigint           NOT NULL,
    next_attempt    bigint           NOT NULL,
    first_failed_at bigint           NOT NULL,
    last_error      text             NOT NULL,
    delivery        text,
    dead_letter_id  uuid,
    owner           text,
    claimed_until   bigint,
    PRIMARY KEY (step, message_id)
);
CREATE INDEX retry_by_time ON retry (next_attempt);

-- Calls to make after the commit. A worker claims a task by a lease; `claim` is its fencing token.
CREATE TABLE task (
    id             uuid   PRIMARY KEY,
    kind           text   NOT NULL,
    correlation_id uuid   NOT NULL,
    payload        text   NOT NULL,
    attempts       bigint NOT NULL,
    claim          bigint NOT NULL,
    owner          text,
    lease_until    bigint,
    next_attempt   bigint NOT NULL,
    last_error     text,
    created_at     bigint NOT NULL,
    dead_letter_id uuid,
    trace          bytea
);
CREATE INDEX task_by_time ON task (next_attempt);
CREATE INDEX task_by_lease ON task (lease_until) WHERE lease_until IS NOT NULL;

-- Dead letters. `status` is PENDING, REPLAYING, RESOLVED or DISCARDED; `revision` is that of the operator's last request;
-- `content` is the dead letter as JSON.
CREATE TABLE dead_letter (
    id             uuid             PRIMARY KEY,
    step           text COLLATE "C" NOT NULL,
    message_id     uuid             NOT NULL,
    saga           uuid,
    status         text             NOT NULL DEFAULT 'PENDING',
    origin         text             NOT NULL,
    revision       bigint           NOT NULL DEFAULT 0,
    content        text             NOT NULL,
    last_failed_at bigint           NOT NULL
);
CREATE UNIQUE INDEX dead_letter_by_message ON dead_letter (step, message_id);
CREATE INDEX dead_letter_by_status ON dead_letter (status, origin, step);
CREATE INDEX dead_letter_by_time ON dead_letter (last_failed_at);

-- Replies to commands that carried an Idempotency-Key.
CREATE TABLE idempotency_key (
    key         text COLLATE "C" PRIMARY KEY,
    fingerprint text             NOT NULL,
    reply       text             NOT NULL,
    created_at  bigint           NOT NULL
);
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at);

-- Lifetime counts of messages: published by subject, handled by step, and discarded by step (of purged dead letters).
CREATE TABLE message_count (
    outcome text             NOT NULL CHECK (outcome IN ('published', 'handled', 'discarded')),
    name    text COLLATE "C" NOT NULL,
    count   bigint           NOT NULL,
    PRIMARY KEY (outcome, name)
);

-- Declarations from which the tables of the row kinds were created.
CREATE TABLE row_kind (
    name   text PRIMARY KEY,
    fields text NOT NULL
);

-- Service that owns the database, and the id of the database: one row.
CREATE TABLE identity (
    service text NOT NULL,
    id      uuid NOT NULL
);

-- Losses of data that operators accepted, by name. What the service did before, for sagas that began before, may be forgotten.
CREATE TABLE accepted_loss (
    name        text   PRIMARY KEY,
    accepted_at bigint NOT NULL
);

-- State of a row from which its fold begins once earlier events were purged.
CREATE TABLE snapshot (
    kind       text COLLATE "C" NOT NULL,
    row_id     text COLLATE "C" NOT NULL,
    version    bigint           NOT NULL,
    state      text             NOT NULL,
    created_at bigint           NOT NULL,
    PRIMARY KEY (kind, row_id)
);

-- Last event that the retention scan has seen: one row.
CREATE TABLE retention_scan (up_to bigint NOT NULL);
INSERT INTO retention_scan (up_to) VALUES (0);

-- Finished rows that the retention scan has passed, but could not purge yet: work of their saga was open.
CREATE TABLE held_row (
    kind   text COLLATE "C" NOT NULL,
    row_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, row_id)
);

-- Finished rows of sagas with lower ids may have been purged: one row or none. The first 48 bits of a saga id are its time.
CREATE TABLE purged_before (saga uuid NOT NULL);

-- Sums over purged rows.
CREATE TABLE purged_sum (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    sum  bigint           NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Purged rows whose events were restored from the archive. The rebuild of their kind takes them out of `purged_sum`.
CREATE TABLE restored_row (
    kind   text COLLATE "C" NOT NULL,
    row_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, row_id)
);

-- Overrides by operators, such as forced circuit breakers: one row. `revision` grows with each change.
CREATE TABLE overrides (
    revision bigint NOT NULL,
    text     text   NOT NULL
);
INSERT INTO overrides (revision, text) VALUES (0, '{}');
