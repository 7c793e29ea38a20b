"""Fills a database: many runs with their events, and two long traces. A run of a told story is the template; the rest is copied in SQL."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LONG_EVENTS = 20_000
HEAVY_BYTES = 50_000_000
TITLES = ["softmax_rows", "layer_norm_gelu", "rms_norm", "attention_small", "cross_entropy", "group_norm_silu", "depthwise_separable", "masked_pool"]
OUTCOMES = ["improved", "improved", "matched", "failed", "cancelled", "out_of_budget"]


@dataclass
class Seeded:
    """What the measuring modules find: ids as text. `places` is theirs to add to in `prepare`."""

    user: int  # signs in; a member of all teams that own runs
    team: str  # the team of the long traces
    run: str  # an ordinary finished run with candidates, reports and timelines
    others: list[str] = field(default_factory=list)  # a few more of them
    trace: str = ""  # 20,000 events
    heavy: str = ""  # 50 MB of payloads
    places: dict[str, Any] = field(default_factory=dict)


def seed(*, runs: int, events: int) -> Seeded:
    """Once a database: a second call returns what the first one made."""
    from django.conf import settings

    kept = Path(settings.DATA_DIR) / f"bench-seed-{runs}-{events}.json"
    if kept.exists():
        return Seeded(**json.loads(kept.read_text()))
    seeded = _fill(runs, events)
    kept.write_text(json.dumps(asdict(seeded)))
    return seeded


def _fill(runs: int, events: int) -> Seeded:
    from django.db import connection

    from bench.pages.long_trace import long_trace
    from tests.browser import sample_run
    from webapp.accounts.models import User
    from webapp.runs.models import Run

    user = User.objects.order_by("pk").first() or User.with_team("bench")
    template = sample_run.create_run(user, "softmax_rows")
    sample_run.play(template)
    trace = long_trace(user, LONG_EVENTS, delta_characters=120)
    heavy = long_trace(user, 0, delta_characters=12_000, total_bytes=HEAVY_BYTES)
    left = events - Run.objects.get(pk=trace).last_seq - Run.objects.get(pk=heavy).last_seq
    copy_runs(template, runs - 3, max(1, left // max(1, runs - 3)))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    others = list(Run.objects.filter(title__startswith="copy ").order_by("-created_at").values_list("pk", flat=True)[:6])
    return Seeded(user.pk, str(user.personal_team_id), str(template.pk), [str(pk) for pk in others], str(trace), str(heavy))


def copy_runs(template, count: int, events: int) -> None:
    """`count` runs like the template over the last 90 days, each with the first `events` of its events, its candidates and its verdicts."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE TEMP TABLE copies AS
            SELECT gen_random_uuid() AS id, n, now() - n * interval '90 days' / %(count)s AS at, random() AS luck
            FROM generate_series(1, %(count)s) n
            """,
            {"count": count},
        )
        cursor.execute(
            """
            INSERT INTO runs_run SELECT (jsonb_populate_record(r, jsonb_build_object(
                'id', c.id, 'title', 'copy ' || c.n || ' of ' || (%(titles)s::text[])[1 + c.n %% 8],
                'created_at', c.at, 'started_at', c.at + interval '2 s', 'finished_at', c.at + interval '70 s', 'last_seq', %(events)s,
                'state', CASE WHEN c.n %% 400 = 0 THEN 'running' ELSE 'finished' END, 'device_kind', (ARRAY['cpu', 'cuda'])[1 + c.n %% 2],
                'outcome', CASE WHEN c.n %% 400 = 0 THEN '' ELSE (%(outcomes)s::text[])[1 + c.n %% 6] END,
                'archived_at', CASE WHEN c.n %% 50 = 0 THEN c.at END,
                'speedup', jsonb_build_object('ratio', 1 + 3 * luck, 'low', 1 + 2.9 * luck, 'high', 1 + 3.1 * luck)))).*
            FROM copies c, runs_run r WHERE r.id = %(run)s
            """,
            {"run": template.pk, "titles": TITLES, "outcomes": OUTCOMES, "events": events},
        )
        cursor.execute(
            """
            INSERT INTO runs_verification SELECT (jsonb_populate_record(v, jsonb_build_object(
                'id', md5(c.id::text || v.id::text)::uuid, 'run_id', c.id, 'queued_at', c.at, 'finished_at', c.at + interval '60 s'))).*
            FROM copies c, runs_verification v WHERE v.run_id = %(run)s
            """,
            {"run": template.pk},
        )
        cursor.execute(
            """
            INSERT INTO runs_candidate SELECT (jsonb_populate_record(k, jsonb_build_object(
                'id', nextval(pg_get_serial_sequence('runs_candidate', 'id')), 'run_id', c.id,
                'verification_id', CASE WHEN k.verification_id IS NULL THEN NULL ELSE md5(c.id::text || k.verification_id::text)::uuid END))).*
            FROM copies c, runs_candidate k WHERE k.run_id = %(run)s
            """,
            {"run": template.pk},
        )
        cursor.execute(
            """
            INSERT INTO runs_event (run_id, seq, v, at, span, parent, agent, kind, payload)
            SELECT c.id, e.seq, e.v, c.at + e.seq * interval '0.7 s', e.span, e.parent, e.agent, e.kind, e.payload
            FROM copies c, runs_event e WHERE e.run_id = %(run)s AND e.seq <= %(events)s
            """,
            {"run": template.pk, "events": events},
        )
        cursor.execute("DROP TABLE copies")
