-- Finished rows of sagas with lower ids may have left: one row, or none. The first 48 bits of a saga's id are its time.
CREATE TABLE left_before (saga BLOB NOT NULL);

-- What counts for ever of rows that have left: sums.
CREATE TABLE carried (
    kind TEXT    NOT NULL,
    name TEXT    NOT NULL,
    sum  INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Rows that had left and whose events were brought back: once they are folded anew, they are carried no more.
CREATE TABLE brought_back (
    kind   TEXT NOT NULL,
    row_id TEXT NOT NULL,
    PRIMARY KEY (kind, row_id)
) WITHOUT ROWID;
