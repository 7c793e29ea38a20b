# task: tasks/agents_graph_gru_cell.py
# device: cuda
# verdict: class orchestration
# call: 60
# says: as an agent writes it: CUDA graphs by shape in a dict with static buffers, torch.jit.script for the gates, input products of all steps at once, pool shared, load_state_dict overridden, clones
"""No custom kernel: the whole recurrence is one CUDA graph. The graph reads the parameters where they lie, so it stays valid after in-place updates;
it is captured again if a parameter moves."""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.jit.script
def gates(xg: torch.Tensor, hg: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    xr, xz, xn = xg.chunk(3, dim=-1)
    hr, hz, hn = hg.chunk(3, dim=-1)
    r = torch.sigmoid(xr + hr)
    z = torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    return n + z * (h - n)


@dataclass
class Captured:
    graph: torch.cuda.CUDAGraph
    x: torch.Tensor
    h: torch.Tensor
    out: torch.Tensor
    where: tuple[int, ...]


class ModelNew(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.to_gates = nn.Linear(inputs, 3 * hidden)
        self.from_state = nn.Linear(hidden, 3 * hidden)
        self._graphs: dict[tuple, Captured] = {}

    def load_state_dict(self, *args, **kwargs):
        self._graphs.clear()
        return super().load_state_dict(*args, **kwargs)

    def _steps(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        xg = F.linear(x, self.to_gates.weight, self.to_gates.bias)  # one product for all steps
        outputs = []
        for t in range(x.shape[0]):
            h = gates(xg[t], F.linear(h, self.from_state.weight, self.from_state.bias), h)
            outputs.append(h)
        return torch.stack(outputs)

    def _capture(self, x: torch.Tensor, h: torch.Tensor, where: tuple[int, ...]) -> Captured:
        static_x, static_h = x.clone(), h.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._steps(static_x, static_h)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self._steps(static_x, static_h)
        return Captured(graph, static_x, static_h, out, where)

    @torch.inference_mode()
    def forward(self, x: torch.Tensor, h: torch.Tensor):
        if not x.is_cuda:
            out = self._steps(x, h)
            return out, out[-1].clone()
        key = (x.shape, h.shape, x.dtype, x.device)
        where = tuple(p.data_ptr() for p in self.parameters())
        kept = self._graphs.get(key)
        if kept is None or kept.where != where:
            kept = self._graphs[key] = self._capture(x, h, where)
        kept.x.copy_(x)
        kept.h.copy_(h)
        kept.graph.replay()
        out = kept.out.clone()
        return out, out[-1].clone()
