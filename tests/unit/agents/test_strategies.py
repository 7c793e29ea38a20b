from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from agents.diagnosis import allowed
from agents.strategies import CATALOGUE, FAMILIES, LANGUAGES, Facts, by_name
from agents.strategies.how_to import how_tos
from agents.strategies.strategy import BOTTLENECKS
from verifier.profiling.diagnosing.diagnosis import FAULT_CLASS


def some_facts():
    """Yields every combination of known and unknown facts on which a predicate can be evaluated."""
    known = itertools.product(
        ("cpu", "cuda"),
        BOTTLENECKS,
        ("fp32-strict", "bf16"),
        (None, 1.01, 4.0),
        (None, True, False),
        (None, True, False),
        (None, 40.0),
        (None, (8, 0)),
    )
    for device, bottleneck, precision, headroom, products, reductions, launches, capability in known:
        yield Facts(
            device, bottleneck, precision, program_us=launches and 200.0, headroom=headroom, launches=launches, products=products,
            reductions=reductions, reuse=None if products is None else bool(products or reductions), capability=capability,
            registers=launches and 128, own_share=launches and 0.0, faults=() if launches else tuple(FAULT_CLASS),
        )  # fmt: skip


def test_every_entry_is_complete():
    assert len({s.name for s in CATALOGUE}) == len(CATALOGUE) >= 34
    assert {s.name for s in CATALOGUE} == set(how_tos())
    for entry in CATALOGUE:
        assert by_name(entry.name) is entry
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.name)
        assert entry.answers and set(entry.answers) <= set(BOTTLENECKS)
        assert entry.applies and entry.expectation and entry.forbidden and entry.references
        assert entry.family in FAMILIES
        assert entry.cuda and entry.triton and bool(entry.cpp) == ("cpu" in entry.devices)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_how_to_is_two_to_six_sentences(language):
    for entry in CATALOGUE:
        text = getattr(entry, language)
        sentences = len(re.findall(r"\.(?=\s+[A-Z`-]|$)", text))
        assert not text or 2 <= sentences <= 6, (entry.name, sentences)


def test_every_bottleneck_is_answered():
    for bottleneck in set(BOTTLENECKS) - {"none"}:
        assert any(bottleneck in entry.answers for entry in CATALOGUE), bottleneck
    for device, bottleneck in itertools.product(("cpu", "cuda"), set(BOTTLENECKS) - {"none"}):
        assert allowed(Facts(device, bottleneck)), f"{bottleneck} on {device} has no method"


def test_every_fault_of_the_diagnosis_has_a_cure():
    for fault, bottleneck in FAULT_CLASS.items():
        facts = Facts("cuda", bottleneck, precision="bf16", faults=(fault,), headroom=3.0, launches=40, program_us=200)
        first = by_name(allowed(facts)[0])
        assert fault in first.cures, fault


def test_predicates_answer_whatever_is_known():
    for facts in some_facts():
        for entry in CATALOGUE:
            refusal = entry.refuses(facts)
            assert refusal is None or (isinstance(refusal, str) and len(refusal) > 10)


def test_every_family_has_something_for_each_device():
    for device in ("cpu", "cuda"):
        usable = {entry.family for entry in CATALOGUE if device in entry.devices}
        assert usable == set(FAMILIES), device


def test_the_gate_says_why():
    graph = by_name("cuda-graph")
    assert "cuda only" in graph.refuses(Facts("cpu", "launch"))
    assert graph.refuses(Facts("cuda", "launch", launches=40, program_us=200)) is None
    assert "applies where" in graph.refuses(Facts("cuda", "memory", launches=1, program_us=2000))
    assert "same shapes" in graph.refuses(Facts("cuda", "launch", launches=40, program_us=200, static_shapes=False))
    assert by_name("vectorise").refuses(Facts("cpu", "memory", headroom=1.01)) is not None


@pytest.mark.parametrize("name", ["row-cache", "tile-reuse", "register-blocking", "software-pipeline", "read-only-cache", "swizzle-blocks"])
def test_no_method_of_reuse_without_something_to_reuse(name):
    facts = Facts("cuda", "memory", reuse=False, products=False, faults=("no-data-reuse",))
    assert "nothing to keep" in by_name(name).refuses(facts) or "applies where" in by_name(name).refuses(facts)
    assert by_name(name).refuses(Facts("cuda", "memory", reuse=True, products=True, headroom=4.0, faults=("no-data-reuse",))) is None


def test_the_vendors_loops_stay_where_they_are_near_the_floor():
    near, far = (Facts("cuda", "compute", products=True, reuse=True, headroom=h) for h in (1.2, 4.0))
    assert "vendor's product stays" in by_name("register-blocking").refuses(near)
    assert by_name("register-blocking").refuses(far) is None
    assert by_name("leave-to-library").refuses(near) is None


def test_hardware_and_policy_forbid_what_they_do_not_have():
    assert "9.0" in by_name("tma-copies").refuses(Facts("cuda", "memory", capability=(8, 0)))
    assert by_name("tma-copies").refuses(Facts("cuda", "memory", capability=(9, 0))) is None
    assert "fp32" in by_name("reduced-precision").refuses(Facts("cuda", "memory"))
    assert by_name("split-product").refuses(Facts("cuda", "compute", headroom=4.0)) is None
    assert by_name("split-product").refuses(Facts("cuda", "compute", precision="tf32", headroom=4.0))


def test_the_reference_page_is_current():
    from agents.strategies.__main__ import page

    kept = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "strategies.md").read_text()
    assert kept == page(), "run: python -m agents.strategies > docs/reference/strategies.md"
