"""Adds `stitchwork_append`, the only way to write an event."""

from django.db import migrations

CREATE = """
CREATE FUNCTION stitchwork_append(p_run uuid, p_epoch bigint, p_events json)
RETURNS TABLE (seq bigint, at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    v_last bigint;
    v_lease bigint;
    v_latest timestamptz;
    v_at timestamptz;
    v_event json;
    v_payload json;
BEGIN
    -- The run's row lock makes appends to one run take turns, so that a sequence number never becomes visible before a smaller one.
    SELECT r.last_seq, r.lease_epoch INTO v_last, v_lease FROM runs_run r WHERE r.id = p_run FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no run %', p_run USING ERRCODE = 'SW404';
    END IF;
    IF p_epoch IS NOT NULL AND p_epoch <> v_lease THEN
        RAISE EXCEPTION 'the lease of run % is at epoch %, this writer has %', p_run, v_lease, p_epoch USING ERRCODE = 'SW001';
    END IF;
    SELECT e.at INTO v_latest FROM runs_event e WHERE e.run_id = p_run AND e.seq = v_last;
    v_at := greatest(clock_timestamp(), v_latest);
    FOR v_event IN SELECT value FROM json_array_elements(p_events) WITH ORDINALITY AS t(value, position) ORDER BY position LOOP
        v_payload := coalesce(v_event -> 'payload', '{}');
        IF octet_length(v_payload::text) > 16384 THEN
            RAISE EXCEPTION 'the payload of % has % bytes, more than 16384: it has to be an artefact',
                v_event ->> 'kind', octet_length(v_payload::text) USING ERRCODE = 'SW002';
        END IF;
        v_last := v_last + 1;
        INSERT INTO runs_event (run_id, seq, v, at, span, parent, agent, kind, payload)
        VALUES (p_run, v_last, 1, v_at, coalesce(v_event ->> 'span', ''), coalesce(v_event ->> 'parent', ''),
                coalesce(v_event ->> 'agent', ''), v_event ->> 'kind', v_payload);
        seq := v_last;
        at := v_at;
        RETURN NEXT;
    END LOOP;
    UPDATE runs_run SET last_seq = v_last WHERE id = p_run;
    PERFORM pg_notify('stitchwork_run', p_run::text || ':' || v_last::text);
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]
    operations = [migrations.RunSQL(CREATE, "DROP FUNCTION stitchwork_append(uuid, bigint, json)")]
