-- Reconciliation covers messages of this system only: neither foreign messages nor tasks.
SELECT retry.step, count(*) FROM retry LEFT JOIN dead_letter ON dead_letter.id = retry.dead_letter_id
WHERE coalesce(origin, 'message') = 'message' GROUP BY retry.step
