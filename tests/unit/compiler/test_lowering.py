"""The registry of lowered operators, and the lists elsewhere that name the same operators."""

import pytest
import torch

from compiler.graph import deciding, of_weights
from compiler.kernel import fuse, lowering
from compiler.kernel.expressions import INFIX
from compiler.kernel.functions import FUNCTIONS
from compiler.kernel.lowering import LOWERINGS, lowers
from compiler.program import print_torch
from compiler.targets.cpp import math_text
from compiler.targets.triton import expressions as triton
from verifier.graph import Node

LISTS = {
    "computed of weights": of_weights.FUNCTIONS.keys() | of_weights.INFIX.keys() | {"_to_copy"},
    "printed as Python's operators": print_torch.INFIX.keys(),
    "conversions that decide": deciding.CASTS,
    "functions of angles": deciding.ANGLES,
}


@pytest.mark.parametrize("name", LISTS)
def test_operators_in_lists_elsewhere_are_lowered(name):
    assert fuse.LOWERED_IN
    assert {one for one in LISTS[name] if f"aten.{one}" not in LOWERINGS} == set()


def test_pytorch_has_what_is_lowered_and_what_decides():
    lists = [deciding.COMPARISONS, deciding.FINITE, deciding.WHOLE, deciding.ORDERS, deciding.ANGLES, deciding.LOGICAL, deciding.CASTS]
    names = {name.removeprefix("aten.") for name in LOWERINGS if name.startswith("aten.")}.union(*lists)
    assert {name for name in names if not hasattr(torch.ops.aten, name)} == set()


def test_every_function_has_a_name_and_a_source_in_each_language():
    for kind, function in FUNCTIONS.items():
        assert function.triton or kind in triton.PLAIN, kind
        assert not function.cpp.endswith("_f") or kind in math_text.SOURCES, kind
    assert {kind for kind in math_text.SOURCES if kind not in FUNCTIONS} == set()
    assert not set(FUNCTIONS) & set(INFIX)


def test_an_operator_has_one_lowering(monkeypatch):
    monkeypatch.setattr(lowering, "LOWERINGS", dict(LOWERINGS))
    with pytest.raises(ValueError, match=r"aten\.div is lowered by div and by other"):

        @lowers("aten.div")
        def other(builder, node):
            return ""


def test_operators_of_other_libraries_are_not_lowered():
    """A library may define its own operator named `exp`."""
    made = [Node(name="y", op=op, args=[{"ref": "x"}], kwargs={}, outputs=[]) for op in ("aten.exp.default", "mine.exp.default", "getitem")]
    assert [lowering.is_lowered(node) for node in made] == [True, False, False]
