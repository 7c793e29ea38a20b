"""Times two programs against each other in one job."""

from __future__ import annotations

import pytest
from verifier_bench import PROGRAM

# Uses a single slow thread: with more, the others would spin for a millisecond afterwards, on a processor that the fetching process needs if there
# are only two.
SLOW = PROGRAM.replace(
    "return torch.softmax(x, dim=-1)", "for _ in range(300):\n            self.scale.sum()\n        return torch.softmax(x, dim=-1)"
)


@pytest.mark.timed
def test_the_faster_of_two_programs_is_told_by_an_interval(bench):
    report = bench.verify(SLOW, rival_source=PROGRAM)
    assert report.status == "passed", report.message
    against = report.timing.rival
    assert against.baseline == "rival" and report.rival != report.program
    assert against.speedup.high < 1, "without the rival's saving it is slower"
    assert len(against.program_samples_ms) == len(against.baseline_samples_ms) == against.blocks
    assert [comparison.baseline for comparison in report.timing.comparisons] == ["eager"], "a rival is no baseline"


def test_a_rival_that_is_wrong_or_fails_is_no_verdict_on_the_program(quick):
    for rival, said in (
        (PROGRAM.replace("* self.scale", "* self.scale + 1"), "is wrong"),
        (PROGRAM.replace("return torch", "raise RuntimeError('not today')\n        return torch"), "failed: "),
        ("class Other: pass", "cannot be read"),
    ):
        report = quick.verify_once(PROGRAM, rival_source=rival)
        assert (report.status, report.timing) == ("inconclusive", None)
        assert said in report.message and "timed against" in report.message


@pytest.mark.slow
@pytest.mark.timed
def test_tier_full_has_a_fresh_process_of_the_rival_in_each_pair(bench):
    timing = bench.verify(SLOW, rival_source=PROGRAM, tier="full").timing
    assert timing.pairs in (3, 6), "more where a busy machine makes the interval wide"
    assert set(timing.rival.processes) == set(range(timing.pairs))
    assert [comparison.baseline for comparison in timing.comparisons] == ["eager"], "no other baselines beside a rival"
