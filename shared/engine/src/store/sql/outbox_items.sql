SELECT seq, id, subject, coalesce(status, 'PENDING'), attempts, last_error, created_at FROM (
    SELECT * FROM (SELECT * FROM outbox{by_status} WHERE status IS NOT NULL ORDER BY seq LIMIT $1) AS out_of_sequence
    UNION ALL
    SELECT * FROM (
        SELECT * FROM outbox WHERE status IS NULL AND seq > {published_up_to} ORDER BY seq LIMIT $1) AS pending
) AS unpublished
ORDER BY seq LIMIT $1
