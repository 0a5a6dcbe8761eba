SELECT seq FROM outbox
WHERE status IS NULL
    AND seq <= (
        SELECT max(up_to) FROM publication
        WHERE up_to < coalesce(
            (SELECT min(up_to) FROM publication WHERE published_at >= $1),
            (SELECT max(up_to) FROM publication)))
    AND (published_at IS NULL OR published_at < $1)
ORDER BY seq LIMIT $2
