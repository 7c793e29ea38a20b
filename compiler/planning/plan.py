"""The Planner's plan: which operators form one kernel, which are left to the library and why, and the minimum cost of each group."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel

from compiler import families
from compiler.figures import DeviceFigures
from compiler.graph.ir import Kernel, product
from compiler.graph.network import Network, count, refs, size_bytes
from compiler.graph.reductions import short
from compiler.graph.touched import read_by, touched_bytes
from compiler.options import Options
from compiler.planning.cost import task_floor
from compiler.planning.partition import Cluster, partition
from compiler.targets.lookup import own_language, target_of
from compiler.targets.target import Target
from verifier.graph import Capture, Graph, Node

Space = Literal["own kernel", "library", "pytorch"]
LIBRARY = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "convolution", "scaled_dot_product_attention",
           "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum", "lstm", "gru", "grouped_linear"}  # fmt: skip
DETERMINISTIC = re.compile(r"use_deterministic_algorithms\((?!\s*(?:mode\s*=\s*)?False)|set_deterministic_debug_mode\(")
WORDS = {
    "layer_norm": "layer norm", "rms_norm": "RMS norm", "group_norm": "group norm", "_native_batch_norm_legit_functional": "batch norm",
    "_native_batch_norm_legit_no_training": "batch norm", "_native_batch_norm_legit": "batch norm", "gelu": "GELU", "silu": "SiLU",
    "relu": "ReLU", "relu6": "ReLU6", "log_softmax": "log-softmax", "cross_entropy_rows": "cross entropy", "mean_counted": "mean loss",
    "max_pool2d": "max pool", "avg_pool2d": "average pool", "cumsum": "cumulative sum", "linalg_vector_norm": "norm", "pow": "power",
    "_to_copy": "cast", "clone": "copy", "scaled_dot_product_attention": "attention", "conv2d": "convolution", "matmul": "matrix product",
    "grouped_linear": "grouped product", "routed": "routing",
}  # fmt: skip


class Group(BaseModel):
    id: str
    title: str
    operators: list[str]  # names in the graph
    kinds: list[str]  # human-readable operator names: "layer norm", "GELU"
    space: Space
    family: str = ""  # its kernel family, or "" if the fused-loop IR expresses it
    anchor: str = ""  # the operator that the family recognised
    strategies: list[str] = []
    reason: str
    line: int | None = None  # source line of the last operator
    bytes: int = 0  # memory traffic if each tensor is read and written once
    flops: int = 0
    floor_ms: float = 0.0
    eager_bytes: int = 0  # memory traffic if every operator reads and writes its own tensors
    expected: str = ""


class CompilerPlan(BaseModel):
    """A plan. `graph` makes the plan self-contained; `summary()` omits it."""

    task: str
    mode: str
    precision: str = "fp32-strict"
    deterministic: bool = False  # whether the task requires sums that are identical in every run
    language: str = "cpp"  # the language of the kernels: a key of the targets
    figures: DeviceFigures
    groups: list[Group]
    graph: Graph | None
    floor_ms: float
    reason: str = ""  # the reason why nothing could be planned
    notes: list[str] = []

    def summary(self) -> dict[str, Any]:
        """Returns the plan without the graph, for use in an event."""
        return self.model_dump(mode="json", exclude={"graph"})

    @property
    def captured(self) -> Graph:
        """Returns the graph of a plan that has one. If it is missing, `reason` explains why."""
        assert self.graph is not None, self.reason
        return self.graph

    @property
    def why_none(self) -> str:
        """Explains, grouped by cause, why the program has no kernel of our own; empty if it has one."""
        if self.graph is None:
            return f"the model could not be captured ({self.reason})" if self.reason else "the model was not captured"
        if self.own:
            return ""
        causes: dict[str, list[str]] = {}
        for group in self.groups:
            if group.kinds != ["getitem"]:
                causes.setdefault(_cause(group), []).append(group.title)
        if not causes and not self.left:
            return "forward computes nothing: there is nothing to fuse"
        said = [f"{', '.join(dict.fromkeys(titles))} ({cause})" if cause else ", ".join(dict.fromkeys(titles)) for cause, titles in causes.items()]
        python = [f"left in Python: {'; '.join(self.left)}"] if self.left else []
        return "; ".join([f"no kernel of our own for {'; '.join(said)}", *python] if said else python)[:600]

    @property
    def left(self) -> list[str]:
        """The parts that stay in Python because they could not be captured, with their lines."""
        return self.graph.left if self.graph is not None else []

    @property
    def own(self) -> list[Group]:
        return [group for group in self.groups if group.space == "own kernel"]

    @property
    def setting(self) -> families.Setting:
        return families.Setting(self.figures, self.precision, self.target.dialect, self.deterministic)

    @property
    def target(self) -> Target[Any]:
        return target_of(self.language)

    @property
    def asked_for(self) -> bool:
        """Returns whether the language was requested explicitly, that is, whether it differs from the device's default."""
        return self.language != own_language(self.figures)


