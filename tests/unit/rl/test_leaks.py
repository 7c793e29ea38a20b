"""A leak is found no matter how its task was disguised, and different tasks are not reported as leaks."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from agents.rl.data.leaks import ALIKE, Index, leaks, split, structures, tasks_below
from agents.rl.data.structure import NoReference, structure

EXAMPLES = Path(__file__).parents[3] / "examples"
TASKS = tasks_below(
    [EXAMPLES / f"{name}.py" for name in ("resnet_block", "lstm_cell_loop", "transformer_block", "masked_pool", "rms_norm", "attention")]
)
TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return torch.sigmoid(self.down(x)) * 0.5

class Model(nn.Module):
    \"\"\"A gated block.\"\"\"
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.gate = Gate(width)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        centred = F.gelu(x - mean) / (x.std() + self.eps)
        return centred + self.gate(x)

def get_inputs():
    return [torch.rand(8, 64)]

def get_init_inputs():
    return [64]
"""
# The same task with different names, reordered definitions, changed constants, a different import style, comments and annotations.
DISGUISED = """
from torch.nn import Module, Linear
import torch as t
from torch.nn.functional import gelu as activate

BATCH = 512
def get_init_inputs(): return [1024]

class Model(Module):
    def forward(self, tokens):
        # subtract what they have in common
        m = tokens.mean(dim=-2, keepdim=False)
        c: t.Tensor = activate(tokens - m) / (tokens.std() + self.tiny)
        return c + self.switch(tokens)

    def __init__(self, dim, tiny=1e-3):
        super(Model, self).__init__()
        self.tiny = tiny
        self.switch = Switch(dim)

class Switch(Module):
    def __init__(self, dim):
        super().__init__()
        self.second = Linear(dim, dim)
        self.first = Linear(dim, 8 * dim)
    def forward(self, h):
        return t.sigmoid(self.second(h)) * 0.25

def get_inputs(): return [t.rand(BATCH, 1024)]
"""


def renamed(source: str, rng: random.Random) -> str:
    """Renames everything that the source itself defines, except for the names that a task must have."""
    tree = ast.parse(source)
    kept = {"Model", "forward", "get_inputs", "get_init_inputs", "get_input_variants", "backward", "self", "__init__"}
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)} | {
        n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)
    }
    own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    attributes |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    lines = [line for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for line in c.body if isinstance(line, ast.Assign)]
    of_classes = {target.id for line in lines for target in line.targets if isinstance(target, ast.Name)}
    attributes |= of_classes
    given = {name: f"n{rng.randrange(10**9)}" for name in sorted((own | attributes) - kept)}
    for node in ast.walk(tree):
        mine = isinstance(node, ast.Attribute) and (node.attr in of_classes or node.attr in attributes and ast.unparse(node).startswith("self."))
        if isinstance(node, ast.Attribute) and not mine:
            continue  # belongs to torch
        for field in ("name", "arg", "id", "attr"):
            if getattr(node, field, None) in given and not isinstance(node, ast.alias | ast.keyword):
                setattr(node, field, given[getattr(node, field)])
    return ast.unparse(tree)


def reordered(source: str, rng: random.Random) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            placed = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
            rng.shuffle(placed)
            node.body = [n for n in node.body if n not in placed] + placed
    return ast.unparse(tree)


def other_constants(source: str, rng: random.Random) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            node.value = type(node.value)(rng.randrange(1, 999))
    return ast.unparse(tree)


@pytest.mark.parametrize("name", TASKS)
def test_planted_leaks_are_found(name):
    rng = random.Random(name)
    others = {other: source for other, source in TASKS.items() if other != name}
    for number in range(5):
        planted = TASKS[name]
        for disguise in rng.sample([renamed, reordered, other_constants], rng.randrange(1, 4)):
            planted = disguise(planted, rng)
        report = leaks({**others, f"planted {number}": planted}, {name: TASKS[name]})
        assert [leak.train for leak in report.leaks] == [f"planted {number}"] and report.leaks[0].same_structure


