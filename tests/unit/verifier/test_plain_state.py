"""State outside the state dict, saved and restored: buffers that grow, iterators over layers, files."""

from __future__ import annotations

import ast
import itertools
import sys

import torch
from torch import nn

from verifier.parties.capturing.statements import unrolled
from verifier.parties.plain_state import PlainState
from verifier.parties.saved import Seen, save


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(0, 4), persistent=False)
        self.register_buffer("last", None, persistent=False)

    def forward(self, x):
        self.cache = torch.cat([self.cache, x])
        self.last = x
        return self.cache.sum(0)


def test_a_buffer_that_grows_is_put_back_and_named():
    model, x = Growing(), torch.ones(2, 4)
    plain = PlainState(model)
    one = model(x)
    assert "self.cache" in plain.changed() and "self.last" in plain.changed()
    plain.restore()
    assert model.cache.shape == (0, 4) and model.last is None
    assert torch.equal(model(x), one)
    model.cache = None
    plain.restore()
    assert model.cache.shape == (0, 4)


class Turns(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.turn = itertools.cycle(self.experts)
        self.out = sys.stderr

    def forward(self, x):
        return next(self.turn)(x)


def test_an_iterator_over_layers_starts_again_with_the_models_own_layers():
    model, x = Turns(), torch.ones(1, 4)
    plain = PlainState(model)
    one = model(x)
    plain.restore()
    assert torch.equal(model(x), one)
    plain.restore()
    with torch.no_grad():
        model.experts[0].weight.zero_()
        model.experts[0].bias.zero_()
    assert not model(x).any(), "not a copy with the weights of before"
    assert model.out is sys.stderr


def test_what_is_too_deep_or_has_no_content_stays_the_same_object():
    deep: object = {1}
    for _ in range(12):
        deep = [deep]
    for value in (deep, sys.stdout, nn.Linear(1, 1), print):
        saved = save(value, Seen())
        assert saved.restored() is value and not saved.differs(value)


def test_a_loop_over_what_a_lambda_calls_a_parameter_stays_a_loop():
    def loop(source: str) -> ast.For:
        found = ast.parse(source).body[0]
        assert isinstance(found, ast.For)
        return found

    passes: list[ast.expr] = [ast.Constant(0), ast.Constant(1)]
    assert unrolled(loop("for i in r: x = g(x, lambda i: i * 2)"), passes, (), str) is None
    assert unrolled(loop("for i in r:\n def f(i): return i\n x = f(x)"), passes, (), str) is None
    assert unrolled(loop("for i in r: x = g(x, i)"), passes, (), str) is not None
