"""Measures diffs of completely rewritten 4,000-line programs: the server's first response with cold caches, and scrolling in a browser."""

from __future__ import annotations

import random
import re
import time

import httpx

from bench.pages.rows import PageFigure, percentile
from bench.pages.seed import Seeded

LINES = 4000
PAIRS = 24  # number of pairs; each is requested once in each layout, so every response is cold
WARM_UP = 2
WHOLE = 4  # number of pairs whose other parts are also requested
BAR_MS = 300.0
TASK_BAR_MS = 200.0  # a main-thread task that takes longer than this feels like a freeze
TASKS = """window.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({type: "longtask", buffered: true});"""


def prepare(seeded: Seeded) -> None:
    """Makes a run in the ordinary run's team with two candidates per request: one pair for each request of each layout."""
    from django.db import transaction
    from django.utils import timezone

    from verifier.source import sha256
    from webapp.runs import artefacts
    from webapp.runs.models import Candidate, Run

    template = Run.objects.get(pk=seeded.run)
    run, made = Run.objects.get_or_create(
        title="bench: rewrites", team=template.team, task=template.task, defaults={"state": "finished", "created_by": template.created_by}
    )
    seeded.places["diffs"] = str(run.pk)
    if not made:
        return
    draws = random.Random(4)
    with transaction.atomic():
        for pair in range(2 * (PAIRS + WARM_UP)):
            old = program(draws)
            for number, source in ((2 * pair + 1, old), (2 * pair + 2, rewritten(old, draws))):
                artefacts.put(run.team_id, source.encode(), "text/x-python", "program.py")
                stored = artefacts.find(run.team_id, sha256(source))
                Candidate.objects.create(run=run, number=number, title="rewrite", sha=stored.sha, program=stored, created_at=timezone.now())


def measure(page, base_url: str, seeded: Seeded) -> list[PageFigure]:
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    run = seeded.places["diffs"]
    rows: list[PageFigure] = []
    with httpx.Client(base_url=base_url, cookies=cookies, timeout=60, trust_env=False) as client:
        for turn, layout in enumerate(("inline", "split")):
            first, whole = [], []
            for pair in range(PAIRS + WARM_UP):
                old = 2 * (turn * (PAIRS + WARM_UP) + pair) + 1
                address = f"/runs/{run}/diff/{old}...{old + 1}/"
                spent, html = timed(client, f"{address}?view={layout}")
                if pair >= WARM_UP:
                    first.append(spent)
                if len(whole) < WHOLE:
                    parts = re.findall(r'data-part="(\d+)"', html)
                    whole.append(spent + sum(timed(client, f"{address}rows?view={layout}&part={number}")[0] for number in parts))
            rows.append(PageFigure(f"rewrite of {LINES:,} lines, {layout}, first answer, cold: p50", percentile(first, 0.5), "ms"))
            rows.append(PageFigure(f"rewrite of {LINES:,} lines, {layout}, first answer, cold: p95", percentile(first, 0.95), "ms", BAR_MS, first))
            rows.append(PageFigure(f"rewrite of {LINES:,} lines, {layout}, all of its parts: p50", percentile(whole, 0.5), "ms", None, whole))
    rows += alone() + in_process(seeded)
    for layout in ("inline", "split"):
        rows += scrolled(page, f"{base_url}/runs/{run}/diff/1...2/?view={layout}", layout)
    return rows


def timed(client: httpx.Client, address: str) -> tuple[float, str]:
    begun = time.perf_counter()
    answer = client.get(address)
    spent = (time.perf_counter() - begun) * 1000
    if answer.status_code != 200:
        raise RuntimeError(f"{address} was answered with {answer.status_code}")
    return spent, answer.text


def alone() -> list[PageFigure]:
    """Measures the computation without a page: lines, moved blocks, pairs, and the words of every changed row. Processor time hardly depends on other
    load."""
    from webapp.diffs.compute import SECONDS, _compute
    from webapp.diffs.lines import lines_of, word_marks

    draws, passed, used = random.Random(5), [], []
    for _ in range(12):
        old = program(draws)
        new = rewritten(old, draws)
        begun, worked = time.perf_counter(), time.process_time()
        found = _compute(old, new, False, SECONDS)
        before, after = lines_of(old), lines_of(new)
        for row in found.rows:
            if row.kind == "changed":
                word_marks(before[row.old - 1], after[row.new - 1])
        passed.append((time.perf_counter() - begun) * 1000)
        used.append((time.process_time() - worked) * 1000)
    return [
        PageFigure("computing it, words of all lines included: p50", percentile(passed, 0.5), "ms"),
        PageFigure("computing it, words of all lines included: p95", percentile(passed, 0.95), "ms", BAR_MS, passed),
        PageFigure("computing it: processor time, p95", percentile(used, 0.95), "ms", None, used),
    ]


