-- name: fetch
-- A verifier's role may read the owners of its jobs and record turns (webapp/roles.py). Fairness applies jointly to all queues that one worker
-- listens to, such as verify.cuda and verify.cuda:1.
CREATE OR REPLACE FUNCTION procrastinate_fetch_job_v2(target_queue_names character varying[], p_worker_id bigint)
RETURNS procrastinate_jobs LANGUAGE plpgsql AS $$
DECLARE
    found_jobs procrastinate_jobs;
    v_owner text[];
BEGIN
    WITH owned AS (
        SELECT jobs.id, jobs.status, jobs.priority, jobs.lock, jobs.scheduled_at, split_part(jobs.queue_name, ':', 1) AS queue,
            coalesce(r.team_id::text, '') AS team, coalesce(r.created_by_id::text, '') AS person, coalesce(r.id::text, '') AS run
        FROM procrastinate_jobs jobs
        LEFT JOIN runs_verification v ON v.id = CASE WHEN jobs.task_name = 'verify' THEN (jobs.args ->> 'verification_id')::uuid END
        LEFT JOIN runs_run r ON r.id = CASE WHEN jobs.task_name = 'run_workflow' THEN (jobs.args ->> 'run_id')::uuid ELSE v.run_id END
        WHERE jobs.status IN ('todo', 'doing') AND (target_queue_names IS NULL OR jobs.queue_name = ANY (target_queue_names))
    ), at_work AS (
        SELECT queue, team, person, run, count(*) FILTER (WHERE status = 'doing') AS jobs FROM owned GROUP BY queue, team, person, run
    ), teams AS (
        SELECT queue, team, sum(jobs) AS jobs FROM at_work GROUP BY queue, team
    ), people AS (
        SELECT queue, team, person, sum(jobs) AS jobs FROM at_work GROUP BY queue, team, person
    ), waiting AS (
        SELECT w.id, row_number() OVER (
            ORDER BY w.priority DESC, teams.jobs, team_turn.at NULLS FIRST, people.jobs, person_turn.at NULLS FIRST, at_work.jobs,
                run_turn.at NULLS FIRST, w.id
        ) AS nth
        FROM owned w
        JOIN teams USING (queue, team) JOIN people USING (queue, team, person) JOIN at_work USING (queue, team, person, run)
        LEFT JOIN runs_turn team_turn ON team_turn.queue = w.queue AND team_turn.who = w.team
        LEFT JOIN runs_turn person_turn ON person_turn.queue = w.queue AND person_turn.who = w.team || '/' || w.person
        LEFT JOIN runs_turn run_turn ON run_turn.queue = w.queue AND run_turn.who = w.team || '/' || w.person || '/' || w.run
        WHERE w.status = 'todo' AND (w.scheduled_at IS NULL OR w.scheduled_at <= now()) AND NOT EXISTS (
            SELECT FROM procrastinate_jobs other
            WHERE w.lock IS NOT NULL AND other.lock = w.lock AND (other.status = 'doing' OR other.status = 'todo' AND (
                other.priority > w.priority OR other.priority = w.priority AND other.id < w.id)))
    ), candidate AS (
        SELECT jobs.id FROM procrastinate_jobs jobs JOIN waiting ON waiting.id = jobs.id
        WHERE jobs.status = 'todo' ORDER BY waiting.nth LIMIT 1 FOR UPDATE OF jobs SKIP LOCKED
    )
    UPDATE procrastinate_jobs SET status = 'doing', worker_id = p_worker_id FROM candidate WHERE procrastinate_jobs.id = candidate.id
    RETURNING procrastinate_jobs.* INTO found_jobs;

    IF found_jobs.id IS NOT NULL THEN
        SELECT ARRAY[coalesce(r.team_id::text, ''), coalesce(r.created_by_id::text, ''), coalesce(r.id::text, '')] INTO v_owner
        FROM (SELECT 1) one
        LEFT JOIN runs_verification v ON v.id = CASE WHEN found_jobs.task_name = 'verify' THEN (found_jobs.args ->> 'verification_id')::uuid END
        LEFT JOIN runs_run r ON r.id = CASE WHEN found_jobs.task_name = 'run_workflow' THEN (found_jobs.args ->> 'run_id')::uuid ELSE v.run_id END;
        -- In this order everywhere: from the team to the run.
        FOR depth IN 1..3 LOOP
            INSERT INTO runs_turn (queue, who, at)
            VALUES (split_part(found_jobs.queue_name, ':', 1), array_to_string(v_owner[1:depth], '/'), clock_timestamp())
            ON CONFLICT (queue, who) DO UPDATE SET at = excluded.at;
        END LOOP;
    END IF;
    RETURN found_jobs;
END
$$;
