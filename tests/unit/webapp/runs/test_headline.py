"""Headlines: relative to the best measured baseline, with an outcome and its confidence; identical in Python and in the page's module."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from django.urls import reverse

from tests.unit.webapp.cast import make_run
from tests.unit.webapp.people import add_verification, make_result
from tests.unit.webapp.test_scripts import node
from webapp.environment import ROOT
from webapp.runs.headline import NAMES, OUTCOMES, Headline, headline_of, of_verification, to_go_on
from webapp.runs.models import Run, Verification

BEST = {"best_baseline": "compile", "best_baseline_speedup": 1.3, "best_baseline_low": 1.2, "best_baseline_high": 1.4, "baselines": 2}
EAGER = {"best_baseline": "eager", "best_baseline_speedup": 2.0, "best_baseline_low": 1.9, "best_baseline_high": 2.1}

# The measurement, and (outcome, first ratio, compared with, whether eager comes second, provisional).
CASES = {
    "faster than a compiler": ({**BEST}, ("faster", 1.3, "torch.compile", True, False)),
    "faster than eager, slower than a compiler": (
        {**BEST, "best_baseline_speedup": 0.9, "best_baseline_low": 0.85, "best_baseline_high": 0.95},
        ("none", 0.9, "torch.compile", True, False),
    ),
    "not told from a compiler": ({**BEST, "best_baseline_low": 0.99}, ("none", 1.3, "torch.compile", True, False)),
    "a quick measurement": ({**EAGER, "tier": "quick", "baselines": 1}, ("promising", 2.0, "eager", False, True)),
    "full, but only eager could be timed": ({**EAGER, "baselines": 1}, ("promising", 2.0, "eager", False, True)),
    "eager is the best of several": ({**EAGER, "baselines": 3}, ("faster", 2.0, "eager", False, False)),
    "wrong": ({"status": "wrong_result"}, ("wrong", None, "", False, False)),
    "does not build": ({"status": "build_failed"}, ("wrong", None, "", False, False)),
    "busy host": ({"status": "inconclusive"}, ("noisy", None, "", False, False)),
    "broken host": ({"status": "infrastructure_error"}, ("unmeasured", None, "", False, False)),
    "not verified yet": ({"status": ""}, ("", None, "", False, False)),
}


def row(**given) -> Verification:
    columns = {"status": "passed", "tier": "full", "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1} | given
    if columns["status"] != "passed":
        columns |= dict.fromkeys(("speedup", "speedup_low", "speedup_high"))
    return Verification(**columns)


def told(found: Headline) -> tuple:
    return found.outcome, found.first and found.first.ratio, found.against, found.eager is not None, found.provisional


@pytest.mark.parametrize(("status", "outcome"), [("inconclusive", "noisy"), ("infrastructure_error", "unmeasured"), ("wrong_result", "none")])
def test_a_run_that_spent_its_budget_on_a_busy_host_says_nothing_of_the_model(people, status, outcome):
    run = make_run(people.alice)
    add_verification(run, status=status)
    Run.objects.filter(pk=run.pk).update(state="finished", outcome="out_of_budget", best_candidate=None)
    run.refresh_from_db()
    assert headline_of(run).outcome == outcome


@pytest.mark.parametrize("case", CASES)
def test_the_first_figure_is_over_the_best_baseline_that_was_measured(case: str):
    given, expected = CASES[case]
    assert told(of_verification(row(**given))) == expected


def in_the_page(given: dict) -> dict:
    """Returns the verdict and the report behind a row with these columns."""
    found = row(**given)
    speedup = found.speedup and {"ratio": found.speedup, "low": found.speedup_low, "high": found.speedup_high}
    comparisons = [{"baseline": "eager", "speedup": speedup}]
    if found.best_baseline not in ("", "eager"):
        best = {"ratio": found.best_baseline_speedup, "low": found.best_baseline_low, "high": found.best_baseline_high}
        comparisons.append({"baseline": found.best_baseline, "speedup": best})
    slower = {"baseline": "compile", "speedup": {"ratio": 9.0, "low": 8.0, "high": 10.0}}
    comparisons += [slower] * ((found.baselines or 1) - len(comparisons))
    report = {"timing": {"comparisons": comparisons}} if found.tier == "full" and speedup else None
    return {"verdict": {"status": found.status, "tier": found.tier, "speedup": speedup}, "report": report}


def test_the_page_says_the_same():
    script = f"""
      import {{ headlineOf, NAMES, OUTCOMES }} from "{ROOT}/static/js/run/headline.js";
      const cases = {json.dumps({name: in_the_page(given) for name, (given, _) in CASES.items()})};
      const told = Object.fromEntries(Object.entries(cases).map(([name, {{ verdict, report }}]) => {{
        const found = headlineOf(verdict, report);
        return [name, [found.outcome, found.first?.ratio ?? null, found.against, found.eager !== null, found.provisional]];
      }}));
      console.log(JSON.stringify({{ told, names: NAMES, outcomes: OUTCOMES }}));
    """
    done = subprocess.run([node(), "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {name: tuple(found) for name, found in answer["told"].items()} == {name: expected for name, (_, expected) in CASES.items()}
    assert answer["names"] == NAMES and {name: tuple(words) for name, words in answer["outcomes"].items()} == OUTCOMES


@pytest.mark.parametrize(
    ("state", "outcome", "workflow", "status", "expected"),
    [
        ("finished", "failed", "stitch", "wrong_result", "none"),
        ("finished", "failed", "verify", "wrong_result", "wrong"),
        ("finished", "inconclusive", "stitch", "", "noisy"),
        ("finished", "cancelled", "stitch", "", "cancelled"),
        ("finished", "out_of_budget", "stitch", "", "none"),
        ("running", "", "stitch", "wrong_result", ""),
    ],
)
def test_a_run_without_a_program_that_passed(people, state, outcome, workflow, status, expected):
    run = make_run(people.alice, state=state, outcome=outcome, workflow=workflow)
    if status:
        add_verification(run, status=status, speedup=None)
    assert headline_of(run).outcome == expected


def test_run_row_and_candidate_begin_with_the_same_figure(people):
    run = make_result(people.alice, ratio=2.0, **BEST)
    client = people.client("alice")
    pages = [reverse("runs:list"), reverse("runs:run", args=[run.pk]), reverse("runs:candidate", args=[run.pk, 2])]
    for page in (client.get(address).content.decode() for address in pages):
        assert re.search(r'class="speedup[^"]*"[^>]*><b>([^<]+)', page)[1] == "1.30×"
        assert "[1.20, 1.40]" in page and "over torch.compile" in page and "Faster (confirmed)" in page
    assert all("2.00×" in client.get(address).content.decode() for address in pages[1:])


def test_download_is_primary_only_where_there_is_something_to_use(people):
    better = make_result(people.alice, ratio=2.0, **BEST)
    equal = make_result(people.alice, ratio=2.0, **(BEST | {"best_baseline_low": 0.98}))
    client = people.client("alice")
    for run, primary in ((better, True), (equal, False)):
        for address, shape in (
            (reverse("runs:run", args=[run.pk]), r'class="(button[^"]*)" data-open-dialog data-part="download"'),
            (reverse("runs:candidate", args=[run.pk, 2]), r'<a class="(button[^"]*)" href="[^"]*program.py" download'),
        ):
            button = re.search(shape, client.get(address).content.decode())[1]
            assert ("primary" in button) is primary
    assert "No reliable speedup: keep your model" in client.get(reverse("runs:run", args=[equal.pk])).content.decode()


def test_a_run_that_ended_early_says_how_it_goes_on():
    early = Run(state="finished", outcome="matched", reason="No applicable optimization left; stopped early.")
    assert "fork the run" in to_go_on(early)
    assert "raise the budget" in to_go_on(Run(state="finished", outcome="out_of_budget"))
    assert to_go_on(Run(state="finished", outcome="improved", reason="candidate 3 is faster")) == "" == to_go_on(Run(state="running"))
