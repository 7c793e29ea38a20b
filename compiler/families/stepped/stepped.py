"""Runs a loop that forward has unrolled as one kernel, which stays on the device for all passes.

A neural differential equation, a hand-written cell or an iterative refinement of a state consists of hundreds of small operators, and launching each
takes longer than its work. If every pass works row by row, a block can run all passes of a few rows on its own: the state and the intermediate values
stay in
shared memory, the weights too if they fit (otherwise the L2 cache supplies them), and no block waits for another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.families.family import Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.stepped import stepped_cuda
from compiler.families.stepped.block import ROWS, THREADS, Block, choose, launched_ms
from compiler.families.stepped.body import RESERVED, body_of
from compiler.families.stepped.passes import passes_of
from compiler.families.stepped.pieces import Body, Loop
from compiler.graph.network import Network
from compiler.kernel.builder import Refused
from verifier.graph import Node

WORTH = 0.9  # the passes must take less than this share of their time as separate kernels


@dataclass(frozen=True)
class Stepped:
    body: Body
    extra: tuple[str, ...]  # results besides the one that the tail reads


class Steps:
    name = "steps"
    strategies = ("persistent-loop",)

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        passes = passes_of(network).get(node.name) if setting.figures.kind == "cuda" else None
        if passes is None:
            return None
        body = body_of(network, passes)
        if all(isinstance(piece, Loop) for piece in body.pieces):
            raise Refused("the passes only combine elements at the same place, which fused loops do for many passes at a time")
        block = choose(body, setting.figures)
        if block is None:
            raise Refused("the values of a pass do not fit in shared memory")
        if block.spent_ms(body, setting.figures) > WORTH * launched_ms(body, setting.figures):
            raise Refused("by the model a block that runs all passes is no faster than a kernel for each operator")
        results = [*(stack.name for stack, _ in body.stacks), *(name for name, _ in body.finals)]
        value, shape = results[0], network.spec(results[0]).shape
        groups: tuple[int, ...] = (1, len(shape) - 1) if len(shape) > 1 else (1,)
        if body.stacks and body.stacks[0][0].apart(shape[0], body.batch):
            groups = (1, 1, len(shape) - 2) if len(shape) > 2 else (1, 1)  # passes, rows, elements
        return Match(
            family=self.name, anchor=node.name, members=tuple(passes.members), value=value, reads=tuple(body.reads()),
            groups=groups, detail=Stepped(body, tuple(results[1:])),
            reserved=(*RESERVED, *(slot.name for slot in body.slots), *(pointer.name for pointer in body.pointers.values())),
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        body: Body = work.detail.body
        block, figures = block_of(work), work.setting.figures
        cost = plain_cost(work, body.flops)
        return replace(
            cost,
            expected=f"{body.steps} passes in one kernel, about {block.spent_ms(body, figures):.2f} ms; {len(body.pieces) * body.steps} kernels one "
            f"after the other take about {launched_ms(body, figures):.1f} ms in a CUDA graph",
        )

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        body, figures, now = work.detail.body, work.setting.figures, block_of(work)
        rows = [n for n in ROWS if choose(body, figures, n, now.threads) is not None]
        threads = [n for n in (128, *THREADS) if choose(body, figures, now.rows, n) is not None]
        return {"rows": (tuple(rows), now.rows), "block": (tuple(threads), now.threads)}

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        return stepped_cuda.printed(work, work.detail.body, work.detail.extra, block_of(work))


def block_of(work: Work) -> Block:
    body, figures = work.detail.body, work.setting.figures
    found = choose(body, figures, work.knob("rows", 0), work.knob("block", 0)) or choose(body, figures)
    assert found is not None, "a loop that fits in no way is declined"
    return found
