-- What operators have the machinery do otherwise: one row. The revision grows with each change.
CREATE TABLE overrides (
    revision bigint NOT NULL,
    text     text   NOT NULL
);
INSERT INTO overrides (revision, text) VALUES (0, '{}');
