-- Rows that are due, and the first that is not due yet.
SELECT id, due FROM (SELECT id, due FROM row_{kind} WHERE due <= $1 ORDER BY due LIMIT $2) AS past
UNION ALL
SELECT id, due FROM (SELECT id, due FROM row_{kind} WHERE due > $1 ORDER BY due LIMIT 1) AS future
