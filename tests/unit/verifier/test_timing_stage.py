"""How the `timing` stage ends: what is attributed to the program, and what to a busy host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from verifier.judge.endings import Ended
from verifier.timing.outside import disturbed
from verifier.timing.stage import measure

BUSY = "this host is busy: other work took the processors in 60% of the calls"


class Measured:
    """A tournament that gives the same result each time."""

    def __init__(self, problem="", **said):
        self.__dict__ |= {"burning": "", "crowded": "", "disturbed": "", "busy": "", "wide": "", **said}
        self.problem, self.runs = problem, 0
        self.outputs = SimpleNamespace(failed=[], checked=[], rival_off="")

    def run(self, subject):
        self.runs += 1
        return SimpleNamespace(charged_ms=0.0), self.problem


def ended(tournament):
    trials, report = SimpleNamespace(subject=object(), reconstruct=lambda subject: None), SimpleNamespace(trials=[], findings=[])
    with pytest.raises(Ended) as raised:
        measure(tournament, trials, report, None, object)
    assert tournament.runs == 2
    return raised.value, report.findings


@pytest.mark.parametrize(
    ("said", "rule", "status"),
    [
        ({"burning": "the program used 19% of a processor"}, "burns-cpu", "rejected"),
        ({"problem": "work begins before the clock"}, "clock", "inconclusive"),
        ({"crowded": "another process keeps it busy"}, "crowded", "inconclusive"),
    ],
)
def test_on_a_busy_host_no_program_is_accused(said, rule, status):
    end, findings = ended(Measured(**said))
    assert (end.status, end.message) == (status, next(iter(said.values()))) and {finding.rule for finding in findings} == {rule}
    end, findings = ended(Measured(**said, disturbed=BUSY))
    assert (end.status, end.message) == ("inconclusive", BUSY) and {(finding.rule, finding.severity) for finding in findings} == {
        ("busy-host", "note")
    }
    assert next(iter(said.values())) in findings[0].message


def test_a_host_is_busy_where_many_calls_waited_for_a_processor():
    sides = [SimpleNamespace(laps=SimpleNamespace(made=10, preempted=preempted)) for preempted in (0, 5)]
    assert disturbed(sides, 0.25) == "" and "in 25% of the calls" in disturbed(sides, 0.2) and disturbed([], 0.2) == ""
