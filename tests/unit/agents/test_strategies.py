from __future__ import annotations

from agents.strategies import CATALOGUE, Facts, by_name
from agents.strategies.strategy import BOTTLENECKS


def test_every_entry_is_complete():
    assert len({s.name for s in CATALOGUE}) == len(CATALOGUE)
    for entry in CATALOGUE:
        assert by_name(entry.name) is entry
        assert entry.answers and set(entry.answers) <= set(BOTTLENECKS)
        assert entry.applies and entry.expectation and entry.forbidden and entry.references
        assert entry.cuda and entry.triton and (entry.cpp or "cpu" not in entry.devices)


def test_the_gate_says_why():
    graph = by_name("cuda-graph")
    assert "cuda only" in graph.refuses(Facts("cpu", "launch"))
    assert graph.refuses(Facts("cuda", "launch", launches=40, program_us=200)) is None
    assert "applies where" in graph.refuses(Facts("cuda", "memory", launches=1, program_us=2000))
    assert "same shapes" in graph.refuses(Facts("cuda", "launch", launches=40, program_us=200, static_shapes=False))
    assert by_name("vectorise").refuses(Facts("cpu", "memory", headroom=1.01)) is not None
