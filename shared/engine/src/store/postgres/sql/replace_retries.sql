DO UPDATE SET payload = excluded.payload, attempts = excluded.attempts, next_attempt = excluded.next_attempt,
    first_failed_at = excluded.first_failed_at, last_error = excluded.last_error, delivery = excluded.delivery,
    dead_letter_id = excluded.dead_letter_id, owner = NULL, claimed_until = NULL
