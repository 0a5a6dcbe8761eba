INSERT INTO retry
    (step, message_id, payload, attempts, next_attempt, first_failed_at, last_error, delivery, dead_letter_id)
SELECT * FROM unnest(
    $1::text[], $2::uuid[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::uuid[])
ON CONFLICT (step, message_id)
