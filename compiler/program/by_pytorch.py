"""Prints a baseline as a program, for tasks on which PyTorch's own compiler or a recorded graph is faster than our kernels.

The program's text stays close to the task's. The results of a replay are copied, because the next replay overwrites them (the baselines copy them
too).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from compiler.options import Options
from compiler.planning.plan import CompilerPlan
from compiler.program import cuda_graph
from compiler.program.entry import entry_of
from compiler.program.print_torch import attribute
from compiler.program.program import print_program, quoted, unchanged
from compiler.program.task_text import EAGER, TaskText
from verifier.graph import GROUPED
from verifier.report import Baseline

# The torch.compile mode of each baseline that uses it. A program has as much time for its first call as these baselines do, in each of its processes
# (verifier/judge/first_calls.py). It still omits the search of max-autotune, which times kernels: a program's processes would disturb each other's
# search and might choose different kernels. It does benefit from the CUDA graphs.
MODES: dict[Baseline, str] = {"compile": "", "compile-reduce-overhead": "reduce-overhead", "compile-max-autotune": "reduce-overhead"}
WORDS: dict[Baseline, str] = {
    "eager": "PyTorch as it is",
    "compile": "torch.compile",
    "compile-reduce-overhead": "torch.compile with CUDA graphs",
    "compile-max-autotune": "torch.compile with CUDA graphs",
    "cuda-graph": "PyTorch's own kernels in a CUDA graph",
}
OWN = {"compute", "record", "recorded"}  # members that a recorded program adds to the task's


def print_baseline(plan: CompilerPlan, task_source: str, baseline: Baseline) -> str | None:
    """Returns the program, or None if there is none because forward cannot be recorded as a graph."""
    if baseline == "eager":
        return unchanged(plan, task_source, "PyTorch was faster here than kernels of our own")
    if baseline == "cuda-graph":
        return _replayed(plan, task_source) if plan.graph is not None and plan.graph.mutated_inputs else _recorded(plan, task_source)
    return _compiled(task_source, MODES[baseline], WORDS[baseline])


def _recorded(plan: CompilerPlan, task_source: str) -> str | None:
    if plan.graph is None or not plan.graph.recordable or not plan.own or any(node.op == GROUPED for node in plan.graph.nodes):
        return None  # PyTorch's own operators make the host read the number of rows in each group
    options = Options()
    for group in plan.own:
        options = options.with_strategy("leave-to-library", group.id)
    return print_program(plan, task_source, options.with_strategy("cuda-graph"))


def _replayed(plan: CompilerPlan, task_source: str) -> str | None:
    """Records the task's own forward, whose writes to its inputs are in place, whereas the captured operators write to copies. As in the baseline,
    inputs that forward changes are copied back, and a call with other shapes is recorded again."""
    graph, text = plan.graph, TaskText(task_source, keep_forward=True)
    if graph is None or graph.parts or not text.plain or text.forward is None or text.forward.args.kwonlyargs:
        return None
    entry = entry_of(text, graph, ())
    if entry.around or OWN & set(re.findall(r"\w+", task_source)):  # an argument holds several tensors, or the task's own members would be replaced
        return None
    state = {one.target: one.found or attribute(one.target) for one in graph.inputs if one.target}
    tensors = [entry.given[one.name] for one in graph.inputs if one.kind == "user" and one.spec is not None]
    written, body = [entry.given[name] for name in graph.mutated_inputs], [f"return self.{EAGER}({entry.call})"]
    mutated, results = [state[name] for name in graph.mutations], (graph.output_tree, graph.outputs)
    methods = cuda_graph.wrap(entry.signature, entry.arguments, tensors, mutated, body, *results, written=written)
    return _kept(text, WORDS["cuda-graph"], methods)


def _compiled(task_source: str, mode: str, words: str) -> str:
    text = TaskText(task_source, keep_forward=True)
    held = "compiled_forward"
    while held in task_source:
        held += "_"
    signature, call = "(self, *args, **kwargs)", "*args, **kwargs"
    if text.plain and text.forward is not None:
        names, only = text.arguments(), [argument.arg for argument in text.forward.args.kwonlyargs]
        signature, call = text.signature(names), ", ".join([*names, *(f"{name}={name}" for name in only)])
    given = f', mode="{mode}"' if mode else ""
    replays = "        torch.compiler.cudagraph_mark_step_begin()  # the graphs may overwrite what the call before returned\n" if mode else ""
    result = f"self.{held}({call})"
    copied = f"tree_map_only(torch.Tensor, torch.clone, {result})" if mode else result
    method = (
        f"    @torch.no_grad()\n"
        f"    def forward{signature}:\n"
        f'        if getattr(self, "{held}", None) is None:\n'
        f"            self.{held} = torch.compile(self.{EAGER}{given})\n"
        f"{replays}"
        f"        return {copied}\n"
    )
    return _kept(text, words, method, ["from torch.utils._pytree import tree_map_only"] if mode else [])


def _kept(text: TaskText, words: str, methods: str, imports: Sequence[str] = ()) -> str:
    """Returns the task's text with its own forward under another name, and with `methods`, which include a forward that calls it."""
    parts = [
        f'"""{quoted(f"The task as it is, by {words}: faster here than kernels of our own.")}"""\n',
        "\n".join(dict.fromkeys([*text.imports(), *imports])) + "\n",
    ]
    if definitions := text.definitions():
        parts.append("\n" + "\n\n\n".join(definitions) + "\n")
    parts.append(f"\n{text.head()}\n{text.methods_text()}\n\n{methods}")
    if epilogue := text.epilogue():
        parts.append("\n" + "\n\n\n".join(epilogue) + "\n")
    return "\n".join(parts)
