WITH new AS (
    INSERT INTO idempotency_key (key, fingerprint, reply, created_at)
    SELECT key, fingerprint, reply, $6::bigint
    FROM unnest($3::text[], $4::text[], $5::text[]) AS made (key, fingerprint, reply)
    WHERE {if_new})
SELECT key FROM idempotency_key WHERE key = ANY ($1 || $3) AND (SELECT generation FROM head) <> $2 LIMIT 1
