"""The text of a policy's prompts, and the parsing of its replies."""

from __future__ import annotations

import re
from typing import Literal

LONGEST_FEEDBACK = 4000
FENCE = re.compile(r"^```[\w+-]*[ \t]*\n(.*?)^```[ \t]*$", re.S | re.M)
ASKS: dict[Literal["write", "improve"], str] = {
    "write": "Write a faster program for this PyTorch task.",
    "improve": "Here are a PyTorch task, a program for it and what a verifier says of the program. Write a better program.",
}
RULES = (
    "Define `class ModelNew(nn.Module)` with the constructor and forward of the task's `Model`, with kernels of your own (CUDA C++ or C++ through "
    "torch.utils.cpp_extension.load_inline, or Triton). Answer with one fenced Python block that holds the whole file."
)
SHOWN = re.compile(r"\n\n(Task|Program):\n```python\n(.*?)\n```(?=\n\n(?:Program|The verifier says):|\Z)", re.S)


def prompt_of(task: str, before: str | None = None, feedback: str = "") -> str:
    """Returns a prompt for a program, or for a better one if a program is given as `before`."""
    parts = [ASKS["write" if before is None else "improve"], RULES, f"Task:\n```python\n{task.strip()}\n```"]
    if before is not None:
        parts += [f"Program:\n```python\n{before.strip()}\n```", f"The verifier says:\n{feedback[:LONGEST_FEEDBACK]}"]
    return "\n\n".join(parts)


def shown_in(prompt: str) -> tuple[str, str]:
    """Returns the task and the program that such a prompt contains, with "" for anything missing."""
    found = dict(reversed(SHOWN.findall(prompt)))  # the first occurrence counts, because later text may contain quotations
    return found.get("Task", ""), found.get("Program", "")


def program_at(reply: str) -> tuple[int, int]:
    """Returns the position of the program in a reply: the last fenced block or, if there is none, the whole reply, which is then judged unchanged."""
    found = list(FENCE.finditer(reply))
    return found[-1].span(1) if found else (0, len(reply))


def program_in(reply: str) -> str:
    begin, end = program_at(reply)
    return reply[begin:end]
