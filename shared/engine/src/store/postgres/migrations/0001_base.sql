-- How far everything has come: one row. Who writes a batch holds it from its first write to its commit, so that positions
-- are given in the order of the commits, and without a gap.
CREATE TABLE head (
    generation bigint NOT NULL,
    event      bigint NOT NULL,
    outbox     bigint NOT NULL
);
INSERT INTO head (generation, event, outbox) VALUES (0, 0, 0);

-- Batches that were committed, by tokens of their own: whoever has lost the answer to a commit finds out here.
CREATE TABLE batch (
    token        uuid   PRIMARY KEY,
    committed_at bigint NOT NULL
);
CREATE INDEX batch_by_time ON batch (committed_at);

-- History: append-only, kept. A row's state is the fold of its events. What is `told`, a message tells the others.
CREATE TABLE event (
    seq          bigint  PRIMARY KEY,
    kind         text    COLLATE "C" NOT NULL,
    row_id       text    COLLATE "C" NOT NULL,
    version      bigint  NOT NULL,
    name         text    NOT NULL,
    data         text    NOT NULL,
    causation_id uuid    NOT NULL,
    recorded_at  bigint  NOT NULL,
    told         boolean NOT NULL
);
CREATE UNIQUE INDEX event_by_row ON event (kind, row_id, version);

-- Promises to publish, a line: an entry is 'PENDING' in its place, and what the last publication has come past is published.
-- Whatever stands out of line says so: 'FAILED' (refused by the broker), 'HELD' (behind a failed one of its saga), 'RETRY'
-- (to be tried again) and 'REPUBLISH' (published before, to be published once more). `published_at` is of those that were
-- published later than their neighbours, or once more; `trace` is where its cause stands in its trace (W3C Trace Context).
CREATE TABLE outbox (
    seq          bigint  PRIMARY KEY,
    id           uuid    NOT NULL,
    saga         uuid    NOT NULL,
    subject      text    NOT NULL,
    payload      bytea   NOT NULL,
    status       text    NOT NULL DEFAULT 'PENDING'
                 CHECK (status IN ('PENDING', 'FAILED', 'HELD', 'RETRY', 'REPUBLISH')),
    attempts     integer NOT NULL DEFAULT 0,
    last_error   text,
    created_at   bigint  NOT NULL,
    published_at bigint,
    trace        bytea
);
CREATE INDEX outbox_out_of_line ON outbox (status, seq) WHERE status <> 'PENDING';
CREATE INDEX outbox_blocked ON outbox (saga) WHERE status IN ('FAILED', 'HELD');
CREATE INDEX outbox_published_apart ON outbox (seq, published_at) WHERE published_at IS NOT NULL;

-- How far the line was published when: up to and including this entry.
CREATE TABLE publication (
    up_to        bigint PRIMARY KEY,
    published_at bigint NOT NULL
);
CREATE INDEX publication_by_time ON publication (published_at);

-- Who may publish from this database, until when. The fence grows with each taking.
CREATE TABLE lease (
    name  text   PRIMARY KEY,
    owner text   NOT NULL,
    fence bigint NOT NULL,
    until bigint NOT NULL
);

-- Ids that a step has handled. An id begins with the time of its saga: the oldest marks of a step stand first.
CREATE TABLE inbox (
    step       text   COLLATE "C" NOT NULL,
    message_id uuid   NOT NULL,
    handled_at bigint NOT NULL,
    PRIMARY KEY (step, message_id)
);

-- Messages that failed and will be tried again; each is told, once it is due, to one process for a while.
CREATE TABLE retry (
    step            text    COLLATE "C" NOT NULL,
    message_id      uuid    NOT NULL,
    payload         bytea   NOT NULL,
    attempts        bigint  NOT NULL,
    next_attempt    bigint  NOT NULL,
    first_failed_at bigint  NOT NULL,
    last_error      text    NOT NULL,
    delivery        text,
    letter          uuid,
    owner           text,
    told_until      bigint,
    PRIMARY KEY (step, message_id)
);
CREATE INDEX retry_by_time ON retry (next_attempt);

-- Notes to oneself to call the outside after the commit.
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
    letter         uuid,
    trace          bytea
);
CREATE INDEX task_by_time ON task (next_attempt);
CREATE INDEX task_by_lapse ON task (lease_until) WHERE lease_until IS NOT NULL;

-- Inputs parked for a human. The status is one of PENDING, REPLAYING, RESOLVED, DISCARDED; the revision is the operator's
-- last request.
CREATE TABLE dead_letter (
    id             uuid   PRIMARY KEY,
    step           text   COLLATE "C" NOT NULL,
    message_id     uuid   NOT NULL,
    saga           uuid,
    status         text   NOT NULL DEFAULT 'PENDING',
    origin         text   NOT NULL,
    revision       bigint NOT NULL DEFAULT 0,
    letter         text   NOT NULL,
    last_failed_at bigint NOT NULL
);
CREATE UNIQUE INDEX dead_letter_by_message ON dead_letter (step, message_id);
CREATE INDEX dead_letter_by_status ON dead_letter (status, origin, step);
CREATE INDEX dead_letter_by_time ON dead_letter (last_failed_at);

-- Answers given under an Idempotency-Key.
CREATE TABLE idempotency_key (
    key         text   COLLATE "C" PRIMARY KEY,
    fingerprint text   NOT NULL,
    reply       text   NOT NULL,
    created_at  bigint NOT NULL
);
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at);

-- How many messages were published per subject, handled per step, and given up: counts that outlive trimming.
CREATE TABLE tally (
    what  text   NOT NULL CHECK (what IN ('published', 'handled', 'dead')),
    name  text   COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (what, name)
);

-- The declarations that the row tables were made from.
CREATE TABLE row_kind (
    name    text PRIMARY KEY,
    fields  text NOT NULL
);

-- Whose database it is, and which of all that the service ever had.
CREATE TABLE identity (
    service text NOT NULL,
    id      uuid NOT NULL
);

-- What the fold of a row begins from when the events before it have left.
CREATE TABLE snapshot (
    kind       text   COLLATE "C" NOT NULL,
    row_id     text   COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    state      text   NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (kind, row_id)
);

-- Up to which event the history was looked through for what may leave: one row.
CREATE TABLE looked_through (up_to bigint NOT NULL);
INSERT INTO looked_through (up_to) VALUES (0);

-- Finished rows of sagas with lower ids may have left: one row, or none. The first 48 bits of a saga's id are its time.
CREATE TABLE left_before (saga uuid NOT NULL);

-- What counts for ever of rows that have left: sums.
CREATE TABLE carried (
    kind text   COLLATE "C" NOT NULL,
    name text   COLLATE "C" NOT NULL,
    sum  bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Rows that had left and whose events were brought back: once they are folded anew, they are carried no more.
CREATE TABLE brought_back (
    kind   text COLLATE "C" NOT NULL,
    row_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, row_id)
);