def make_plan(
    capture: Capture, task_source: str, figures: DeviceFigures, precision: str = "fp32-strict", language: str | None = None
) -> CompilerPlan:
    """Makes a plan from the graph and the task's text without side effects and without running anything. `language` defaults to the native language
    of the device."""
    plan = CompilerPlan(
        task=capture.task, mode=capture.mode, precision=precision, language=language or own_language(figures),
        figures=figures, groups=[], graph=capture.graph, floor_ms=0.0, deterministic=bool(DETERMINISTIC.search(task_source)),
    )  # fmt: skip
    plan.floor_ms = max(figures.memory_ms(capture.bytes_min or 0), figures.product_ms(capture.flops or 0, precision))
    if capture.graph is None:
        plan.reason = capture.reason or "there is no graph"
        return plan
    network = Network(capture.graph)
    for at, cluster in enumerate(partition(network, plan.setting), start=1):
        plan.groups.append(_group(network, cluster, plan.setting, f"g{at}"))
    plan.floor_ms = task_floor(plan, capture.bytes_min or 0, capture.flops or 0)
    if network.notes:  # the rewritten network may do less work than the task specifies
        plan.floor_ms = min(plan.floor_ms, sum(group.floor_ms for group in plan.groups))
    plan.notes += network.notes
    plan.notes += [f"left in Python, {why}" for why in plan.left]
    if not plan.own:
        plan.notes.append(plan.why_none)
    return plan


def _cause(group: Group) -> str:
    """Returns the reason why a group has no kernel of our own. Reasons that merely name the library are all replaced by the same one."""
    return "left to the library" if group.reason.endswith("is the library's") else group.reason


def _group(network: Network, cluster: Cluster, setting: families.Setting, identity: str) -> Group:
    figures = setting.figures
    nodes = [network.nodes[name] for name in cluster.members if network.nodes[name].op != "getitem"]
    nodes = nodes or [network.nodes[cluster.members[0]]]
    kinds = [word(node) for node in nodes]
    eager = sum(node_bytes(network, node) for node in nodes)
    kernel = cluster.kernel
    if cluster.match is not None:
        return _family_group(network, cluster, cluster.match, setting, identity, nodes, kinds, eager)
    if kernel is None:
        name = short(nodes[-1])
        space: Space = "library" if name in LIBRARY else "pytorch"
        flops = sum(node_flops(network, node) for node in nodes)
        floor = max(figures.memory_ms(eager), figures.product_ms(flops, setting.precision))
        return Group(
            id=identity, title=kinds[-1], operators=cluster.members, kinds=kinds, space=space, reason=cluster.reason,
            line=nodes[-1].line, bytes=eager, flops=flops, floor_ms=floor, eager_bytes=eager, expected="as in eager",
        )  # fmt: skip
    moved = kernel_bytes(network, kernel)
    flops = product(kernel.sizes) * sum(op.kind not in ("load", "const", "cast", "coord") for op in kernel.ops.values())
    floor = max(figures.memory_ms(moved), figures.compute_ms(flops))
    strategies = ["fuse-row-reduction" if kernel.reduces else "fuse-pointwise", "vectorise"]
    if any(short(network.nodes[s]) in LIBRARY for s in _read_results(network, cluster)):
        strategies.append("fuse-matmul-tail")
    if any(short(node) in ("softmax", "log_softmax", "cross_entropy_rows") for node in nodes):
        strategies.append("one-pass-softmax")
    if kernel.reduces and not kernel.scans:
        strategies.append("row-cache")
    if any(store.how for store in kernel.stores):
        strategies.append("atomic-sums")
    distinct = list(dict.fromkeys(kinds))
    return Group(
        id=identity, title=", ".join(distinct[:5]) + (", ..." if len(distinct) > 5 else ""), operators=cluster.members, kinds=kinds,
        space="own kernel", strategies=strategies, line=nodes[-1].line, bytes=moved, flops=flops, floor_ms=floor, eager_bytes=eager,
        reason=_why(nodes, kernel), expected=f"{eager / max(moved, 1):.1f}x less memory traffic than {len(nodes)} operator(s) one by one",
    )  # fmt: skip


