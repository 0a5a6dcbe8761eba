WITH new AS (
    INSERT INTO inbox (step, message_id, handled_at)
    SELECT step, id, $7::bigint FROM unnest($5::text[], $6::uuid[]) AS made (step, id)
    WHERE {if_new}
    RETURNING step),
handled AS (
    INSERT INTO message_count (outcome, name, count) SELECT 'handled', step, count(*) FROM new GROUP BY step
    ON CONFLICT (outcome, name) DO UPDATE SET count = message_count.count + excluded.count)
{changed_state}
