INSERT INTO dead_letter (id, step, message_id, saga, origin, content, last_failed_at)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bigint[])
ON CONFLICT (id) DO UPDATE
SET status = 'PENDING', saga = excluded.saga, content = excluded.content, last_failed_at = excluded.last_failed_at
