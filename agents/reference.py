"""Generates the event reference from the event models: the tables in docs/reference/events.md and the types in static/js/run/events.js. python -m
agents.reference
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from agents.made import between
from agents.payloads import PAYLOADS, ArtefactRef, Payload
from verifier.report import Interval

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "events.md"
SCRIPT = ROOT / "static" / "js" / "run" / "events.js"
COMMAND = "python -m agents.reference"


@dataclass(frozen=True)
class Words:
    """The notation for types. The last three fields are templates."""

    plain: dict[Any, str]
    union: str
    array: str
    table: str
    literal: str = "{}"

    def of(self, annotation: Any) -> str:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin in (Union, types.UnionType):
            return self.union.join(dict.fromkeys(map(self.of, arguments)))
        if origin is list:
            return self.array.format(self.of(arguments[0]))
        if origin is dict:
            return self.table.format(self.of(arguments[1]))
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return self.literal.format(annotation.__name__)
        return self.plain[annotation]


PROSE = Words(
    {str: "text", int: "number", float: "number", bool: "true or false", Any: "any", types.NoneType: "null"},
    " or ",
    "list of {}",
    "{} by name",
    "`{}`",
)
JSDOC = Words(
    {str: "string", int: "number", float: "number", bool: "boolean", Any: "any", types.NoneType: "null"}, "|", "Array<{}>", "Object<string, {}>"
)


@dataclass(frozen=True)
class Said:
    """One field. `type` is its annotation."""

    name: str
    type: Any
    required: bool
    text: str


def fields_of(model: type[BaseModel]) -> list[Said]:
    return [Said(f.alias or name, f.annotation, f.is_required(), f.description or "") for name, f in model.model_fields.items()]


def parts() -> list[type[BaseModel]]:
    """Returns the models that payloads contain, in order of first use."""
    found: dict[type[BaseModel], None] = {}

    def look(annotation: Any) -> None:
        for inner in get_args(annotation):
            look(inner)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in found:
            for said in fields_of(annotation):
                look(said.type)
            found[annotation] = None

    for payload in PAYLOADS.values():
        for said in fields_of(payload):
            look(said.type)
    return list(found)


def docstring(model: type[BaseModel]) -> str:
    return cleandoc(model.__dict__.get("__doc__") or "")


def markdown() -> str:
    """Returns one section per kind in order, followed by the sections of the parts."""
    lines: list[str] = []
    for kind, payload in PAYLOADS.items():
        lines += [f"### `{kind}`", "", *_facts(payload), *_table(payload)]
    lines += ["### Parts of payloads", ""]
    for part in parts():
        lines += [f"**`{part.__name__}`**" + (f": {docstring(part)}" if part in (ArtefactRef, Interval) else ""), "", *_table(part)]
    return "\n".join(lines).rstrip() + "\n"


def _facts(payload: type[Payload]) -> Iterator[str]:
    yield " ".join(docstring(payload).split())
    if payload.shown:
        yield f"The projection updates: {payload.shown}."
    yield ""


def _table(model: type[BaseModel]) -> Iterator[str]:
    said = fields_of(model)
    if said:
        yield from ("| field | type | meaning |", "|---|---|---|")
        yield from (
            f"| `{one.name}` | {PROSE.of(one.type)} | {', '.join(filter(None, (one.text, 'required' if one.required else '')))} |" for one in said
        )
        yield ""


def script() -> str:
    """Returns the module with the types, which no page loads."""
    lines = ["// @ts-check", f"// Payloads of events, as types for editors. Generated from agents/payloads.py by `{COMMAND}`: do not edit it.", ""]
    for model in [*parts(), *PAYLOADS.values()]:
        lines += ["/**", *(f" * {line}".rstrip() for line in docstring(model).splitlines()), f" * @typedef {{Object}} {model.__name__}"]
        for one in fields_of(model):
            name = one.name if one.required else f"[{one.name}]"
            lines.append(f" * @property {{{JSDOC.of(one.type)}}} {name}" + (f" - {one.text}" if one.text else ""))
        lines += [" */", ""]
    kinds = [f' *   "{kind}": {payload.__name__},' for kind, payload in PAYLOADS.items()]
    lines += ["/**", " * @typedef {{", *kinds, " * }} Payloads", " */", ""]
    folder = "(state: any, event: any, payload: Payloads[K], changes: any) => void"
    lines += [f"/** @typedef {{{{ [K in keyof Payloads]?: {folder} }}}} Folders how each kind of event changes the state */", "", "export {};"]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Returns the page with its generated part updated. Raises the same errors as `between`."""
    return between(text, "kinds of events", COMMAND, markdown().rstrip())


def main() -> None:
    PAGE.write_text(page(PAGE.read_text()))
    SCRIPT.write_text(script())


if __name__ == "__main__":
    main()
