"""Measures the leaderboard with 100,000 results: its queries, the page, each filter separately, and whether the query plans use the indexes.

There are 250 tasks in three suites, 30 entries, two teams, and four setups. One setup has 70 % of all results, so the page that opens first is the
fullest one.
"""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import urlencode

import httpx

from bench.pages.rows import PageFigure, percentile
from bench.pages.seed import Seeded

RESULTS = 100_000
TASKS = {"kernelbench-level1": 100, "kernelbench-level2": 100, "kernelbench-level3": 50}
ENTRIES = 30
WARM_UP, TIMES = 2, 20
QUERIES_MS, PAGE_MS = 100.0, 150.0

TASKS_SQL = """
INSERT INTO tasks_task (id, team_id, suite_id, sha, name, source, flags, created_at)
SELECT gen_random_uuid(), %(team)s, s.id, encode(sha256(convert_to('board ' || s.slug || n, 'UTF8')), 'hex'), n || '_board', '', '[]', now()
FROM tasks_suite s, generate_series(1, %(count)s) n WHERE s.team_id = %(team)s AND s.slug = %(slug)s
"""
PLAN_SQL = """
CREATE TEMP TABLE planned ON COMMIT DROP AS
SELECT gen_random_uuid() AS run, n, t.id AS task, b.id AS subject, e.id AS entry, s.id AS setup,
    CASE WHEN n %% 8 = 0 THEN %(other)s ELSE %(team)s END::uuid AS team, random() AS luck, random() AS shown,
    exp(0.3 + (hashtext(t.sha) %% 100) / 150.0 + (hashtext(e.key) %% 100) / 400.0 + (random() - 0.5) * 0.4) AS ratio
FROM generate_series(1, %(results)s) n
JOIN (SELECT id, sha, row_number() OVER (ORDER BY sha) AS at FROM tasks_task WHERE name ~ '_board$') t ON t.at = 1 + n %% 250
JOIN leaderboard_subject b ON b.sha = t.sha
JOIN (SELECT id, key, row_number() OVER (ORDER BY id) AS at FROM leaderboard_entry WHERE key ~ '^bench/') e ON e.at = 1 + (n / 250) %% 30
JOIN (SELECT id, row_number() OVER (ORDER BY id) AS at FROM leaderboard_setup WHERE device_name = 'NVIDIA H200 (bench)') s
    ON s.at = CASE WHEN n %% 10 < 7 THEN 1 ELSE n %% 10 - 5 END
"""
RUNS_SQL = """
INSERT INTO runs_run SELECT (jsonb_populate_record(r, jsonb_build_object(
    'id', p.run, 'team_id', p.team, 'task_id', p.task, 'title', 'board ' || p.n, 'state', 'finished', 'last_seq', 0, 'archived_at', now(),
    'outcome', CASE WHEN p.luck < 0.88 THEN 'improved' ELSE 'failed' END, 'published', p.shown < 0.3))).*
FROM planned p, runs_run r WHERE r.id = %(run)s
"""
RESULTS_SQL = """
INSERT INTO leaderboard_result (run_id, team_id, maker_id, task_id, subject_id, entry_id, setup_id, visibility, verdict, confirmed, candidate,
    program_class, flagged, eager, eager_low, eager_high, best, best_low, best_high, compile, autotune, graph, program_ms, dollars, tokens, calls,
    seconds, faster_after, finished_at)
SELECT run, team, %(user)s, task, subject, entry, setup, CASE WHEN shown < 0.3 THEN 'everyone' WHEN shown < 0.98 THEN 'team' ELSE 'private' END,
    CASE WHEN n %% 500 = 0 THEN 'questioned' ELSE '' END, ok, 1,
    CASE WHEN ok THEN (ARRAY['custom', 'custom', 'mixed', 'orchestration'])[1 + n %% 4] ELSE '' END,
    false, x, x * 0.96, x * 1.05, x * 0.8, x * 0.77, x * 0.84, x * 0.85, x * 0.9, x * 0.82, CASE WHEN ok THEN 1.0 END, luck / 3, 20000 * luck, 12,
    120 + 300 * luck, CASE WHEN ok THEN 30 + 40 * luck END, now() - n * interval '1 min'
FROM (SELECT *, luck < 0.88 AS ok, CASE WHEN luck < 0.88 THEN ratio END AS x FROM planned) p
"""
PROVENANCE_SQL = """
INSERT INTO leaderboard_provenance (result_id, program_sha, report_sha, best_baseline, comparisons, flags, environment, outcome, reason)
SELECT r.id, '', '', 'cuda-graph', '{}', '[]', '{}', CASE WHEN r.confirmed THEN 'improved' ELSE 'failed' END, '' FROM leaderboard_result r
ON CONFLICT DO NOTHING
"""


