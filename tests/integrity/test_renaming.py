"""The renamed form of a program is the same program with different words."""

from __future__ import annotations

import ast

from tests.integrity.corpus import HOME, read_corpus
from tests.integrity.renaming import HELPER, renamed

PROGRAM = (
    '''"""Softmax."""
import ctypes
import torch
import torch.nn as nn

'''
    + HELPER
    + '''

SOURCE = r"""
// rows at a time
static float top_of(const float* row, int n) { return row[0]; }
extern "C" void row_softmax(const float* x, float* y, int n) { y[0] = top_of(x, n); }
"""
library = stitch_build("cpp", SOURCE)
cache = {}


def remember(tensor, *, deep=False):
    """Keeps a tensor."""
    cache[tensor.data_ptr()] = tensor
    return tensor


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.private = 3

    def forward(self, x):
        # a comment
        library.row_softmax(x.data_ptr(), x.data_ptr(), self.private)
        return remember(x, deep=True) * getattr(self, "private")
'''
)
TASK = "self.scale = nn.Parameter(torch.ones(size))"


def test_own_names_go_and_outside_names_stay():
    text = renamed(PROGRAM, TASK)
    for gone in ("row_softmax", "top_of", "remember", "cache", "private", "comment", "Keeps", "rows at a time", '"""Softmax'):
        assert gone not in text, gone
    for kept in ("class ModelNew(nn.Module)", "def forward(self", "self.scale", "data_ptr()", "deep=True", 'stitch_build("cpp"', HELPER):
        assert kept in text or kept.replace('"', "'") in text, kept


def test_a_native_function_has_one_name_on_both_sides():
    tree = ast.parse(renamed(PROGRAM, TASK))
    text = next(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and 'extern "C"' in n.value)
    called = {n.func.attr for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    assert any(f"void {name}(" in text for name in called)


def test_the_renamed_program_still_computes():
    space: dict = {"__name__": "program"}
    source = PROGRAM.replace(HELPER, "def stitch_build(language, source):\n    return type('L', (), {'__getattr__': lambda s, n: print})()\n")
    exec(compile(renamed(source, TASK), "renamed", "exec"), space)
    import torch

    assert bool((space["ModelNew"](4)(torch.ones(4)) == 3).all())


def test_every_cheat_parses_under_other_names():
    entries = read_corpus("cheats")
    assert len(entries) >= 75 and len({entry.hack for entry in entries}) >= 60, (len(entries), HOME)
    for entry in entries:
        if "renamed" in entry.forms:
            compile(renamed(entry.source, entry.task.read_text()), entry.name, "exec")
