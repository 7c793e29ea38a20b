"""Fills a database with many runs, their events, and two long traces. One scripted run is the template; the others are copied in SQL."""

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
    """What the measuring modules can find in the database; ids are text. The modules may add to `places` in `prepare`."""

    user: int  # the user who signs in; a member of all teams that own runs
    team: str  # the team of the long traces
    run: str  # an ordinary finished run with candidates, reports and timelines
    others: list[str] = field(default_factory=list)  # a few more of these
    trace: str = ""  # 20,000 events
    heavy: str = ""  # 50 MB of payloads
    places: dict[str, Any] = field(default_factory=dict)


def seed(*, runs: int, events: int) -> Seeded:
    """Fills the database once; a second call returns the result of the first one."""
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
    from webapp.runs.models import Event, Run

    user = User.objects.order_by("pk").first() or User.with_team("bench")
    template = sample_run.create_run(user, "softmax_rows")
    sample_run.play(template)
    trace = long_trace(user, LONG_EVENTS, delta_characters=120)
    heavy = long_trace(user, 0, delta_characters=12_000, total_bytes=HEAVY_BYTES)
    there = Event.objects.count()
    copy_runs(Run.objects.get(pk=template.pk), runs - 3, max(0, events - there))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    others = list(Run.objects.filter(title__startswith="copy ").order_by("-created_at").values_list("pk", flat=True)[:6])
    return Seeded(user.pk, str(user.personal_team_id), str(template.pk), [str(pk) for pk in others], str(trace), str(heavy))


def copy_runs(template, count: int, events: int) -> None:
    """Copies the template run `count` times, spread over the last 90 days, with candidates, verdicts and the first of its events, until there are
    `events` events in total."""
    from django.db import connection, transaction

    each, more = divmod(events, count)
    if each + (more > 0) > template.last_seq:
        raise ValueError(f"the template has {template.last_seq} events: {count} copies of it cannot have {events}")
    given = {"run": template.pk, "count": count, "titles": TITLES, "outcomes": OUTCOMES, "each": each, "more": more}
    with transaction.atomic(), connection.cursor() as cursor:
        # The rows are copies of validated rows, so no foreign key has to be checked and no trigger has to run.
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            """
            CREATE TEMP TABLE copies ON COMMIT DROP AS
            SELECT md5('copy ' || n)::uuid AS id, n, now() - n * interval '90 days' / %(count)s AS at, random() AS luck,
                %(each)s + (n <= %(more)s)::int AS events
            FROM generate_series(1, %(count)s) n
            """,
            given,
        )
        copied = Copied(cursor, given)
        copied.insert(
            "runs_run", "o.id = %(run)s",
            id="c.id", title="'copy ' || c.n || ' of ' || (%(titles)s::text[])[1 + c.n %% 8]", created_at="c.at",
            started_at="c.at + interval '2 s'", finished_at="CASE WHEN c.n %% 400 <> 0 THEN c.at + interval '70 s' END", last_seq="c.events",
            state="CASE WHEN c.n %% 400 = 0 THEN 'running' ELSE 'finished' END", device_kind="(ARRAY['cpu', 'cuda'])[1 + c.n %% 2]",
            outcome="CASE WHEN c.n %% 400 = 0 THEN '' ELSE (%(outcomes)s::text[])[1 + c.n %% 6] END",
            archived_at="CASE WHEN c.n %% 50 = 0 THEN c.at END",
            speedup="jsonb_build_object('ratio', 1 + 3 * c.luck, 'low', 1 + 2.9 * c.luck, 'high', 1 + 3.1 * c.luck)",
            gain="CASE WHEN c.n %% 400 <> 0 THEN 1 + 2 * c.luck END",
            headline="CASE WHEN c.n %% 400 = 0 THEN '' ELSE (ARRAY['faster', 'promising', 'none', 'wrong', 'noisy', 'cancelled'])[1 + c.n %% 6] END",
        )  # fmt: skip
        copied.insert(
            "runs_verification", "o.run_id = %(run)s",
            id="md5(c.id::text || o.id::text)::uuid", run_id="c.id", queued_at="c.at", finished_at="c.at + interval '60 s'",
        )  # fmt: skip
        copied.insert(
            "runs_candidate", "o.run_id = %(run)s",
            id="nextval(pg_get_serial_sequence('runs_candidate', 'id'))", run_id="c.id",
            verification_id="md5(c.id::text || o.verification_id::text)::uuid",
        )  # fmt: skip
        copied.insert(
            "runs_event", "o.run_id = %(run)s AND o.seq <= c.events",
            id="nextval(pg_get_serial_sequence('runs_event', 'id'))", run_id="c.id", at="c.at + o.seq * interval '0.7 s'",
        )  # fmt: skip


@dataclass
class Copied:
    """Inserts the rows of the template, once for each of `copies`."""

    cursor: Any
    given: dict[str, Any]

    def insert(self, table: str, where: str, **changed: str) -> None:
        """Copies rows of a table. `changed` holds the columns that differ, as SQL over the copy `c` and the original row `o`."""
        query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        self.cursor.execute(query, [table])
        names = [name for (name,) in self.cursor.fetchall()]
        values = ", ".join(changed.get(name, f'o."{name}"') for name in names)
        columns = ", ".join(f'"{name}"' for name in names)
        self.cursor.execute(f"INSERT INTO {table} ({columns}) SELECT {values} FROM copies c, {table} o WHERE {where}", self.given)