def prepare(seeded: Seeded) -> None:
    """Inserts rows with SQL. Which rows count is decided once, at the end, rather than row by row."""
    from django.db import connection, transaction

    from webapp.leaderboard.counting import count_all
    from webapp.leaderboard.models import Result

    if Result.objects.count() < RESULTS:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE leaderboard_result DISABLE TRIGGER leaderboard_counted")
            given = {"team": seeded.team, "other": _frame(seeded), "user": seeded.user, "run": seeded.run, "results": RESULTS}
            for statement in (PLAN_SQL, RUNS_SQL, RESULTS_SQL, PROVENANCE_SQL):
                cursor.execute(statement, given if "%(" in statement else None)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("ALTER TABLE leaderboard_result ENABLE TRIGGER leaderboard_counted")
            count_all()
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE leaderboard_result, runs_run")
            cursor.execute("ANALYZE")


def _frame(seeded: Seeded) -> str:
    """Creates tasks in suites, entries, setups, and a second team, whose id is returned."""
    from django.db import connection

    from webapp.accounts.models import Team
    from webapp.leaderboard.models import Entry, Setup
    from webapp.tasks.models import Suite

    for slug, count in TASKS.items():
        Suite.objects.get_or_create(team_id=seeded.team, slug=slug, defaults={"name": slug.replace("kernelbench-level", "KernelBench L")})
        with connection.cursor() as cursor:
            cursor.execute(TASKS_SQL, {"team": seeded.team, "slug": slug, "count": count})
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO leaderboard_subject (sha) SELECT sha FROM tasks_task ON CONFLICT DO NOTHING")
    for n in range(ENTRIES):
        model = "built-in" if n % 6 == 0 else f"model-{n % 6}"
        roles = dict.fromkeys(("planner", "coder", "judge"), model)
        Entry.objects.get_or_create(key=f"bench/{n}", defaults={"workflow": ("stitch", "forge", "pilot", "branch", "descend")[n // 6], **roles})
    for precision, mode in (("fp32-strict", "train"), ("bf16", "train"), ("tf32", "train"), ("fp32-strict", "eval")):
        known = {"device_kind": "cuda", "device_name": "NVIDIA H200 (bench)"}
        Setup.objects.get_or_create(device_model="h200-bench", precision=precision, mode=mode, defaults=known)
    return str(Team.objects.get_or_create(slug="bench-others", defaults={"name": "others"})[0].pk)


def selections() -> dict[str, dict[str, str]]:
    """Returns the name and query of each measured page: the initial page, and every filter."""
    return {
        "as it opens": {},
        "a suite": {"suite": "kernelbench-level1"},
        "the ten": {"suite": "stitchcuda-ten"},
        "device and precision": {"device": "h200-bench", "precision": "bf16"},
        "mode": {"mode": "eval"},
        "class": {"class": "custom"},
        "workflow": {"workflow": "stitch"},
        "model": {"llm": "model-1"},
        "built-in": {"llm": "built-in"},
        "best baseline": {"against": "best"},
        "p": {"p": "1.5"},
        "published": {"whose": "published"},
        "ours": {"whose": "ours"},
        "by cost": {"sort": "dollars"},
    }


def others() -> dict[str, str]:
    """Returns further pages of the leaderboard."""
    return {
        "heat map": "/leaderboard/cells.json?suite=kernelbench-level3",
        "all results": "/leaderboard/results/",
        "results, last page": "/leaderboard/results/?end=1",
        "results of a device": "/leaderboard/results/?device=h200-bench&precision=tf32",
        "results left out": "/leaderboard/results/?state=left_out",
        "suites side by side": "/leaderboard/beside/",
    }


def measure(page, base_url: str, seeded: Seeded) -> list[PageFigure]:
    rows = [*_queries(seeded), *_plans(seeded)]
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    addresses = {f"leaderboard, {name}": f"/leaderboard/?{urlencode(query)}" for name, query in selections().items()}
    addresses |= {f"leaderboard, {name}": address for name, address in others().items()}
    with httpx.Client(base_url=base_url, cookies=cookies, timeout=60, trust_env=False, follow_redirects=True) as client:
        for name, address in addresses.items():
            samples = [_answered(client, address) for _ in range(WARM_UP + TIMES)][WARM_UP:]
            rows.append(PageFigure(f"{name}: p50", percentile(samples, 0.5), "ms"))
            rows.append(PageFigure(f"{name}: p95", percentile(samples, 0.95), "ms", PAGE_MS, samples))
    return rows


def _answered(client: httpx.Client, address: str) -> float:
    begun = time.perf_counter()
    answer = client.get(address)
    if answer.status_code != 200:
        raise RuntimeError(f"{address} was answered with {answer.status_code}")
    return (time.perf_counter() - begun) * 1000


class _Stopwatch:
    """Accumulates the time between sending each query and receiving its rows, separately for the ORM and for the ranking."""

    def __init__(self):
        self.spent = 0.0

    def __call__(self, execute, *arguments):
        begun = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            self.spent += (time.perf_counter() - begun) * 1000


def _queries(seeded: Seeded) -> list[PageFigure]:
    """Measures all queries of the whole page in this process, including sessions, navigation and filters."""
    from django.db import connection
    from django.test import Client

    from webapp.accounts.models import User
    from webapp.leaderboard import reading

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(pk=seeded.user))
    plain, copied = reading._all, reading.copied
    rows = []
    for name, query in selections().items():
        samples = []
        for _ in range(WARM_UP + TIMES):
            watch = _Stopwatch()
            reading._all = lambda text, given, watch=watch: watch(plain, text, given)
            reading.copied = lambda text, given, watch=watch: watch(copied, text, given)
            with connection.execute_wrapper(watch):
                client.get("/leaderboard/", query)
            samples.append(watch.spent)
        rows.append(PageFigure(f"queries, {name}: p95", percentile(samples[WARM_UP:], 0.95), "ms", QUERIES_MS, samples[WARM_UP:]))
    reading._all, reading.copied = plain, copied
    return rows


def _plans(seeded: Seeded) -> list[PageFigure]:
    """Returns how many ranking queries scan the whole results table; none of them should."""
    from django.db import connection

    from webapp.accounts.models import User
    from webapp.leaderboard import reading
    from webapp.leaderboard.filters import Filters
    from webapp.leaderboard.ranking import board

    asked: list[tuple[str, Any]] = []
    plain, copied = reading._all, reading.copied
    reading._all = lambda text, given: asked.append((text, given)) or plain(text, given)
    reading.copied = lambda text, given: asked.append((text, given)) or copied(text, given)
    try:
        for suite in ("", "kernelbench-level3"):
            board(User.objects.get(pk=seeded.user), Filters(suite=suite))
    finally:
        reading._all, reading.copied = plain, copied
    whole = 0
    with connection.cursor() as cursor:
        for text, given in asked:
            cursor.execute(f"EXPLAIN {text}", given)
            whole += any(re.search(r"Seq Scan on leaderboard_result\b", line) for (line,) in cursor.fetchall())
    return [PageFigure("queries that read all results", whole, "", 0.0)]
