"""Counting sort of rows by group: assigns rows to experts and finds each expert's first row without a round trip to the host.

A single block counts the rows of each group in shared memory, computes the prefix sums, and assigns a position to each row. The order of the rows in
a group is arbitrary, because each row is computed independently.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.family import Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import one_kernel
from compiler.graph.network import Network
from compiler.kernel.builder import Refused
from verifier.graph import ROUTED, Node

MOST_ROWS = 16384  # for more rows, the library's sort is faster than a single block
MOST_GROUPS = 1022
THREADS = 1024
RESERVED = ("numbers", "counts", "bin", "at", "place", "step", "before", "value", "first")


@dataclass(frozen=True)
class Routed:
    rows: int
    first: int  # index of the first group
    groups: int


class Routing:
    name = "routing"
    strategies = ("grouped-product",)

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        if node.op != ROUTED:
            return None
        numbers, first, groups = node.args[0]["ref"], node.args[1], node.args[2]
        layout, rows = network.layouts[numbers], network.spec(numbers).shape[0]
        if not layout.contiguous or layout.offset or not 0 < rows <= MOST_ROWS or groups > MOST_GROUPS:
            raise Refused(f"rows of groups are put in order for up to {MOST_ROWS} that lie side by side")
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, reads=(numbers,), groups=(1,),
            detail=Routed(rows, first, groups), reserved=RESERVED,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        return plain_cost(work, 0)

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        return {}

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        found: Routed = work.detail
        if not work.tail.plain:
            raise Refused("the order of rows is computed with further")
        arguments = work.arguments(("numbers", work.match.reads[0]))
        out, rows, bins = work.tail.result, found.rows, found.groups + 2
        bin_of = f"value < {found.first} ? 0 : value < {found.first + found.groups} ? (int)(value - {found.first}) + 1 : {found.groups + 1}"
        each = f"for (int at = threadIdx.x; at < {rows}; at += {THREADS}) {{"
        lines = [
            f"__shared__ int counts[{bins}];  // of the rows below the first group, of each group, and above the last",
            f"for (int at = threadIdx.x; at < {bins}; at += {THREADS}) counts[at] = 0;",
            "__syncthreads();",
            each,
            "    const long long value = numbers[at];",
            f"    atomicAdd(&counts[{bin_of}], 1);",
            "}",
            "__syncthreads();",
            f"for (int step = 1; step < {bins}; step *= 2) {{  // sums of all counts up to each",
            f"    const int before = threadIdx.x >= step && threadIdx.x < {bins} ? counts[threadIdx.x - step] : 0;",
            "    __syncthreads();",
            f"    if (threadIdx.x < {bins}) counts[threadIdx.x] += before;",
            "    __syncthreads();",
            "}",
            f"const int first = threadIdx.x > 0 && threadIdx.x < {bins} ? counts[threadIdx.x - 1] : 0;",
            f"if (threadIdx.x > 0 && threadIdx.x < {bins}) {out}[{2 * rows - 1} + threadIdx.x] = first;",
            "__syncthreads();",
            f"if (threadIdx.x < {bins}) counts[threadIdx.x] = first;  // where the next row of each goes",
            "__syncthreads();",
            each,
            "    const long long value = numbers[at];",
            f"    const int place = atomicAdd(&counts[{bin_of}], 1);",
            f"    {out}[place] = at;",
            f"    {out}[{rows} + place] = value;",
            "}",
        ]
        comment = [f"{rows} rows of {found.groups} groups; one block of {THREADS} threads."]
        return Printed(one_kernel(lines, arguments, 1, THREADS), arguments, comment=comment)
