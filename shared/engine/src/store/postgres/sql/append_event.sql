WITH appended AS (
    INSERT INTO event (seq, kind, row_id, version, name, data, causation_id, recorded_at, is_published)
    SELECT head.event + 1, $1::text, $2::text, $3::bigint, $4::text, $5::text, $6::uuid, $7::bigint, $8::boolean
    FROM head
    ON CONFLICT (kind, row_id, version) DO NOTHING
    RETURNING seq)
UPDATE head SET event = event + 1 WHERE EXISTS (SELECT FROM appended)
