UPDATE task
SET attempts = made.attempts, next_attempt = made.next_attempt, last_error = made.last_error, owner = NULL,
    lease_until = NULL, trace = coalesce(made.trace, task.trace)
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[])
    AS made (id, attempts, next_attempt, last_error, trace)
WHERE task.id = made.id
