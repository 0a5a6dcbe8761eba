SELECT published_at FROM publication
WHERE up_to >= (SELECT seq FROM outbox WHERE status IS NULL AND published_at IS NULL ORDER BY seq LIMIT 1)
ORDER BY up_to LIMIT 1
