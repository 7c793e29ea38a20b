"""The operations of a call, including recurrent layers, and the source of the library classes of which a model consists."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from verifier.parties.library_code import MOST, library_code, values_read
from verifier.parties.operations import count_flops, recurrent_flops


class Taken(nn.Module):
    def __init__(self, layer: nn.RNNBase):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), 5)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.LSTM(8, 16, num_layers=2, batch_first=True), 2 * 4 * 16 * ((8 + 16) + (16 + 16))),
        (nn.GRU(8, 16, batch_first=True, bidirectional=True), 2 * 2 * 3 * 16 * (8 + 16)),
        (nn.RNN(8, 16, batch_first=True), 2 * 16 * (8 + 16)),
    ],
)
def test_a_recurrent_layer_counts_once(layer, expected):
    """The library may run a recurrent layer as one operator, which torch does not count, or as products, which it counts."""
    rows, model = 3 * 7, Taken(layer)
    head = 2 * 3 * model.head.in_features * 5
    assert recurrent_flops(layer, torch.zeros(3, 7, 8)) == rows * expected
    assert count_flops(model, [torch.zeros(3, 7, 8)]) == pytest.approx(rows * expected + head, rel=0.01)


def test_packed_rows_and_projections():
    layer = nn.LSTM(8, 16, proj_size=4, batch_first=True)
    packed = pack_padded_sequence(torch.zeros(2, 5, 8), [5, 3], batch_first=True)
    assert recurrent_flops(layer, packed) == 8 * 2 * (4 * 16 * (8 + 4) + 4 * 16)
    assert count_flops(nn.Linear(4, 3), [torch.zeros(2, 4)]) == 2 * 2 * 4 * 3 and count_flops(nn.Linear(4, 3), [torch.zeros(2, 5)]) is None


def test_library_classes_are_shown_and_torchs_and_the_tasks_are_not(tmp_path, monkeypatch):
    source = "import torch\n\n\nclass Router(torch.nn.Module):\n    def forward(self, x):\n        return x.softmax(-1)\n"
    (tmp_path / "some_library.py").write_text(f"{source}\n\nclass Endless(Router):\n    note = {'x' * MOST!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    import some_library

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(some_library.Endless(), some_library.Router(), nn.Linear(2, 2), some_library.Router())

    try:
        found = library_code(Model(), __name__)
        assert list(found) == ["some_library.Router"] and found["some_library.Router"].startswith("class Router")
    finally:
        sys.modules.pop("some_library", None)


class Configured(nn.Module):
    def __init__(self, noise, number):
        super().__init__()
        self.noise, self.number, self.act, self.weight = noise, number, nn.SiLU(), nn.Parameter(torch.zeros(2))
        self.config = SimpleNamespace(eps=1e-5)

    @property
    def computed(self):
        raise AssertionError("reading the values runs no code")


def test_the_values_that_a_library_class_reads_are_given_where_its_modules_agree():
    source = "self.act(x * self.weight + self.noise + self.config.eps) if self.training and self.noise > 0 else self.run(self.number, self.computed)"
    alike, other = Configured(0.0, 1), Configured(0.0, 2)
    assert values_read(source, [alike, other]) == "\n# In this model: self.act = SiLU(), self.noise = 0.0, self.config.eps = 1e-05\n"
    assert "self.number = 1" in values_read(source, [alike]) and values_read("x + 1", [alike]) == ""
