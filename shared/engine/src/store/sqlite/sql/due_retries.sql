SELECT step, message_id, payload, attempts, next_attempt, first_failed_at, last_error, delivery, dead_letter_id
FROM retry
WHERE next_attempt <= $1 AND step IN (SELECT value FROM json_each($3))
ORDER BY next_attempt LIMIT $2
