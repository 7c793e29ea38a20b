"""`python -m agents.choices` regenerates everything that is derived from these records: `stitchwork/choices.py` and the workflow table in the
documents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agents.choices.limits import LIMITS
from agents.choices.workflows import DEFAULT, PARALLEL, SEARCHES, WORKFLOWS
from agents.made import between

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ROOT / "stitchwork" / "choices.py"
TABLE = ROOT / "docs" / "reference" / "workflows" / "README.md"
COMMAND = "python -m agents.choices"

MODULE = '''"""What a run can be asked for, for a command line that has nothing of the product.

Made by `python -m agents.choices`; a test keeps it current. Change agents/choices/ instead.
"""

from typing import Literal, get_args

Search = Literal[{searches}]
Workflow = Literal[{workflows}]
SEARCHES: tuple[str, ...] = get_args(Search)
WORKFLOWS: tuple[str, ...] = get_args(Workflow)
DEFAULT: Search = "{default}"
# those that go several ways at once
PARALLEL = ({parallel})

USUAL: dict[str, float | None] = {{  # limits of a budget where nobody chooses; null is no limit
{usual}
}}
'''


def module() -> str:
    """Returns the source of `stitchwork/choices.py`."""
    usual = "\n".join(f'    "{unit}": {None if limit.usual is None else f"{limit.usual:g}"},' for unit, limit in LIMITS.items())
    return MODULE.format(searches=_quoted(SEARCHES), workflows=_quoted(WORKFLOWS), default=DEFAULT, parallel=_quoted(PARALLEL), usual=usual)


def table() -> str:
    """Returns the workflows as a Markdown table; workflows that search link to their own pages."""
    linked = {name: f"[`{name}`]({name}.md)" if flow.searches else f"`{name}`" for name, flow in WORKFLOWS.items()}
    rows = [f"| {linked[name]} | {flow.source} | {flow.short} | {flow.when} |" for name, flow in WORKFLOWS.items()]
    return "\n".join(["| name | from | in short | choose it when |", "|---|---|---|---|", *rows])


def page(text: str) -> str:
    """Returns the document with an up-to-date table."""
    return between(text, "workflows", COMMAND, table())


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


if __name__ == "__main__":
    COMMANDS.write_text(module())
    TABLE.write_text(page(TABLE.read_text()))
