-- Entries published in sequence, from the first publication since $1 on (clocks may have been set back meanwhile), and
-- entries published out of sequence since $1.
WITH marked AS (
    SELECT seq AS marked_seq FROM (
        SELECT seq FROM outbox
        WHERE status IS NULL AND seq > $2 AND seq <= {published_up_to}
            AND seq > (
                SELECT coalesce(max(before.up_to), 0) FROM publication AS before
                WHERE before.up_to < (SELECT min(up_to) FROM publication WHERE published_at >= $1))
            AND EXISTS (SELECT 1 FROM publication WHERE published_at >= $1)
        ORDER BY seq LIMIT $3) AS in_sequence
    UNION
    SELECT seq FROM (
        SELECT seq FROM outbox{by_publication}
        WHERE published_at >= $1 AND status IS NULL AND seq > $2 AND seq <= {published_up_to}
        ORDER BY seq LIMIT $3) AS out_of_sequence
    ORDER BY marked_seq LIMIT $3)
UPDATE outbox SET status = 'REPUBLISH' FROM marked WHERE seq = marked_seq
RETURNING seq
