-- When an entry was published, of one that was published out of line: later than its neighbours, or once more.
ALTER TABLE outbox ADD COLUMN published_at INTEGER;
CREATE INDEX outbox_published_apart ON outbox (seq, published_at) WHERE published_at IS NOT NULL;

-- What stands in line behind a failed entry of its saga is held from the start; nothing may come that moves the line.
UPDATE outbox SET status = 'HELD'
WHERE status = 'PENDING' AND seq > (SELECT coalesce(max(up_to), 0) FROM publication)
      AND saga IN (SELECT saga FROM outbox WHERE status IN ('FAILED', 'HELD'));
-- The line begins with the first that waits in it: what stood before that is out of line, or gone.
INSERT INTO publication (up_to, published_at)
SELECT begun.up_to, 0
FROM (SELECT coalesce(max(up_to), 0) AS up_to FROM publication) AS line,
     (SELECT coalesce((SELECT min(seq) - 1 FROM outbox
                       WHERE status = 'PENDING' AND seq > (SELECT coalesce(max(up_to), 0) FROM publication)),
                      (SELECT max(seq) FROM outbox)) AS up_to) AS begun
WHERE begun.up_to > line.up_to;
