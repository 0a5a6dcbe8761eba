WITH due AS (
    SELECT step AS due_step, message_id AS due_id FROM retry
    WHERE next_attempt <= $1 AND step = ANY ($3)
        AND (owner IS NULL OR owner = $4 OR claimed_until <= $1 OR claimed_until > $6)
    ORDER BY next_attempt LIMIT $2
    FOR UPDATE SKIP LOCKED)
UPDATE retry SET owner = $4, claimed_until = $5 FROM due WHERE step = due_step AND message_id = due_id
RETURNING step, message_id, payload, attempts, next_attempt, first_failed_at, last_error, delivery, dead_letter_id
