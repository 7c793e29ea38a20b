"""State is read from a program's own tables without running any of the program's code."""

from __future__ import annotations

import pytest
import torch

from verifier.parties.plain_state import lasting
from verifier.parties.stored import stored


class Late(torch.nn.Module):
    """Changes its state whenever its own code is used to read it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3))
        self.register_state_dict_pre_hook(lambda module, prefix, keep: module.last.fill_(1.0))

    def state_dict(self, *args, **kwargs):
        self.last.add_(1.0)
        return super().state_dict(*args, **kwargs)

    def named_buffers(self, *args, **kwargs):
        self.last.add_(1.0)
        return super().named_buffers(*args, **kwargs)


def nested() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    model.register_buffer("mask", torch.ones(3), persistent=False)
    return model


@pytest.mark.parametrize("model", [nested(), torch.jit.script(nested()), torch.compile(nested())])
def test_names_are_those_of_a_state_dict_and_tensors_are_the_models_own(model):
    found, plain = stored(model), lasting(getattr(model, "_orig_mod", model))
    assert found.keys() == plain.keys() and all(found[name].data_ptr() == plain[name].data_ptr() for name in plain)


def test_a_compiled_part_has_the_names_of_the_part():
    outer = torch.nn.Module()
    outer.net = torch.compile(torch.nn.Linear(2, 3))
    assert list(stored(outer)) == ["net.weight", "net.bias"]


def test_no_method_and_no_hook_makes_state_while_it_is_read():
    assert torch.equal(stored(Late())["last"], torch.zeros(3))


def test_what_is_no_plain_tensor_in_a_table_is_left_out():
    class Odd(torch.Tensor):
        pass

    class Table(dict):
        def items(self):
            raise AssertionError("the program's own code ran")

    model = Late()
    model.odd, model.inner = torch.zeros(2).as_subclass(Odd), torch.nn.Module()
    model.register_buffer("other", torch.zeros(2).as_subclass(Odd))
    model.inner.outer = model
    model.__dict__["_buffers"] = Table(model._buffers)
    assert list(stored(model)) == ["last"]
    assert stored("no module") == {}