def in_process(seeded: Seeded) -> list[PageFigure]:
    """Measures the processor time of a first response with cold caches in this process, without a web server or a network."""
    from django.test import Client

    from webapp.accounts.models import User

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(pk=seeded.user))
    used = []
    for pair in range(PAIRS + WARM_UP):
        worked = time.process_time()
        answer = client.get(f"/runs/{seeded.places['diffs']}/diff/{2 * pair + 1}...{2 * pair + 2}/", {"view": "split"})
        if answer.status_code != 200:
            raise RuntimeError(f"a diff was answered with {answer.status_code}")
        if pair >= WARM_UP:
            used.append((time.process_time() - worked) * 1000)
    return [
        PageFigure("first answer: processor time, p50", percentile(used, 0.5), "ms"),
        PageFigure("first answer: processor time, p95", percentile(used, 0.95), "ms", None, used),
    ]


def scrolled(page, address: str, layout: str) -> list[PageFigure]:
    """Opens the diff and scrolls to the end as fast as a person would. The longest main-thread task is reported as the freeze."""
    page.add_init_script(TASKS)
    begun = time.perf_counter()
    page.goto(address, wait_until="domcontentloaded")
    page.wait_for_selector("tr[data-hunk]")
    opened = (time.perf_counter() - begun) * 1000
    page.evaluate(
        """async () => {
        const frame = () => new Promise(requestAnimationFrame);
        for (let still = 0, last = -1; still < 60; ) {
            scrollBy(0, 400);
            await frame();
            still = scrollY === last && !document.querySelector('tbody[data-part]') ? still + 1 : 0;
            last = scrollY;
        }
    }"""
    )
    tasks = page.evaluate("window.tasks")
    lines = page.locator("tr[data-hunk]").count()
    return [
        PageFigure(f"{layout}: until its first lines are there", opened, "ms"),
        PageFigure(f"{layout}: longest task while {lines:,} lines are scrolled through", max(tasks, default=0.0), "ms", TASK_BAR_MS, tasks),
    ]


def program(draws: random.Random) -> str:
    """Makes about `LINES` lines of CUDA in Python strings with modules around them, no two alike."""
    lines = ["import torch", "import torch.nn as nn", ""]
    while len(lines) < LINES - 60:
        name = f"kernel_{draws.randrange(10**6)}"
        lines += [f'SOURCE_{name.upper()} = r"""', "#include <cuda_runtime.h>", ""]
        lines.append(f'extern "C" __global__ void {name}(const float* x, float* y, int n) {{')
        lines += [f"    int {v} = blockIdx.x * {draws.randrange(1, 99)} + threadIdx.{draws.choice('xy')};" for v in "ijk"]
        lines += [statement(draws) for _ in range(draws.randrange(20, 60))]
        lines += ["}", '"""', "", "", f"class Step{draws.randrange(10**6)}(nn.Module):"]
        lines += ['    """One step of the model."""', "", "    def forward(self, x):"]
        lines += [f"        x = torch.ops.own.{name}(x, {draws.randrange(99)})  # step {step}" for step in range(draws.randrange(5, 20))]
        lines += ["        return x", "", ""]
    return "\n".join([*lines, "class ModelNew(nn.Module):", "    def forward(self, x):", "        return x", ""])


def statement(draws: random.Random) -> str:
    a, b = draws.choice("ijk"), draws.randrange(1, 512)
    return draws.choice(
        [
            f"    for (int s = {b}; s < n; s += blockDim.x) y[{a}] += x[s] * {draws.random():.4f}f;",
            f"    if ({a} < {b}) {{ y[{a}] = fmaxf(y[{a}], x[{a} + {b}]); }}  // rows of {b}",
            f"    __shared__ float tile_{b}[{b}];",
            f"    y[{a} + {b}] = expf(x[{a}] - y[{b}]);",
            "    __syncthreads();",
            "",
        ]
    )


def rewritten(source: str, draws: random.Random) -> str:
    """Changes, replaces, duplicates or drops every line, and moves a 120-line block."""
    lines = source.split("\n")
    at = draws.randrange(200, len(lines) - 400)
    block, lines = lines[at : at + 120], lines[:at] + lines[at + 120 :]
    found: list[str] = []
    for number, line in enumerate(lines):
        if number == len(lines) // 2:
            found += block
        choice = draws.random()
        if not line.strip() or line.startswith(("class", "SOURCE", '"""', "import", "#")):
            found.append(line)
        elif choice < 0.5:
            found.append(re.sub(r"\d+", lambda match: str(int(match[0]) + 1), line, count=1).replace("blockDim", "gridDim"))
        elif choice < 0.7:
            found.append(f"    float t{draws.randrange(10**6)} = {draws.random():.5f}f;")
        elif choice < 0.85:
            found += [line.replace("float", "double"), f"    // {draws.randrange(10**6)}"]
    return "\n".join(found)
