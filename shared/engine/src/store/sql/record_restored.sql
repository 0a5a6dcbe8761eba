INSERT INTO restored_row (kind, row_id)
SELECT $1::text, $2::text
WHERE NOT EXISTS (SELECT 1 FROM event WHERE kind = $1 AND row_id = $2)
    AND $3 < (SELECT saga FROM purged_before LIMIT 1)
ON CONFLICT DO NOTHING
