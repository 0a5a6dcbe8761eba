-- Entries behind another failed one of their saga stay blocked.
UPDATE outbox SET {set}
WHERE status = 'BLOCKED'
    AND ($1::bigint IS NULL OR saga = (SELECT saga FROM outbox WHERE seq = $1))
    AND NOT EXISTS (
        SELECT 1 FROM outbox AS before
        WHERE before.saga = outbox.saga AND before.status IN ('FAILED', 'BLOCKED')
            AND before.status = 'FAILED' AND before.seq < outbox.seq)
