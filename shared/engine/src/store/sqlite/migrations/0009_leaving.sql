-- What the fold of a row begins from when the events before it have left.
CREATE TABLE snapshot (
    kind       TEXT    NOT NULL,
    row_id     TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;

-- Up to which event the history was looked through for what may leave: one row.
CREATE TABLE looked_through (up_to INTEGER NOT NULL);
INSERT INTO looked_through (up_to) VALUES (0);

-- Messages that were given up are counted for ever, and their dead letters may leave.
CREATE TABLE tally_kept (
    what  TEXT    NOT NULL CHECK (what IN ('published', 'handled', 'dead')),
    name  TEXT    NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (what, name)
) WITHOUT ROWID;
INSERT INTO tally_kept (what, name, count) SELECT what, name, count FROM tally;
DROP TABLE tally;
ALTER TABLE tally_kept RENAME TO tally;
