LATERAL (
    -- State of an `asked` message: one row, or none. Where there are no retries or dead letters at all, they are not searched
    -- for each message. That is checked at the end of an index whose beginning is full of deleted entries.
    SELECT 0 AS state FROM inbox WHERE step = asked.step AND message_id = asked.id
    UNION ALL
    SELECT 1 FROM retry
    WHERE (SELECT max(next_attempt) FROM retry) IS NOT NULL AND step = asked.step AND message_id = asked.id
    UNION ALL
    SELECT 2 FROM dead_letter
    WHERE (SELECT max(last_failed_at) FROM dead_letter) IS NOT NULL AND step = asked.step AND message_id = asked.id
    LIMIT 1) AS current
