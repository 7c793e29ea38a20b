-- name: allowed
SELECT asked.number
FROM unnest(%(users)s::bigint[], %(shares)s::uuid[], %(sessions)s::text[]) WITH ORDINALITY AS asked ("user", share, session, number),
     runs_run r
WHERE r.id = %(run)s
  AND (EXISTS (SELECT FROM accounts_user u WHERE u.id = asked."user" AND u.is_active)
         AND (r.published OR EXISTS (SELECT FROM accounts_membership m WHERE m.team_id = r.team_id AND m.user_id = asked."user"))
       OR EXISTS (SELECT FROM review_share s WHERE s.id = asked.share AND s.run_id = r.id AND s.revoked_at IS NULL AND s.expires_at > now()))
  AND (asked.session IS NULL OR EXISTS (SELECT FROM django_session s WHERE s.session_key = asked.session AND s.expire_date > now()))
