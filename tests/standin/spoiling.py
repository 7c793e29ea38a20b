"""Makes good replies bad, with one function per content fault."""

from __future__ import annotations

import json
import re
from typing import Any

SOURCE = re.compile(r'(SOURCE = r""")(.*?)(""")', re.DOTALL)
BODY = re.compile(r'((?:extern "C"|__global__)[^;{]*\{\n)')
STORE = re.compile(r"^(\s*)(\w+\[[^;=]*\]) = ([^;]+);$", re.MULTILINE)
OFF = "1.0078125f"  # a factor that no tolerance accepts but that looks like a rounding constant


def malformed(reply: dict[str, Any], token: str) -> str:
    """Returns JSON with the errors that models make: truncated, in Python's notation, or with a missing comma."""
    text = json.dumps(reply, indent=1)
    way = sum(map(ord, token)) % 3
    if way == 0:
        return text[: 2 * len(text) // 3]
    if way == 1:
        return str(reply)
    return text.replace(",\n", "\n", 1)


def chatty_json(reply: dict[str, Any]) -> str:
    text = json.dumps(reply, indent=1)
    return f"Certainly! I have looked at the task and the figures. Here is my answer:\n\n```json\n{text}\n```\n\nLet me know if you want me to go on."


def chatty_program(program: str, task: str) -> str:
    """Returns a draft and the program in two fences, surrounded by text but without the requested lines, so that it is unclear which one is meant."""
    draft = re.sub(r"\bclass Model\b", "class ModelNew", task)
    return (
        "Great question! Let me think step by step. The plain version, only to fix the interface, would be:\n\n"
        f"```python\n{draft}```\n\nThat already works, but we can do better. The complete solution then looks like this:\n\n"
        f"```python\n{program}```\n\nYou can pick whichever you prefer. This should be noticeably faster. Happy coding!"
    )


def wrong_file(task: str) -> str:
    """Returns the task, edited in place as if it were the program."""
    return re.sub(r"^(\s*)def forward\(", r"\1@torch.no_grad()\n\1def forward(", task, count=1, flags=re.MULTILINE)


def stale(program: str) -> tuple[str, str]:
    """Returns search/replace blocks for a different version of the program."""
    line = next((line for line in program.splitlines() if line.startswith("    ") and len(line) > 30), program.splitlines()[0])
    return f"{line}  // as in the last version\n", f"{line}\n"


def not_compiling(program: str, token: str) -> str:
    """Makes a kernel (or forward, if the program has no kernels) use an undeclared name."""
    source = SOURCE.search(program)
    if source is None:
        return re.sub(r"(def forward\([^\n]*\n)", rf"\1        {token}\n", program, count=1)
    spoiled = BODY.sub(lambda found: f"{found[1]}    const long tile = {token} * 2;\n    (void)tile;\n", source[2], count=1)
    return program[: source.start()] + source[1] + spoiled + source[3] + program[source.end() :]


def wrong_result(program: str) -> str:
    """Makes the stored values (or forward's results, if the program has no kernels) wrong by less than one percent."""
    source = SOURCE.search(program)
    if source is None or STORE.search(source[2]) is None:
        return re.sub(r"^(\s*)return (\w+)$(?![\s\S]*^\s*return )", rf"\1return \2 * {OFF[:-1]}", program, flags=re.MULTILINE)
    text = STORE.sub(rf"\1\2 = (\3) * {OFF};", source[2])
    return program[: source.start()] + source[1] + text + source[3] + program[source.end() :]
