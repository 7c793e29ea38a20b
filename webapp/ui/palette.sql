-- name: events
SELECT run_id, seq, kind, title, payload FROM (
  SELECT e.run_id, e.seq, e.kind, r.title, e.payload::text AS payload, e.at
  FROM runs_event e JOIN runs_run r ON r.id = e.run_id
  WHERE e.kind IN ({kinds})
    AND to_tsvector('simple', e.payload) @@ to_tsquery('simple', %(query)s)
    AND r.team_id = ANY(%(teams)s) AND r.archived_at IS NULL
  LIMIT {looked_at}) found
ORDER BY at DESC, seq DESC LIMIT {most}