def test_a_whole_disguise_is_seen_through():
    assert structure(TASK).key == structure(DISGUISED).key
    more = TASK.replace("return centred", "centred = centred.clone()\n        return centred")
    assert ALIKE <= structure(TASK).similarity(structure(more)) < 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("return torch.relu(self.up(x)) * 2", "y = self.up(x)\n        y = y.relu()\n        z = y * 3\n        return z"),
        ("return F.softmax(x.mean(-1), dim=0)", "m = torch.mean(x, dim=-1)\n        return torch.softmax(m, 0)"),
        ("a = x.sin()\n        b = x.cos()\n        return a + b", "b = x.cos()\n        a = torch.sin(x)\n        return torch.add(a, b)"),
        ("x = x + 1\n        return torch.tanh(x)", "x += 2\n        return x.tanh_()"),
    ],
)
def test_temporaries_and_ways_to_call_make_no_difference(one, other):
    body = TASK[TASK.index("        mean = ") : TASK.index("def get_inputs")]
    first, second = (TASK.replace(body, f"        {lines}\n\n") for lines in (one, other))
    assert first != second and structure(first).key == structure(second).key


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("4 * width", "256"),
        ("(width, width)", "(64, 64)"),
        ("self.eps = eps", "self.eps = 1e-5"),
        ("        self.eps = eps\n", ""),  # the attribute then belongs to the class
        ("+ self.eps)", "+ 2 * 5e-6)"),
        ("dim=-1", "dim=(1, 2)"),
        ("dim=-1, keepdim=True", "dim=[0], keepdim=False"),
        ("* 0.5", "* HALF"),
    ],
)
def test_a_constant_is_one_wherever_it_is_written(was, becomes):
    other = TASK.replace(was, becomes).replace("class Model(nn.Module):", "HALF = 0.5\n\nclass Model(nn.Module):\n    eps = 1e-5\n")
    assert was in TASK and structure(other).key == structure(TASK).key


def test_names_that_a_source_gives_are_seen_through_wherever_they_are_used():
    body = "        mean = x.mean(dim=-1, keepdim=True)\n"
    used = body + "        def inner(y):\n            return y * width\n        x = self.gate.mix(x) * Gate.expansion + inner(self.gate.up.scale)\n"
    gate = "    expansion = 4\n\n    def mix(self, h):\n        self.scale = h.amax()\n        return h.tanh()\n\n    def __init__(self, width):"
    task = TASK.replace(body, used).replace("    def __init__(self, width):", gate, 1)
    for seed in range(4):
        planted = renamed(task, random.Random(seed))
        assert structure(planted).key == structure(task).key


def test_sizes_that_a_constructor_is_given_are_no_input():
    taken = TASK.replace("x - mean", "x - self.eps")
    assert structure(taken).key != structure(TASK).key == structure(TASK.replace("eps=1e-5", "eps")).key


def test_tasks_that_compute_something_else_do_not_leak():
    report = leaks({"a": TASK}, TASKS)
    assert report.clean and report.compared == (1, len(TASKS))
    for was, becomes in (("sigmoid", "tanh"), ("x - mean", "x * mean")):
        assert structure(TASK).key != structure(TASK.replace(was, becomes)).key
    names = list(TASKS)
    assert leaks({n: TASKS[n] for n in names[:3]}, {n: TASKS[n] for n in names[3:]}).clean


@pytest.mark.parametrize("source", ["", "class Model(", "x = 1", "\0", "(" * 5000, "def get_inputs():\n    return [1]"])
def test_what_cannot_be_read_fails_the_report(source):
    with pytest.raises(NoReference):
        structure(source)
    assert not leaks({"odd": source}, {"held": TASK}).clean and not leaks({"a": TASK}, {"odd": source}).clean


def test_the_index_finds_what_comparing_all_pairs_finds():
    rng = random.Random(3)
    corpus = dict(TASKS)
    for name, source in TASKS.items():
        lines = source.splitlines()
        for number in range(6):  # a duplicated line: still more or less alike
            inside = [at for at, line in enumerate(lines) if line.startswith("        ") and not line.strip().startswith(("return", '"'))]
            at = rng.choice(inside)
            corpus[f"{name} {number}"] = "\n".join([*lines[: at + 1], *lines[at:]])
    known, _ = structures(corpus)
    index = Index(known)
    pairs = 0
    for one in known.values():
        everything = {other for other, its in known.items() if one.similarity(its) >= ALIKE}
        assert {other for other, _ in index.alike(one)} == everything
        pairs += len(everything)
    assert pairs > len(known)


def test_alike_tasks_share_a_split_which_stays():
    rng = random.Random(1)
    tasks = TASKS | {f"{n} again": renamed(other_constants(s, rng), rng) for n, s in TASKS.items()}
    given = split(tasks, seed=4)
    assert all(given[name] == given[f"{name} again"] for name in TASKS)
    assert {name: part for name, part in split({**tasks, "new": TASK}, seed=4).items() if name != "new"} == given
    fixed = split({**tasks, "new": DISGUISED}, seed=4, fixed={"new": "test"})
    assert fixed["new"] == "test"
    many = {f"t{n}": f"def forward(x):\n    return x.a{n}().b{n}().c{n}()\n" for n in range(600)}
    shares = [list(split(many).values()).count(part) / 600 for part in ("train", "validation", "test")]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.04)
