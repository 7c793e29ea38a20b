-- name: event
-- One event as JSON text. `payload` has the type json, so its text is passed on unchanged.
json_build_object('v', v, 'run', run_id, 'seq', seq, 'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
 'span', span, 'parent', parent, 'agent', agent, 'kind', kind, 'payload', payload)::text

-- name: after
SELECT seq, {event} FROM runs_event WHERE run_id = %s AND seq > %s ORDER BY seq LIMIT %s

-- name: within
-- The same, event by event, up to a limit on the text. This bounds a reader's memory even for large events, and no unused text is built.
WITH RECURSIVE walk AS (
 (SELECT seq, {event} AS text, 0::bigint AS before, 1 AS nth FROM runs_event WHERE run_id = %(run)s AND seq > %(since)s ORDER BY seq LIMIT 1)
 UNION ALL
 SELECT next.seq, next.text, walk.before + octet_length(walk.text), walk.nth + 1
 FROM walk, LATERAL (
  SELECT seq, {event} AS text FROM runs_event WHERE run_id = %(run)s AND seq > walk.seq ORDER BY seq LIMIT 1
 ) next WHERE walk.nth < %(limit)s AND walk.before + octet_length(walk.text) < %(most)s
) SELECT seq, text FROM walk ORDER BY seq
