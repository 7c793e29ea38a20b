"""Measures the server's response time for each main page of the site with a full database, using 50 consecutive requests per page."""

from __future__ import annotations

import time

import httpx

from bench.pages.rows import PageFigure, percentile
from bench.pages.seed import Seeded

REQUESTS = 50
WARM_UP = 3
BAR_MS = 150.0


def pages(seeded: Seeded) -> dict[str, str]:
    """Returns the name and address of every page that has a target."""
    run = f"/runs/{seeded.run}/"
    return {
        "runs": "/",
        "runs, filtered": "/?state=improved&q=softmax",
        "runs, by speedup": "/?sort=-speedup",
        "run": run,
        "run of 20,000 events": f"/runs/{seeded.trace}/",
        "candidate": f"{run}candidates/3/",
        "submit": "/submit/",
        "leaderboard": "/leaderboard/",
        "strategies": "/strategies/",
        "arena": "/arena/",
        "models": "/models/",
        "devices": "/devices/",
        "connect a GPU": "/devices/connect/",
        "all pages": "/advanced/",
        "glossary": "/glossary/",
        "tasks": "/tasks/",
        "review": "/review/",
        "notifications": "/notifications/",
        "webhooks": "/notifications/hooks/",
        "palette, empty": "/palette",
        "palette, runs and tasks": "/palette?q=softmax",
        "palette, events and kernels": "/palette?q=memory+bound",
    } | seeded.places.get("answers", {})


def measure(page, base_url: str, seeded: Seeded) -> list[PageFigure]:
    """Measures pages. `page` is signed in; its cookies are used over plain HTTP, so that only the server is measured."""
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    rows = []
    with httpx.Client(base_url=base_url, cookies=cookies, timeout=60, trust_env=False, follow_redirects=True) as client:
        for name, address in pages(seeded).items():
            samples = []
            for turn in range(WARM_UP + REQUESTS):
                begun = time.perf_counter()
                answer = client.get(address)
                spent = (time.perf_counter() - begun) * 1000
                if answer.status_code != 200:
                    raise RuntimeError(f"{address} was answered with {answer.status_code}")
                if turn >= WARM_UP:
                    samples.append(spent)
            rows.append(PageFigure(f"{name}: p50", percentile(samples, 0.5), "ms"))
            rows.append(PageFigure(f"{name}: p95", percentile(samples, 0.95), "ms", BAR_MS, samples))
    return rows
