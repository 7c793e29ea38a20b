-- name: events
-- The newest of a limited number of matching events. Migration 0010 of the runs app has an index on exactly these kinds.
SELECT run_id, seq, kind, title, payload FROM (
  SELECT e.run_id, e.seq, e.kind, r.title, e.payload::text AS payload, e.at
  FROM runs_event e JOIN runs_run r ON r.id = e.run_id
  WHERE e.kind IN ('note.added', 'decision.made', 'diagnosis.made', 'plan.proposed', 'plan.edited', 'candidate.proposed', 'error', 'run.finished')
    AND to_tsvector('simple', e.payload) @@ to_tsquery('simple', %(query)s)
    AND r.team_id = ANY(%(teams)s) AND r.archived_at IS NULL
  LIMIT %(looked_at)s) found
ORDER BY at DESC, seq DESC LIMIT %(most)s
