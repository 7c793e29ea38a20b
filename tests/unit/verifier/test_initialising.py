"""Large weights are drawn on the device and are the same for task and program, whether or not they stay there."""

import pytest
import torch
import torch.nn as nn

from verifier.parties import initialising
from verifier.parties.initialising import constructed, drawn_on


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(initialising, "LARGE", 1000)


def seed():
    torch.manual_seed(5)


def test_what_is_drawn_does_not_depend_on_where_it_stays():
    plain = nn.Linear(50, 40).weight.detach()
    found = []
    for moved in ([], None):
        seed()
        with drawn_on("cpu", moved):
            model = nn.Sequential(nn.Linear(50, 40), nn.LSTM(30, 20), nn.Embedding(60, 30))
        found.append([value.detach().clone() for value in model.parameters()])
        assert moved is None or len(moved) == 4  # the layer's weight, the table, and two of the LSTM's weights
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
    weight = found[0][0]
    assert weight.abs().max() <= plain.abs().max() * 1.05 and weight.std() == pytest.approx(float(plain.std()), rel=0.05)
    assert "uniform_" not in torch.Tensor.__dict__ and "normal_" not in torch.Tensor.__dict__


def test_a_view_of_a_parameter_is_filled_where_it_lies():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(80, 40))
            self.table.data.normal_(3.0, 0.1)
            self.part = nn.Parameter(torch.zeros(80, 40))
            with torch.no_grad():
                self.part[:40].uniform_(1, 2)

    moved = []
    with drawn_on("cpu", moved):
        model = Model()
    assert not moved and 2.9 < float(model.table.detach().mean()) < 3.1
    assert bool((model.part[:40] >= 1).all()) and not bool(model.part[40:].any())


def test_small_tensors_and_generators_of_their_own_are_left_alone():
    seed()
    expected = [torch.empty(30).uniform_(), torch.empty(50, 50).normal_(generator=torch.Generator().manual_seed(1))]
    seed()
    with drawn_on("cpu", []):
        found = [torch.empty(30).uniform_(), torch.empty(50, 50).normal_(generator=torch.Generator().manual_seed(1))]
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))


def test_a_constructor_that_wants_host_tensors_is_called_again(monkeypatch):
    calls = []

    def make():
        calls.append(1)
        layer = nn.Linear(50, 40)
        if len(calls) == 1:
            raise RuntimeError("Expected all tensors to be on the same device")
        return layer

    real = initialising._filling
    monkeypatch.setattr(initialising, "_filling", lambda fill, device, moved: real(fill, "cpu", moved))  # this host has only the CPU
    layer = constructed(make, "cuda:0", seed)
    seed()
    with drawn_on("cpu"):
        assert torch.equal(nn.Linear(50, 40).weight, layer.weight) and len(calls) == 2


def test_an_error_of_the_constructor_is_not_tried_again():
    calls = []

    def make():
        calls.append(1)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        constructed(make, "cuda:0", seed)
    assert len(calls) == 1
