"""Keeps ranked rows up to date with decisions made elsewhere: publishing a run, listing a result for others, giving a verdict on a candidate.

This is done with triggers because each of these decisions is written in several places, and a ranking that still contains a retracted result is worse
than no ranking.
"""

from django.db import migrations

CREATE = """
CREATE FUNCTION leaderboard_visibility(p_run uuid, p_published boolean) RETURNS varchar LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN p_published THEN 'everyone' ELSE coalesce((SELECT visibility FROM leaderboard_listing WHERE run_id = p_run), 'team') END
$$;

CREATE FUNCTION leaderboard_follow_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leaderboard_result SET visibility = leaderboard_visibility(NEW.id, NEW.published) WHERE run_id = NEW.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER leaderboard_published AFTER UPDATE OF published ON runs_run
    FOR EACH ROW WHEN (OLD.published IS DISTINCT FROM NEW.published) EXECUTE FUNCTION leaderboard_follow_run();

CREATE FUNCTION leaderboard_follow_listing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leaderboard_result r SET visibility = leaderboard_visibility(NEW.run_id, u.published)
    FROM runs_run u WHERE u.id = NEW.run_id AND r.run_id = NEW.run_id;
    RETURN NULL;
END
$$;
CREATE TRIGGER leaderboard_listed AFTER INSERT OR UPDATE ON leaderboard_listing
    FOR EACH ROW EXECUTE FUNCTION leaderboard_follow_listing();

CREATE FUNCTION leaderboard_follow_verdict() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE leaderboard_result SET verdict = NEW.verdict WHERE run_id = NEW.run_id AND candidate = NEW.number;
    RETURN NULL;
END
$$;
CREATE TRIGGER leaderboard_judged AFTER UPDATE OF verdict ON runs_candidate
    FOR EACH ROW WHEN (OLD.verdict IS DISTINCT FROM NEW.verdict) EXECUTE FUNCTION leaderboard_follow_verdict();
"""

DROP = """
DROP TRIGGER leaderboard_judged ON runs_candidate;
DROP TRIGGER leaderboard_listed ON leaderboard_listing;
DROP TRIGGER leaderboard_published ON runs_run;
DROP FUNCTION leaderboard_follow_verdict();
DROP FUNCTION leaderboard_follow_listing();
DROP FUNCTION leaderboard_follow_run();
DROP FUNCTION leaderboard_visibility(uuid, boolean);
"""


class Migration(migrations.Migration):
    dependencies = [("leaderboard", "0001_initial"), ("runs", "0003_candidate_verdict")]
    operations = [migrations.RunSQL(CREATE, DROP)]
