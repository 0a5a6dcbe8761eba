-- What a retry or a task needs to know to become a dead letter again, or to end one.
ALTER TABLE retry ADD COLUMN delivery TEXT;
ALTER TABLE retry ADD COLUMN letter BLOB;
ALTER TABLE task ADD COLUMN letter BLOB;

-- The status is one of PENDING, REPLAYING, RESOLVED, DISCARDED; the revision is the operator's last request.
ALTER TABLE dead_letter ADD COLUMN origin TEXT NOT NULL DEFAULT 'message';
ALTER TABLE dead_letter ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
UPDATE dead_letter SET origin = CASE
    WHEN json_extract(letter, '$.message_type') IS NOT NULL THEN 'message'
    WHEN json_extract(letter, '$.saga') IS NOT NULL THEN 'task'
    ELSE 'foreign' END;
UPDATE dead_letter SET letter = json_set(letter, '$.origin', origin);
CREATE INDEX dead_letter_by_status ON dead_letter (status, origin, step);
CREATE INDEX dead_letter_by_time ON dead_letter (last_failed_at);
