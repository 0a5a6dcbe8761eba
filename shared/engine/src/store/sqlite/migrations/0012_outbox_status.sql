-- The same statuses, and the same entries where they are: only the check first asks for the status that nearly all have.
-- SQLite makes a table of a longer list of values whenever it looks into it, and that was a third of what it took to insert
-- an entry. What a check accepts may be rewritten like this (https://sqlite.org/lang_altertable.html, section 7): the outbox
-- keeps what was published for a day, and a copy of that would need room that a small disk does not have.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema
SET sql = replace(sql, 'CHECK (status IN (''PENDING'', ''FAILED'', ''HELD'', ''RETRY'', ''REPUBLISH''))',
                  'CHECK (status = ''PENDING'' OR status IN (''FAILED'', ''HELD'', ''RETRY'', ''REPUBLISH''))')
WHERE type = 'table' AND name = 'outbox';
PRAGMA writable_schema = RESET;
