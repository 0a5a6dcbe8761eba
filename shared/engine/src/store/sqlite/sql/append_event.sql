INSERT INTO event (kind, row_id, version, name, data, causation_id, recorded_at, is_published)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (kind, row_id, version) DO NOTHING
