SELECT step, CAST(sum(count) AS bigint) FROM (
    SELECT step, count(*) AS count FROM dead_letter
    WHERE status IN ('PENDING', 'DISCARDED') AND origin = 'message' GROUP BY step
    UNION ALL
    SELECT name, count FROM message_count WHERE outcome = 'discarded') AS dead
GROUP BY step
