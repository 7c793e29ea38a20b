-- name: unread
SELECT (SELECT count(*) FROM review_notification n WHERE n.user_id = u.id AND n.read_at IS NULL)
FROM accounts_user u WHERE u.id = %(user)s AND u.is_active AND {session}

-- name: run
-- The number of the latest change to the review, and the places that other people are viewing in the run.
SELECT coalesce((SELECT d.seq FROM review_desk d WHERE d.run_id = r.id), 0),
       coalesce((SELECT json_agg(json_build_object('name', p.username, 'place', p.place) ORDER BY p.username)
                 FROM (SELECT DISTINCT ON (u.id) u.username, p.place FROM review_presence p JOIN accounts_user u ON u.id = p.user_id
                       WHERE p.run_id = r.id AND p.place <> '' AND u.id <> %(user)s AND p.seen_at > now() - interval '{present_for}'
                       ORDER BY u.id, p.seen_at DESC) p), '[]')
FROM runs_run r JOIN accounts_membership m ON m.team_id = r.team_id JOIN accounts_user u ON u.id = m.user_id
WHERE r.id = %(run)s AND u.id = %(user)s AND u.is_active AND {session}

-- name: move
-- Moving wakes the other viewers.
WITH written AS (
    INSERT INTO review_presence (id, run_id, user_id, place, seen_at) VALUES (%(id)s, %(run)s, %(user)s, %(place)s, now())
    ON CONFLICT (id) DO UPDATE SET place = excluded.place, seen_at = excluded.seen_at RETURNING 1)
SELECT pg_notify(%(channel)s, %(key)s) FROM written

-- name: beat
-- A heartbeat only keeps the row alive and deletes the rows of dead pages.
WITH gone AS (DELETE FROM review_presence WHERE run_id = %(run)s AND seen_at < now() - interval '1 hour')
UPDATE review_presence SET seen_at = now() WHERE id = %(id)s RETURNING 1
