UPDATE dead_letter AS kept
SET content = made.content, status = made.status, revision = made.revision, saga = made.saga,
    last_failed_at = made.last_failed_at
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::uuid[])
    AS made (id, content, status, revision, last_failed_at, saga)
WHERE kept.id = made.id
