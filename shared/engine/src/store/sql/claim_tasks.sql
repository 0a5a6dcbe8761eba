WITH due AS (
    SELECT id AS due_id FROM task
    WHERE next_attempt <= $3 AND (lease_until IS NULL OR lease_until <= $3)
    ORDER BY next_attempt LIMIT $4{skip_locked})
UPDATE task SET owner = $1, lease_until = $2, claim = claim + 1 FROM due WHERE id = due_id
RETURNING {task}
