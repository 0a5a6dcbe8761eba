-- Entries are counted by positions. Only published ones are deleted, from the oldest on, so that the sequence has no gaps,
-- except behind an old entry that was retried. Until that one is deleted, deleted entries behind it count as kept.
SELECT out_of_sequence.retried, out_of_sequence.republished, out_of_sequence.failed,
    {published_up_to} + 1 - oldest.seq - (
        SELECT count(*) FROM outbox{by_status}
        WHERE status IS NOT NULL AND status <> 'REPUBLISH' AND seq BETWEEN oldest.seq AND {published_up_to}),
    {last_entry} - {published_up_to} - (
        SELECT count(*) FROM outbox{by_status} WHERE status IS NOT NULL AND seq > {published_up_to}),
    (SELECT min(created_at) FROM (
        SELECT created_at FROM (
            SELECT created_at FROM outbox WHERE seq > {published_up_to} AND status IS NULL ORDER BY seq LIMIT 1) AS pending
        UNION ALL
        SELECT created_at FROM (
            SELECT created_at FROM outbox WHERE status = 'RETRY' ORDER BY seq LIMIT 1) AS retried) AS unpublished),
    (SELECT count(*) FROM retry), open_task.count, open_task.oldest,
    (SELECT count(*) FROM dead_letter WHERE status IN ('PENDING', 'REPLAYING')),
    (SELECT min(first_failed_at) FROM retry)
FROM (SELECT count(*) AS count, min(created_at) AS oldest FROM task) AS open_task,
    (SELECT coalesce(min(seq), {published_up_to} + 1) AS seq FROM outbox WHERE status IS NULL) AS oldest,
    (SELECT count(*) FILTER (WHERE status = 'RETRY') AS retried,
            count(*) FILTER (WHERE status = 'REPUBLISH') AS republished,
            count(*) FILTER (WHERE status NOT IN ('RETRY', 'REPUBLISH')) AS failed
     FROM outbox WHERE status IS NOT NULL) AS out_of_sequence
