SELECT saga FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING') AND saga IS NOT NULL
UNION
SELECT correlation_id FROM task
UNION
SELECT saga FROM outbox WHERE status IN ('FAILED', 'BLOCKED', 'RETRY')
UNION
SELECT saga FROM outbox
WHERE status IS NULL AND seq > (SELECT coalesce(max(up_to), 0) FROM publication)
