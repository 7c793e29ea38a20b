"""Loops over experts become grouped products: no size depends on the routing, regardless of how the loop is written."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from compiler import DeviceFigures, Options
from compiler.families.product import half_tile, tensor_cores
from tests.emulator import as_cpp
from verifier.graph import GROUPED
from verifier.parties.capturing.routing import Routing

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPERTS, CHOSEN, WIDTH, INNER = 4, 2, 16, 24


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.w1, self.w2 = nn.Parameter(torch.randn(EXPERTS, WIDTH, INNER) / 4), nn.Parameter(torch.randn(EXPERTS, INNER, WIDTH) / 4)
        self.scale = nn.Parameter(torch.rand(EXPERTS))
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        weights, picked = torch.topk(F.softmax(self.router(x), dim=-1), CHOSEN, dim=-1)
"""
TAIL = """

def get_inputs():
    return [torch.randn(ROWS)]


def get_init_inputs():
    return []
"""
PICKED = {
    "places of a mask": """
out = torch.zeros_like(x)
for number, expert in enumerate(self.experts):
    rows, place = torch.where(picked == number)
    if rows.numel() == 0:
        continue
    out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
return out""",
    "a mask of one-hot numbers": """
out = torch.zeros_like(x)
mask = F.one_hot(picked, num_classes=EXPERTS).permute(2, 1, 0)
for e in range(EXPERTS):
    place, rows = torch.where(mask[e])
    state = x[None, rows].reshape(-1, x.shape[-1])
    out.index_add_(0, rows, (self.experts[e](state) * weights[rows, place, None]).to(x.dtype))
return out""",
    "experts that have rows": """
out = torch.zeros_like(x)
mask = F.one_hot(picked, num_classes=EXPERTS).permute(2, 1, 0)
hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
for e in hit:
    e = e[0]
    place, rows = torch.where(mask[e])
    out.index_add_(0, rows, torch.tanh(x[rows] @ self.w1[e]) @ self.w2[e] * weights[rows, place, None])
return out""",
    "in place": """
out = x * 0.5
for e in range(len(self.experts)):
    rows, place = (picked == e).nonzero(as_tuple=True)
    if len(rows) > 0:
        out[rows] += weights[rows, place].unsqueeze(-1) * self.experts[e](x[rows])
return out + x""",
    "any of the chosen": """
out = torch.zeros_like(x)
gates = torch.zeros_like(self.router(x)).scatter(-1, picked, weights)
for e, expert in enumerate(self.experts):
    mask = (picked == e).any(dim=-1)
    if mask.any():
        out[mask] += expert(x[mask]) * gates[mask, e].unsqueeze(1)
return out""",
    "a choice at a time": """
out = torch.zeros_like(x)
for k in range(CHOSEN):
    for e in range(EXPERTS):
        mask = picked[:, k] == e
        if not mask.any():
            continue
        out[mask] += weights[mask, k, None] * self.experts[e](x[mask])
return out""",
    "one expert a row": """
best = picked[:, 0]
out = torch.empty_like(x)
for e in range(EXPERTS):
    rows = torch.nonzero(best == e).squeeze(-1)
    out[rows] = F.silu(x[rows] @ self.w1[e]) @ self.w2[e] * self.scale[e]
return out, best""",
    "counted before": """
out = torch.zeros_like(x)
counts = torch.bincount(picked.flatten(), minlength=EXPERTS).tolist()
for i in range(EXPERTS):
    if counts[i] == 0:
        continue
    expert = self.experts[i]
    rows, place = torch.where(picked == i)
    out[rows] += expert(x[rows]) * weights[rows, place, None]
return out""",
    "a one-hot mask of one expert a row": """
scores = F.softmax(self.router(x), dim=-1)
mask = F.one_hot(scores.argmax(-1), EXPERTS)
out = torch.zeros_like(x)
for e, expert in enumerate(self.experts):
    rows = mask[:, e].bool()
    out[rows] = expert(x[rows])
return out * scores.amax(-1, keepdim=True)""",
    "zipped with counts": """
out = torch.zeros_like(x)
counts = F.one_hot(picked, EXPERTS).sum(dim=(0, 1))
for i, (count, expert) in enumerate(zip(counts.tolist(), self.experts)):
    if count > 0:
        rows, place = (picked == i).nonzero().t()
        out.index_add_(0, rows, expert(x.index_select(0, rows)) * weights[rows, place].view(-1, 1))
return out""",
    "numbers of experts that have rows": """
out = torch.zeros_like(x)
for e in picked.unique().tolist():
    mask = picked == e
    rows, place = mask.nonzero(as_tuple=True)
    out.index_add_(0, rows, torch.relu(x[rows] @ self.w1[e]) @ self.w2[e] * weights[mask].unsqueeze(-1))
return out""",
    "numbers that are no expert's": """
picked = picked - 1
out = torch.ones_like(x)
for e in range(EXPERTS - 1):
    rows, place = torch.where(picked == e)
    out = out.index_add(0, rows, F.linear(F.relu(F.linear(x[rows], self.w1[e].t())), self.w2[e].t()) * weights[rows, place, None])
return out""",
}  # fmt: skip
BATCHED = """
out = torch.zeros_like(x)
flat, mixed = x.view(-1, WIDTH), F.softmax(self.router(x), dim=-1).view(-1, EXPERTS)
for i, expert in enumerate(self.experts):
    mask = (picked == i).any(dim=-1)
    rows = mask.view(-1)
    if rows.any():
        out[mask] += (expert(flat[rows]) * mixed[rows, i].unsqueeze(1)).squeeze(1)
return out"""
LEFT = {  # what a pass computes from its rows, what else it does, and why it is left unchanged
    "a norm over the rows": ("expert(self.norm(x[rows]))", "", "changes state"),
    "a sum over the rows": ("expert(x[rows]) - x[rows].mean(0)", "", "combines the rows"),
    "the number of rows": ("expert(x[rows]) / len(rows)", "", "the number of rows"),
    "another number of rows": ("expert(x[rows]) if len(rows) > 1 else x[rows]", "", "more than whether"),
    "the rows sorted": ("expert(x[rows].sort(0)[0])", "", "mix rows"),
    "noise": ("F.dropout(expert(x[rows]))", "", "random"),
    "a value that changes": ("expert(x[rows]) * decay", "decay = decay * 0.5", "from pass to pass"),
    "a list that grows": ("expert(x[rows])", "seen.append(number)", "in place"),
    "the result read": ("expert(x[rows] + out[rows])", "", "read while"),
}


