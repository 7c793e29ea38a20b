"""Cheats from the integrity corpus, applied to the given task.

Most of the corpus attacks one small task, whose forward is a single expression. In these cheats, the expression is replaced by the forward of the
task at hand, under the name `Reference`, and the rest of the cheat is left unchanged. If the task is the corpus's own, the file is used verbatim.
Cheats that the verifier labels instead of refusing (class `orchestration`: PyTorch rearranged) are not faults here, because such a program is merely
no faster.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from verifier.report import Status

CORPUS = Path(__file__).resolve().parents[1] / "integrity"
REFUSALS: frozenset[Status] = frozenset({"rejected", "wrong_result", "crashed", "timed_out"})
HOME_TASK = "softmax"  # the corpus's own task; its cheats can be transferred
ANSWER = re.compile(r"\b(?:torch\.)?softmax\((\w+(?:\.\w+)?(?:\[:1\])?), (?:dim=)?-1\) \* self\.scale")
FRAME = (
    ("class ModelNew(nn.Module):", "class ModelNew(Reference):"),
    ("def __init__(self, size):", "def __init__(self, *setup):"),
    ("super().__init__()", "super().__init__(*setup)"),
    ("def forward(self, x):", "def forward(self, x, *rest):\n        self.rest = rest"),
)
SCALE = re.compile(r"^\s*self\.scale = nn\.Parameter\(torch\.ones\(size\)\)\n", re.MULTILINE)
PATCHES_SOFTMAX = "60_patches_the_reference"  # a cheat only if the task calls the function that it replaces
OWN_WEIGHTS = "design_ignores_the_weights"
# A cheat only if it relies on the constructor's ones or zeros. With randomly drawn weights, it computes what the task does, and the report states as
# a downgrade that other weights cannot be loaded.
CONSTANT = re.compile(r"torch\.(?:ones|zeros)\(|nn\.\w*Norm")
DRAWN = re.compile(r"torch\.rand|nn\.(?:Linear|Bilinear|Conv|Embedding|LSTM|GRU|RNN|Multihead|Transformer)")


@cache
def corpus(device: str) -> dict[str, tuple[str, str]]:
    """Returns name -> (task's name, source without the header) for the cheats for "cpu" or "cuda" that must be refused."""
    from tests.integrity.corpus import read_corpus

    entries = [e for e in read_corpus("cheats") if e.runs_on(device) and set(e.verdicts) <= REFUSALS and e.mode == "train"]
    return {e.name: (e.task.stem, without_header(e.source)) for e in entries if e.precision == "fp32-strict"}


@cache
def corpus_task(name: str) -> str:
    return (CORPUS / "tasks" / f"{name}.py").read_text()


def fitting(task_source: str, device: str) -> list[str]:
    """Returns the names of the cheats that can be tried on this task, in the corpus's order."""
    return [name for name in corpus(device) if cheat(name, task_source, device) is not None]


def cheat(name: str, task_source: str, device: str) -> str | None:
    """Returns a cheat's program for this task, or None if the cheat cannot be transferred."""
    task, source = corpus(device)[name]
    if task_source.strip() == corpus_task(task).strip():
        return source
    constructor = task_source.partition("def forward")[0].partition("nn.Module")[2]
    if task != HOME_TASK or (name == OWN_WEIGHTS and (DRAWN.search(constructor) or not CONSTANT.search(constructor))):
        return None
    if name == PATCHES_SOFTMAX and "softmax" not in task_source:
        return None
    return carried_over(source, task_source)


def carried_over(source: str, task_source: str) -> str | None:
    text = source
    for old, new in FRAME:
        if text.count(old) != 1:
            return None
        text = text.replace(old, new)
    text = ANSWER.sub(r"self.answer(\1)", SCALE.sub("", text))
    if re.search(r"\bscale\b|\bsize\b", text):
        return None
    reference = as_reference(task_source)
    head, marker, rest = text.partition("class ModelNew")
    answer = "\n\n    def answer(self, x):\n        return Reference.forward(self, x, *self.rest)\n"
    return f"{head.rstrip()}\n\n\n{reference}\n\n\n{marker}{rest.rstrip()}{answer}"


def as_reference(task_source: str) -> str:
    """Returns the task without its input generators, and with its Model renamed to Reference."""
    tree = ast.parse(task_source)
    lines = task_source.splitlines()
    parts = []
    for at, item in enumerate(tree.body):
        if isinstance(item, ast.FunctionDef) and item.name in ("get_inputs", "get_init_inputs", "get_input_variants"):
            continue
        if at == 0 and isinstance(item, ast.Expr):  # the docstring
            continue
        first = min([item.lineno, *(d.lineno for d in getattr(item, "decorator_list", []))])
        text = "\n".join(lines[first - 1 : item.end_lineno])
        if isinstance(item, ast.ClassDef) and item.name == "Model":
            text = re.sub(r"\bsuper\(Model\b", "super(Reference", text.replace("class Model", "class Reference", 1))
        parts.append(text)
    return "\n".join(parts)


def without_header(source: str) -> str:
    """Removes the corpus's comments about a cheat, which must not be in the answer."""
    lines = source.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if not line.startswith("#")), 0)
    return "".join(lines[first:])
