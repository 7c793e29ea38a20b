-- name: stalled
SELECT j.id, j.task_name, j.args::text FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
WHERE j.status = 'doing' AND (w.id IS NULL OR w.last_heartbeat < now() - make_interval(secs => %s))
ORDER BY j.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED

-- name: runs_without_job
-- A paused run has no job until a person resumes or cancels it. If that job was lost, the request is among the run's latest events.
SELECT r.id FROM runs_run r WHERE r.state <> 'finished' AND NOT r.imported
AND (r.state <> 'paused' OR EXISTS (SELECT FROM runs_event e WHERE e.run_id = r.id AND e.seq > r.last_seq - 20 AND e.kind = 'control.requested'
    AND e.payload ->> 'action' IN ('resume', 'cancel')
    AND NOT EXISTS (SELECT FROM runs_event p WHERE p.run_id = r.id AND p.seq > e.seq AND p.kind = 'run.paused')))
AND NOT EXISTS (SELECT FROM procrastinate_jobs j WHERE j.lock = 'run:' || r.id AND j.status IN ('todo', 'doing'))

-- name: verifications_without_job
SELECT v.id, v.attempt, v.lease_epoch FROM runs_verification v JOIN runs_run r ON r.id = v.run_id
WHERE v.state <> 'finished' AND r.state <> 'finished' AND NOT r.imported AND NOT EXISTS (
    SELECT FROM procrastinate_jobs j
    WHERE j.task_name = 'verify' AND j.status IN ('todo', 'doing') AND j.args ->> 'verification_id' = v.id::text)
