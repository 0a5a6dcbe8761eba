-- Whose database it is, and which of all that the service ever had.
CREATE TABLE identity (
    service TEXT NOT NULL,
    id      BLOB NOT NULL
);
