SELECT up_to FROM publication
WHERE up_to < (SELECT min(seq) FROM outbox WHERE status IS NULL)
    AND up_to < (SELECT max(up_to) FROM publication)
ORDER BY up_to LIMIT $1
