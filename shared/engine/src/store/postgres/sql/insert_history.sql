WITH event AS (
    INSERT INTO event (seq, kind, row_id, version, name, data, causation_id, recorded_at, is_published)
    SELECT head.event - cardinality($1::text[]) + made.place, made.kind, made.row_id, made.version, made.name,
           made.data, made.causation_id, $8::bigint, made.is_published
    FROM head, unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::uuid[], $7::boolean[])
         WITH ORDINALITY AS made (kind, row_id, version, name, data, causation_id, is_published, place)),
entry AS (
    INSERT INTO outbox (seq, id, saga, subject, payload, trace, created_at, status)
    SELECT head.outbox - cardinality($9::uuid[]) + made.place, made.id, made.saga, made.subject, made.payload,
           made.trace, $8::bigint,
           CASE WHEN (SELECT EXISTS (SELECT FROM outbox WHERE status IN ('FAILED', 'BLOCKED')))
                     AND EXISTS (SELECT FROM outbox AS before
                                 WHERE before.saga = made.saga AND before.status IN ('FAILED', 'BLOCKED'))
                THEN 'BLOCKED' END
    FROM head, unnest($9::uuid[], $10::uuid[], $11::text[], $12::bytea[], $13::bytea[])
         WITH ORDINALITY AS made (id, saga, subject, payload, trace, place))
SELECT EXISTS (SELECT FROM outbox WHERE status IS NOT NULL)
