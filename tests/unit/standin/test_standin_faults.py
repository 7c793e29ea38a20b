from collections import Counter

import pytest

from tests.standin.faults import CONTENT, KINDS, TRANSPORT, Fault, FaultPlan

PROGRAM_FAULTS = ("prose", "wrong-file", "does-not-compile", "wrong-result", "cheat", "stale-block")


def drawn(plan: FaultPlan, count: int) -> list[str]:
    return [str(plan.choose(f"task/coder/s{at}", f"body {at}", "", PROGRAM_FAULTS, ["17_memo", "24_last"]) or "") for at in range(count)]


def test_the_same_seed_makes_the_same_faults_and_another_makes_others():
    assert drawn(FaultPlan(3, 0.6), 40) == drawn(FaultPlan(3, 0.6), 40)
    assert drawn(FaultPlan(3, 0.6), 40) != drawn(FaultPlan(4, 0.6), 40)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 1.0])
def test_the_rate_is_the_share_of_faulty_replies_and_a_third_of_it_is_lost_on_the_way(rate):
    plan = FaultPlan(1, rate)
    names = [name.partition(":")[0] for name in drawn(plan, 3000)]
    lost = [name for name in names if name in TRANSPORT]
    assert abs(len(lost) / 3000 - rate / 3) < 0.04
    assert abs(sum(name in CONTENT for name in names) / (3000 - len(lost)) - rate) < 0.04
    assert plan.done.total() == 3000


@pytest.mark.parametrize("seed", range(8))
def test_each_suite_meets_the_rate(seed):
    first = []
    for at in range(15):
        plan = FaultPlan(seed, 0.6, KINDS, (at, 15))
        replies = (plan.choose(f"task {at}/coder/s1", "a", "", PROGRAM_FAULTS, ["x"]) for _ in range(2))
        first.append(next(fault for fault in replies if fault is None or not fault.transport))
    assert sum(fault is not None for fault in first) == 9


def test_every_kind_comes_up():
    counted = Counter(name.partition(":")[0] for name in drawn(FaultPlan(1, 1.0), 2000))
    assert set(counted) == {*TRANSPORT, *PROGRAM_FAULTS}


def test_a_fault_of_content_stays_until_the_prompt_explains_it():
    plan = FaultPlan(1, 1.0, ("does-not-compile",))
    first = plan.choose("t/coder/s1", "a", "", PROGRAM_FAULTS)
    assert [plan.choose("t/coder/s1", body, "It failed again.", PROGRAM_FAULTS) for body in "bcd"] == [first] * 3
    said = f"kernels.cpp:12:18: error: '{first.token}' was not declared in this scope"
    plan.rate = 0.0
    assert plan.choose("t/coder/s1", "e", said, PROGRAM_FAULTS) is None
    assert plan.choose("t/coder/s1", "f", "", PROGRAM_FAULTS) is None, "what was understood stays understood"


def test_it_stays_where_it_is():
    plan = FaultPlan(1, 1.0, ("wrong-result",))
    assert plan.choose("t/coder/s1", "a", "", PROGRAM_FAULTS)
    plan.rate = 0.0
    assert plan.choose("t/coder/s2", "b", "", PROGRAM_FAULTS) is None
    assert plan.choose("u/coder/s1", "c", "", PROGRAM_FAULTS) is None
    assert plan.choose("t/coder/s1", "d", "", PROGRAM_FAULTS)


@pytest.mark.parametrize(
    ("kind", "evidence"),
    [
        ("malformed-json", "The JSON cannot be read: Expecting ',' delimiter at line 3, column 2, near `x`."),
        ("wrong-file", "The fence defines `Model`, which is the reference and may not be edited: the program defines `class ModelNew`."),
        ("stale-block", "No block was applied, since not all of them fit:\n- Block 1: its SEARCH does not occur in the program (0 matches)."),
        ("wrong-result", "wrong result: 12 % of the elements are off"),
        ("cheat", "rejected: integrity: reads frames of its callers"),
        ("cheat", "crashed: the program ended its process"),
    ],
)
def test_what_the_product_says_explains_a_fault(kind, evidence):
    assert Fault(kind).explained_by(evidence)
    assert not Fault(kind).explained_by("The program did not pass.")


def test_a_fault_of_the_transport_goes_away_when_the_same_request_comes_again():
    plan = FaultPlan(5, 3.0, TRANSPORT)
    assert plan.choose("t/coder/s1", "a", "", PROGRAM_FAULTS).transport
    assert plan.choose("t/coder/s1", "a", "", PROGRAM_FAULTS) is None
    assert plan.choose("t/coder/s1", "b", "", PROGRAM_FAULTS).transport


def test_the_kinds_are_those_of_the_two_groups():
    assert set(KINDS) == set(TRANSPORT) | set(CONTENT)
