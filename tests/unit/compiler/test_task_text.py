"""The parts of the task's text that a program copies, and the parts that it leaves out."""

from compiler.program.task_text import TaskText

SOURCE = '''"""A task."""
from __future__ import annotations

import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH = 8
batch, unused = 4, 5


class Part(nn.Module):
    def forward(self, x):
        return x * math.pi


def depth():
    return WIDTH // 4


def only_in_forward(x):
    return F.relu(x)


class Model(nn.Module):
    """Docstring."""

    factor = 2

    def __init__(self, width: int = WIDTH):
        super(Model, self).__init__()
        self.parts = nn.ModuleList(Part() for _ in range(depth()))
        self._extra()

    def _extra(self):
        self.register_buffer("b", torch.ones(3))

    def forward(self, x: torch.Tensor, flag: bool = True) -> torch.Tensor:
        return only_in_forward(x) + self.b

    @staticmethod
    def unused_method(batch):
        return os.getpid()


def get_inputs():
    return [torch.rand(batch, 3)]


def get_init_inputs():
    return []
'''


def test_takes_what_the_constructor_needs():
    text = TaskText(SOURCE)
    assert text.imports() == ["from __future__ import annotations", "import math", "import torch", "import torch.nn as nn"]
    assert [part.splitlines()[0] for part in text.definitions()] == ["WIDTH = 8", "class Part(nn.Module):", "def depth():"]
    methods = text.methods_text()
    assert "super(ModelNew, self).__init__()" in methods and "def _extra" in methods and "factor = 2" in methods
    assert "def forward" not in methods and "unused_method" not in methods and "Docstring" not in methods
    assert text.signature(text.arguments()) == "(self, x: torch.Tensor, flag: bool=True) -> torch.Tensor"
    assert text.signature(["x_", "flag"]) == "(self, x_: torch.Tensor, flag: bool=True) -> torch.Tensor"
    assert text.arguments() == ["x", "flag"]


def test_keeps_forward_for_other_shapes():
    text = TaskText(SOURCE, keep_forward=True)
    assert "def forward_eager(self, x: torch.Tensor" in text.methods_text()
    assert any(part.startswith("def only_in_forward") for part in text.definitions())


def test_torch_is_imported_by_its_name_where_the_task_calls_it_otherwise():
    source = """
import torch as th
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(th.ones(3))

    def forward(self, x):
        return x * self.scale
"""
    assert TaskText(source).imports() == ["import torch as th", "import torch.nn as nn", "import torch"]