def _family_group(
    network: Network,
    cluster: Cluster,
    match: families.Match,
    setting: families.Setting,
    identity: str,
    nodes: list[Node],
    kinds: list[str],
    eager: int,
) -> Group:
    family = families.by_name(match.family)
    cost = family.cost(families.make_work(network, match, cluster.members, setting))
    distinct = list(dict.fromkeys(kinds))
    anchor = word(network.nodes[match.anchor])
    rest = [kind for kind in distinct if kind != anchor]
    reason = f"{anchor} by a kernel of our own" + (f", {', '.join(rest[:4])}{', ...' if len(rest) > 4 else ''} with it" if rest else "")
    return Group(
        id=identity, title=", ".join(distinct[:5]) + (", ..." if len(distinct) > 5 else ""), operators=cluster.members, kinds=kinds,
        space="own kernel", family=family.name, anchor=match.anchor, strategies=list(family.strategies), line=nodes[-1].line,
        bytes=cost.bytes, flops=cost.flops, floor_ms=cost.floor_ms, eager_bytes=eager, reason=reason,
        expected=cost.expected or f"{eager / max(cost.bytes, 1):.1f}x less memory traffic than {len(nodes)} operator(s) one by one",
    )  # fmt: skip


def work_of(plan: CompilerPlan, network: Network, group: Group, options: Options | None = None) -> families.Work:
    """Returns the kernel of `group` in the form that its family prints. Raises `Refused`."""
    match = families.by_name(group.family).match(network, network.nodes[group.anchor], plan.setting)
    if match is None:
        raise families.Refused(f"{group.anchor} is no longer taken by {group.family}")
    return families.make_work(network, match, group.operators, plan.setting, options, group.id)


def _why(nodes: list[Node], kernel: Kernel) -> str:
    if kernel.scans:
        return f"running sums over {kernel.length} elements of {kernel.rows} rows, with the operators around them, in one pass"
    if kernel.reduces:
        return f"{len(nodes)} operator(s) over {kernel.rows} rows of {kernel.length} elements: the row stays in the cache between its passes"
    return f"{len(nodes)} pointwise operator(s) over {product(kernel.sizes)} elements: each element is read and written once"


def word(node: Node) -> str:
    name = short(node)
    return WORDS.get(name, name.strip("_").replace("_", " "))


def node_bytes(network: Network, node: Node) -> int:
    """Returns the number of bytes that the operator alone reads and writes, counting each tensor once. Extracting one of several results moves no
    data. A write in place moves only the elements that it changes."""
    if node.op == "getitem":
        return 0
    if write := network.overwrites.get(node.name):
        if write.part:
            return 0
        given = [n for n in dict.fromkeys(refs([node.args[1:], list(node.kwargs.values())])) if _has_spec(network, n)]
        changed = size_bytes(network.spec(node.name)) * write.written // max(count(network.spec(node.name)), 1)
        return sum(read_by(network, node, n) for n in given) + changed * (1 + write.adds)
    read = sum(read_by(network, node, n) for n in dict.fromkeys(refs([node.args, list(node.kwargs.values())])) if _has_spec(network, n))
    written = sum(size_bytes(spec) for spec in node.outputs) if not network.is_view(node.name) else 0
    return read + written


def _has_spec(network: Network, name: str) -> bool:
    entry = network.inputs.get(name)
    return entry.spec is not None if entry is not None else bool(network.nodes[name].outputs)


def node_flops(network: Network, node: Node) -> int:
    """Returns the floating-point operations of a matrix product, convolution or attention; 0 for other operators."""
    name = short(node)
    shapes = [network.spec(a["ref"]).shape for a in node.args if isinstance(a, dict) and "ref" in a]
    if name in ("linear", "matmul", "mm", "bmm", "grouped_linear"):
        return 2 * product(node.outputs[0].shape) * shapes[0][-1]
    if name in ("addmm", "baddbmm"):
        return 2 * product(node.outputs[0].shape) * shapes[1][-1]
    if name.startswith("conv_transpose"):
        return 2 * product(shapes[0]) * product(shapes[1][1:])
    if name.startswith("conv") and len(node.args) > 1:
        return 2 * product(node.outputs[0].shape) * product(shapes[1][1:])
    if name == "scaled_dot_product_attention":
        return 2 * product(shapes[0]) * shapes[1][-2] + 2 * product(node.outputs[0].shape) * shapes[1][-2]
    return 0


def kernel_bytes(network: Network, kernel: Kernel) -> int:
    """Returns the number of bytes that the kernel must move. For each tensor, the part that the kernel's domain covers counts once."""
    return sum(touched_bytes(network, kernel, argument) * (argument.read + argument.written) for argument in kernel.arguments.values())


def _read_results(network: Network, cluster: Cluster) -> list[str]:
    inside = set(cluster.members)
    bases = {network.base(s) for m in cluster.members for s in refs([network.nodes[m].args, list(network.nodes[m].kwargs.values())])}
    return [name for name in bases if name in network.nodes and name not in inside]
