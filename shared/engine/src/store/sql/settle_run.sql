INSERT INTO publication (up_to, published_at)
SELECT $2::bigint, $3::bigint
WHERE {published_up_to} < $1
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE seq > {published_up_to} AND seq < $1 AND status IS NULL)
