"""The method that contains the printed statements: forward itself, or a method that forward calls with the leaves of its arguments."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.kernel.builder import identifier
from compiler.kernel.naming import free, parameters
from compiler.program.source_text import NEW_NAME
from compiler.program.task_text import EAGER, TaskText
from verifier.graph import Graph, GraphInput, Part

FLAT = "compute_flat"
OWN_SUPER = re.compile(r"\bsuper\(Model\b")
MARK = re.compile(r'^( *)__part__\("?\'?(\w+)"?\'?\)$', re.M)


@dataclass(frozen=True)
class Entry:
    """The signature of the method with the printed statements. `given` maps the graph name of each user input to its parameter. `around` is the
    task's own forward if that is a different method. `call` passes on all parameters of forward."""

    method: str
    arguments: list[str]
    given: dict[str, str]
    signature: str
    call: str
    around: str = ""


def entry_of(text: TaskText, graph: Graph, taken: Collection[str]) -> Entry:
    """Returns forward itself if each of its arguments is exactly one graph input; otherwise returns a method that forward calls. `taken` holds names
    that the parameters must not have."""
    users = [entry for entry in graph.inputs if entry.kind == "user"]
    if text.plain and all(entry.index is not None and not entry.path for entry in users):
        names = parameters(text.arguments(), taken)
        if all(entry.position < len(names) for entry in users):
            given = {entry.name: names[entry.position] for entry in users}
            return Entry("forward", names, given, text.signature(names), ", ".join(names))
    names = []
    for entry in users:
        names.append(free(identifier(entry.name), {*taken, *names}))
    given = {entry.name: name for entry, name in zip(users, names, strict=True)}
    signature, reading, call = _outer(text, users)
    lines = [f"    def forward{signature}:"]
    if text.has_variants:
        shapes = [f"{reading[e.name]}.shape != {tuple(e.spec.shape)}" for e in users if e.spec is not None]
        lines += [f"        if {' or '.join(shapes)}:", f"            return self.{EAGER}({call})  # another of the task's shapes"]
    lines.append(f"        return self.{FLAT}({', '.join(reading[entry.name] for entry in users)})")
    return Entry(FLAT, names, given, f"(self{''.join(', ' + name for name in names)})", call, "\n".join(lines) + "\n")


def _outer(text: TaskText, users: list[GraphInput]) -> tuple[str, dict[str, str], str]:
    """Returns the parameters of forward as written, the expression of each input in terms of them, and a call that passes all of them."""
    if text.forward is None:  # inherited from another module, so arguments are passed by position under the names used there
        count = max((entry.position + 1 for entry in users if entry.index is not None), default=0)
        whole = {entry.position: identifier(entry.name) for entry in users if entry.index is not None and not entry.path and entry.spec}
        names = [whole.get(at, f"argument_{at}") for at in range(count)]
        words = [entry.keyword for entry in users if not entry.index and entry.keyword]
        signature = f"(self{''.join(', ' + name for name in [*names, *dict.fromkeys(words)])})"
        call = ", ".join([*names, *(f"{word}={word}" for word in dict.fromkeys(words))])
        return signature, {e.name: (names[e.position] if e.index is not None else e.keyword) + e.path for e in users}, call
    arguments = text.forward.args
    names = text.arguments()
    only = [a.arg for a in arguments.kwonlyargs]
    more, words_of = arguments.vararg.arg if arguments.vararg else "", arguments.kwarg.arg if arguments.kwarg else ""

    def read(entry: GraphInput) -> str:
        if entry.index is None:
            return entry.keyword if entry.keyword in {*names, *only} else f"{words_of}[{entry.keyword!r}]"
        return names[entry.index] if entry.index < len(names) else f"{more}[{entry.index - len(names)}]"

    stars = [*([f"*{more}"] if more else []), *(f"{name}={name}" for name in only), *([f"**{words_of}"] if words_of else [])]
    return text.signature(names), {entry.name: read(entry) + entry.path for entry in users}, ", ".join([*names, *stars])


def entry_of_part(part: Part, graph: Graph, taken: Collection[str]) -> Entry:
    """Returns the method that computes a part of forward."""
    names: list[str] = []
    for word in part.reads:
        names.append(free(identifier(word), {*taken, *names}))
    given = dict(zip(part.reads, names, strict=True))
    return Entry(part.name, names, given, f"(self{''.join(', ' + name for name in names)})", "")


def forward_of_parts(graph: Graph, methods: Mapping[str, str]) -> str:
    """Returns the Python source of forward as a member of the class. If the inputs of a part match the capture, the part's method computes it;
    otherwise the task's original statements do. A part without a method stays unchanged. `methods` maps parts to methods."""
    parts = {part.name: part for part in graph.parts}
    text = textwrap.indent(graph.forward, "    ")

    def computed(match: re.Match[str]) -> str:
        indent, part = match[1], parts[match[2]]
        original = textwrap.indent(part.statements, indent)
        if part.name not in methods:
            return original
        call = f"{part.target}self.{methods[part.name]}({', '.join(part.reads.values())})"
        tests = _tests(part, graph)
        if not tests:
            return indent + call
        otherwise = f"{indent}else:  # not as it was captured\n{textwrap.indent(original, '    ')}"
        return f"{indent}if {' and '.join(tests)}:\n{indent}    {call}\n{otherwise}"

    return OWN_SUPER.sub(f"super({NEW_NAME}", MARK.sub(computed, text)) + "\n"


def _tests(part: Part, graph: Graph) -> list[str]:
    inputs = {entry.name: entry for entry in graph.inputs}
    tests = [*part.tests]
    for name, read in part.reads.items():
        entry = inputs[name]
        if entry.spec is not None:
            tests.append(f"{read}.shape == {tuple(entry.spec.shape)} and {read}.dtype == torch.{entry.spec.dtype}")
        elif (wanted := constant_text(entry.value)) is not None:
            tests.append(f"{read} {'is' if wanted in ('None', 'True', 'False') else '=='} {wanted}")
    tensors = [name for name in part.reads if inputs[name].spec is not None]
    for at, name in enumerate(tensors):
        for other in tensors[at + 1 :]:
            if {name, other} & set(graph.mutated_inputs):  # a change of one would show in the other if they shared memory, as at no capture
                tests.append(" != ".join(f"{part.reads[one]}.untyped_storage().data_ptr()" for one in (name, other)))
    return tests


def constant_text(value: Any) -> str | None:
    """Returns Python code for a non-tensor argument, or None if it has no textual form and therefore cannot be compared."""
    if isinstance(value, dict):
        return value.get("code") or None
    return repr(value)
