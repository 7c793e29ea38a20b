"""What a baseline does, as a program: where PyTorch's own compiler or a recorded graph is faster than kernels of our own, it is what a user wants.

The text is the task's, so that it reads like it. What a replay returns is copied out, since the next one overwrites it (baselines copy too).
"""

from __future__ import annotations

from compiler.options import Options
from compiler.planning.plan import CompilerPlan
from compiler.program.program import print_program, quoted, unchanged
from compiler.program.task_text import EAGER, TaskText
from verifier.report import Baseline

# torch.compile's mode of each baseline that is one. max-autotune searches for longer than a program's first call may take, so its choice of
# kernels is not taken over: what its graphs save is.
MODES: dict[Baseline, str] = {"compile": "", "compile-reduce-overhead": "reduce-overhead", "compile-max-autotune": "reduce-overhead"}
WORDS: dict[Baseline, str] = {
    "eager": "PyTorch as it is",
    "compile": "torch.compile",
    "compile-reduce-overhead": "torch.compile with CUDA graphs",
    "compile-max-autotune": "torch.compile with CUDA graphs",
    "cuda-graph": "PyTorch's own kernels in a CUDA graph",
}


def print_baseline(plan: CompilerPlan, task_source: str, baseline: Baseline) -> str | None:
    """The program; null where a baseline has none: a graph of a forward that cannot be recorded from its captured operators."""
    if baseline == "eager":
        return unchanged(plan, task_source, "PyTorch was faster here than kernels of our own")
    if baseline == "cuda-graph":
        return _recorded(plan, task_source)
    return _compiled(task_source, MODES[baseline], WORDS[baseline])


def _recorded(plan: CompilerPlan, task_source: str) -> str | None:
    if plan.graph is None or not plan.graph.recordable or not plan.own:
        return None
    options = Options()
    for group in plan.own:
        options = options.with_strategy("leave-to-library", group.id)
    return print_program(plan, task_source, options.with_strategy("cuda-graph"))


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
    parts = [
        f'"""{quoted(f"The task as it is, by {words}: faster here than kernels of our own.")}"""\n',
        "\n".join(dict.fromkeys([*text.imports(), *(["from torch.utils._pytree import tree_map_only"] if mode else [])])) + "\n",
    ]
    if definitions := text.definitions():
        parts.append("\n" + "\n\n\n".join(definitions) + "\n")
    replays = "        torch.compiler.cudagraph_mark_step_begin()  # the graphs may overwrite what the call before returned\n" if mode else ""
    result = f"self.{held}({call})"
    copied = f"tree_map_only(torch.Tensor, torch.clone, {result})" if mode else result
    parts.append(
        f"\n{text.head()}\n{text.methods_text()}\n\n"
        f"    @torch.no_grad()\n"
        f"    def forward{signature}:\n"
        f'        if getattr(self, "{held}", None) is None:\n'
        f"            self.{held} = torch.compile(self.{EAGER}{given})\n"
        f"{replays}"
        f"        return {copied}\n"
    )
    if epilogue := text.epilogue():
        parts.append("\n" + "\n\n\n".join(epilogue) + "\n")
    return "\n".join(parts)
