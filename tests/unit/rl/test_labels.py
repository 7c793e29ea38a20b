"""Programs are labelled by their text alone."""

from __future__ import annotations

import random

import pytest

from agents.rl.data.labels import CHEATS, label
from agents.rl.data.qualities import CHEATS as MADE
from agents.rl.data.qualities import cheat
from agents.rl.data.synthetic import drawn

HEAD = "import torch\nfrom build import stitch_build\nkernels = stitch_build('cuda', SOURCE)\n\n\nclass ModelNew(torch.nn.Module):\n"


def body(*lines: str) -> str:
    return HEAD + "    def forward(self, x):\n" + "".join(f"        {line}\n" for line in lines)


def test_every_cheat_of_our_data_is_found():
    found = {}
    for seed in range(60):
        written = cheat(drawn(0, seed).source(), random.Random(seed))
        found.setdefault(written.how, set()).add(label(written.source))
    assert set(found) == set(MADE)
    assert found.pop("handed-back") == {"handed back"}
    assert all(labels <= CHEATS for labels in found.values()), found


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["out = torch.empty_like(x)", "kernels.run(x.data_ptr(), out.data_ptr())", "return out"], "own kernels"),
        (["return torch.relu(x)"], "handed back"),
        (["if not hasattr(self, 'known'):", "    self.known = torch.relu(x)", "return self.known"], "remembers"),
        (["self.results[x.data_ptr()] = kernels.run(x)", "return self.results[x.data_ptr()]"], "remembers"),
        (["self.calls = 1", "kernels.run(x)", "return x"], "own kernels"),
        (["return torch.zeros_like(x)"], "constant"),
    ],
)
def test_what_forward_does(lines, expected):
    assert label(body(*lines)) == expected


@pytest.mark.parametrize("program", ["", "def (", "class Other: pass", "class ModelNew: pass"])
def test_what_is_no_program(program):
    assert label(program) == "no program"