def source(body: str, rows: str = "13, 16") -> str:
    return HEAD + "\n".join(f"        {line}" for line in body.strip().splitlines()) + "\n" + TAIL.replace("ROWS", rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", PICKED)
def test_without_sizes_that_depend_on_values(name, compiled):
    found = compiled(source(PICKED[name]))
    grouped = [node for node in found.capture.graph.nodes if node.op == GROUPED]
    assert not found.capture.graph.parts and len(grouped) in (2, 4)
    found.check()
    found.check([torch.zeros(13, 16)])  # all rows are routed to the same experts
    found.check([torch.eye(16)[:13] * 50])


@pytest.mark.slow
def test_rows_of_several_axes(compiled):
    found = compiled(source(BATCHED, "2, 7, 16"))
    assert not found.capture.graph.parts
    found.check()


TILES = {"fp32-strict": tensor_cores.TILES, "bf16": half_tile.TILES}


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("precision", TILES)
def test_on_a_gpu(compiled, precision, group):
    """Covers groups that end within a tile, groups that span several tiles, and empty groups, with tiles of warps and of warpgroups."""
    tile = next(at for at, one in enumerate(TILES[precision]) if one.group is group and one.rows < 128)
    options = Options(knobs={"tile": tile})
    found = compiled(source(PICKED["places of a mask"], "150, 16"), figures=DeviceFigures.h200(), precision=precision, options=options)
    assert [group.family for group in found.plan.groups].count("grouped-product") == 2
    assert ("GroupTile<" in found.text) == group
    found.text = as_cpp(found.text)
    found.check()
    found.check([torch.zeros(150, 16, dtype=found.dtype)])


@pytest.mark.slow
def test_rows_of_no_expert_on_a_gpu(compiled):
    found = compiled(source(PICKED["numbers that are no expert's"], "40, 16"), figures=DeviceFigures.h200())
    assert {group.family for group in found.plan.own} >= {"routing", "grouped-product"}
    found.text = as_cpp(found.text)
    found.check()


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT)
def test_what_mixes_rows_stays(name, compiled):
    call, beside, why = LEFT[name]
    body = "decay, seen = 1.0, []" + PICKED["places of a mask"].replace("expert(x[rows])", f"({call})")
    body = body.replace("    out.index_add_", f"    {beside or 'pass'}\n    out.index_add_").replace("return out", "return out, len(seen)")
    graph = compiled(source(body)).capture.graph
    assert graph.parts and all(node.op != GROUPED for node in graph.nodes)
    assert any(why in line for line in graph.left), graph.left


def test_a_loop_within_a_pass_that_every_query_continues_is_given_up():
    with FakeTensorMode(), Routing(few=False), pytest.raises(ValueError, match="in a loop of its own"):
        rows = torch.arange(4)
        while rows.numel() > 0:
            rows = rows[rows > 2]
