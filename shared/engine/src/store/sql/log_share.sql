SELECT (SELECT count(*) FROM (SELECT 1 FROM row_{kind} LIMIT $1) AS rows_of_kind),
    (SELECT CAST(coalesce(sum(version), 0) AS bigint) FROM (SELECT version FROM row_{kind} LIMIT $1) AS versions),
    (SELECT coalesce(max(seq), 0) - coalesce(min(seq), 0) FROM event)
