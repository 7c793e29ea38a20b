"""Outputs are plain tensors that can be read without further work: no view to be negated, no wrapper, no mode that acts when they are read."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from verifier.correctness.bounds import same_form
from verifier.layout import LayoutError, Spec
from verifier.parties.series import Handed, delivered

ROW = torch.arange(6.0)


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("tensor", "left"),
    [
        (torch._neg_view(ROW), "neg"),
        (torch.view_as_complex(ROW.view(3, 2)).conj(), "conj"),
        (torch.view_as_complex(ROW.view(3, 2)).conj().imag, "neg"),
    ],
)
def test_a_view_that_its_reader_resolves_is_the_tasks_alone(tensor, left):
    lazy, resolved = Spec.of(tensor), Spec.of(tensor.resolve_conj().resolve_neg())
    assert lazy.left == left and resolved.left is None
    assert f"torch.resolve_{left}" in same_form(lazy, resolved, "out")
    assert same_form(resolved, lazy, "out") == "" == same_form(lazy, lazy, "out")
    form = (tuple(tensor.shape), resolved.stride or torch.empty(tensor.shape).stride(), tensor.dtype)
    said = Handed({}, [form], [(tensor.is_neg(), tensor.is_conj())], copied=True, footprints=[]).message([])["specs"]
    assert [Spec.model_validate(spec) for spec in said] == [lazy]


def test_an_output_is_no_wrapper():
    seen = []
    torch.vmap(lambda row: seen.append(row) or row)(ROW.view(2, 3))
    for tensor in (torch._to_functional_tensor(ROW), torch._efficientzerotensor((3,)), *seen):
        assert type(tensor) is torch.Tensor
        with pytest.raises(LayoutError, match=r"plain torch\.Tensor"):
            delivered([tensor], "cpu")
    assert torch.equal(delivered(ROW, "cpu")[1][0], ROW)


@pytest.mark.parametrize("mode", [Functions, Operators])
def test_no_mode_is_left_that_could_work_when_an_output_is_read(mode):
    with mode(), pytest.raises(LayoutError, match="still active"):
        delivered(ROW, "cpu")
    with torch.device("cpu"):
        assert torch.equal(delivered(ROW, "cpu")[1][0], ROW)
