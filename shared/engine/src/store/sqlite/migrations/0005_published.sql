-- The outbox keeps what was published for a while, so that it can be published again to a broker that has lost it.
-- An entry is 'PENDING' in its place in the line: what the last publication has come past is published. Whatever stands
-- out of line says so: 'FAILED' (refused by the broker), 'HELD' (behind a failed one of its saga), 'RETRY' (to be tried
-- again) and 'REPUBLISH' (published before, to be published once more).
CREATE TABLE outbox_kept (
    seq        INTEGER PRIMARY KEY,
    id         BLOB    NOT NULL,
    saga       BLOB    NOT NULL,
    subject    TEXT    NOT NULL,
    payload    BLOB    NOT NULL,
    status     TEXT    NOT NULL DEFAULT 'PENDING'
               CHECK (status IN ('PENDING', 'FAILED', 'HELD', 'RETRY', 'REPUBLISH')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    created_at INTEGER NOT NULL
);
-- When an event was published is no longer written down, but whether a message tells it: then this is not null.
ALTER TABLE event RENAME COLUMN published_at TO told;
UPDATE event SET told = recorded_at WHERE told IS NULL AND seq IN (SELECT event_seq FROM outbox);
-- The saga stands in the payload as a text of hexadecimal digits and hyphens.
INSERT INTO outbox_kept (seq, id, saga, subject, payload, status, attempts, last_error, created_at)
SELECT seq, id, coalesce(unhex(json_extract(CAST(payload AS TEXT), '$.correlation_id'), '-'), id), subject, payload,
       status, attempts, last_error, created_at
FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_kept RENAME TO outbox;
CREATE INDEX outbox_out_of_line ON outbox (status, seq) WHERE status <> 'PENDING';
CREATE INDEX outbox_blocked ON outbox (saga) WHERE status IN ('FAILED', 'HELD');

-- How far the line was published when: up to and including this entry.
CREATE TABLE publication (
    up_to        INTEGER PRIMARY KEY,
    published_at INTEGER NOT NULL
);
CREATE INDEX publication_by_time ON publication (published_at);
-- What stood before the first waiting entry was published and is gone.
INSERT INTO publication (up_to, published_at)
SELECT up_to, 0 FROM (
    SELECT coalesce(min(CASE WHEN status = 'PENDING' THEN seq END) - 1, max(seq), 0) AS up_to FROM outbox
) WHERE up_to > 0;
