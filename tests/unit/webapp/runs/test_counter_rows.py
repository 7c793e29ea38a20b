"""Counters on a candidate's page: measured, not measured (with the reason), and profiles from before counters existed."""

import pytest
from django.urls import reverse

from tests.browser import sample_run
from verifier.jobs import KernelProfile, Profile
from verifier.profiling.nsight import counters
from webapp.runs import artefacts
from webapp.runs.models import Artefact
from webapp.runs.pages.counter_rows import DRAM, counter_rows, not_measured


def kernel(name="void rows<4>(float*)", **values):
    return KernelProfile(**{"name": name, "own": True, "calls": 3, "total_us": 30.0, "mean_us": 10.0, "share": 0.9} | values)


def profile(*kernels, **values):
    return Profile(**{"task": "t", "program": "p", "tool": "nsys", "iterations": 3, "wall_us_per_iteration": 12.0, "kernels": list(kernels)} | values)


COUNTED = kernel(
    registers=40,
    occupancy=0.41,
    occupancy_possible=0.5,
    occupancy_limit="registers",
    stalls={"selected": 0.4, "long_scoreboard": 0.35, "barrier": 0.1},
    resources={"spill_store_bytes": 104, "spill_load_bytes": 112},
    metrics={
        DRAM: 71.0,
        counters.SM_SHARE: 22.0,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 72.0,
    },
)


def test_a_counted_kernel():
    (row,) = counter_rows(profile(COUNTED, counters_tool="ncu"))
    assert (row.bound, row.dram, row.compute, row.occupancy, row.possible, row.limit) == ("memory", 0.71, 0.22, 0.41, 0.5, "registers")
    assert (row.spills, row.spilled, row.stall, row.stall_share) == (104, True, "global memory", 0.35)


@pytest.mark.parametrize(
    ("compute", "memory", "active", "expected"),
    [(80, 30, 90, "compute"), (30, 80, 90, "memory"), (30, 30, 90, "latency"), (30, 30, 10, "occupancy"), (None, 80, 90, "")],
)
def test_the_word_for_what_holds_a_kernel_back(compute, memory, active, expected):
    metrics = {counters.OCCUPANCY: active, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": memory}
    metrics |= {counters.SM_SHARE: compute} if compute is not None else {}
    assert counter_rows(profile(kernel(metrics=metrics)))[0].bound == expected


def test_what_was_not_measured_says_why():
    assert not_measured(profile(COUNTED, counters_tool="ncu")) == ""
    assert not_measured(profile(counters_reason="not asked for")) == "not asked for"
    assert "older" in not_measured(profile())
    assert counter_rows(profile(kernel())) == [] == counter_rows(None)


@pytest.fixture
def page(people):
    """Returns the page's tab with a profile attached to candidate 4."""
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    candidate = run.candidates.get(number=4)

    def get(attached: Profile) -> str:
        ref = artefacts.put(run.team_id, attached.model_dump_json().encode(), "application/json", "profile.json")
        candidate.profile = Artefact.objects.get(team_id=run.team_id, sha=ref.sha)
        candidate.save()
        return people.client("alice").get(reverse("runs:fragment", args=[run.pk, 4, "kernels"])).content.decode()

    return get


def test_the_page_with_counters(page):
    text = page(profile(COUNTED, counters_tool="ncu", counters_version="2025.3.1"))
    assert "Nsight Compute 2025.3.1" in text and "global memory" in text and "71 %" in text and "104 B" in text
    assert "Not measured" not in text


def test_the_page_without_counters_says_why_and_shows_theory(page):
    refused = "this host lets only administrators read GPU counters (ERR_NVGPUCTRPERM)"
    theory = kernel(registers=40, occupancy_possible=0.5, occupancy_limit="registers", resources={"spill_store_bytes": 0})
    text = page(profile(theory, counters_reason=refused))
    assert "Not measured: this host lets only" in text and "at most" in text and "bounded by registers" in text and "not measured" in text


def test_a_profile_of_the_cpu_has_no_such_table(page):
    text = page(profile(kernel(name="aten::add"), tool="torch-profiler", counters_reason="Nsight Compute counts on GPUs; this is the CPU"))
    assert "aten::add" in text and "Counters" not in text
