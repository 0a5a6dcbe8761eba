INSERT INTO task
    (id, kind, correlation_id, payload, attempts, claim, owner, lease_until, next_attempt, created_at, dead_letter_id, trace)
SELECT id, kind, saga, payload, attempts, claim, $10::text, $11::bigint, created_at, created_at, dead_letter_id, trace
FROM unnest(
    $1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::uuid[], $9::bytea[])
    AS made (id, kind, saga, payload, attempts, claim, created_at, dead_letter_id, trace)
