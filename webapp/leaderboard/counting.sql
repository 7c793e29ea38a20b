-- name: count
UPDATE leaderboard_result r SET team_runs = c.team_runs, public_runs = c.public_runs
FROM (
    SELECT id, CASE WHEN inside AND inside_nth = (inside_n + 1) / 2 THEN inside_n END AS team_runs,
        CASE WHEN outside AND outside_nth = (outside_n + 1) / 2 THEN outside_n END AS public_runs
    FROM (
        SELECT id, inside, outside, row_number() OVER insiders AS inside_nth, count(*) FILTER (WHERE inside) OVER together AS inside_n,
            row_number() OVER outsiders AS outside_nth, count(*) FILTER (WHERE outside) OVER together AS outside_n
        FROM (
            SELECT id, setup_id, entry_id, subject_id, team_id, CASE WHEN confirmed THEN eager ELSE 0 END AS score,
                visibility <> 'private' AND verdict NOT IN ('questioned', 'hack', 'retracted') AS inside,
                visibility = 'everyone' AND verdict NOT IN ('questioned', 'hack', 'retracted') AS outside
            FROM leaderboard_result {where}
        ) judged
        WINDOW together AS (PARTITION BY setup_id, entry_id, subject_id, team_id),
            insiders AS (PARTITION BY setup_id, entry_id, subject_id, team_id, inside ORDER BY score, id),
            outsiders AS (PARTITION BY setup_id, entry_id, subject_id, team_id, outside ORDER BY score, id)
    ) placed
) c
WHERE r.id = c.id AND (r.team_runs IS DISTINCT FROM c.team_runs OR r.public_runs IS DISTINCT FROM c.public_runs)
