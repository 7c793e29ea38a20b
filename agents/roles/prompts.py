"""Prompts: Markdown files with a header that states the role, the situation, the variables and the form of reply.

    ---
    role: coder
    situation: repair
    variables: reference, program, evidence, notes
    reply: program
    ---
    # System
    ...text, {{> rules}} includes parts/rules.md, {{program}} is a variable...
    # User
    ...{{#notes}} this is left out where `notes` is empty {{/notes}}...

A file must use exactly the variables that it declares, including those of its parts, and a caller must pass exactly those. Anything else raises an
error before the model is called. Variables are substituted in a single pass over the file's own text, so a value that looks like a variable is left
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agents.llm.messages import Message

FOLDER = Path(__file__).resolve().parents[1] / "prompts"
PARTS = FOLDER / "parts"
REPLIES = ("plan", "ideas", "idea", "script", "program", "diagnosis", "judgement", "any")
HEADER = ("role", "situation", "variables", "reply")

_PIECE = re.compile(r"\{\{\s*([#/>]?)\s*([a-z][a-z0-9_]*)\s*\}\}")


class PromptError(ValueError):
    """Raised if a prompt file does not match its own declarations, or if a call does not match the file's declarations."""


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Block:
    """Text that is included only if its variable is not empty."""

    name: str
    inner: tuple[Piece, ...]


Piece = Text | Variable | Block


@dataclass(frozen=True)
class Prompt:
    role: str
    situation: str
    variables: frozenset[str]
    reply: str
    system: tuple[Piece, ...]
    user: tuple[Piece, ...]

    @property
    def purpose(self) -> str:
        return f"{self.role}/{self.situation}"

    def messages(self, values: Mapping[str, str]) -> list[Message]:
        """Return the system message and the user message. Raises `PromptError` if the values do not match the declared variables exactly."""
        given = frozenset(values)
        if given != self.variables:
            missing, unknown = sorted(self.variables - given), sorted(given - self.variables)
            raise PromptError(f"{self.purpose}: missing {missing or 'nothing'}, not declared {unknown or 'nothing'}")
        system, user = (_render(pieces, values).strip() for pieces in (self.system, self.user))
        said = [Message(role="system", content=system), Message(role="user", content=user)]
        return [message for message in said if message.content]


@cache
def prompt(purpose: str) -> Prompt:
    """Return the prompt for a role and a situation, such as "coder/repair"."""
    role, _, situation = purpose.partition("/")
    return read(FOLDER / f"{role}_{situation}.md")


@cache
def part(name: str) -> str:
    """Return the text of parts/NAME.md, for a variable whose text is chosen at run time, such as the rules of a language. The part must have no
    variables of its own; parts that it includes are filled in."""
    text = re.sub(r"\{\{> (\w+)\}\}", lambda found: part(found[1]), (PARTS / f"{name}.md").read_text().strip())
    if _PIECE.search(text):
        raise PromptError(f"parts/{name}.md has variables, so it can only be included")
    return text


def read(path: Path) -> Prompt:
    """Parse a prompt file. Raises `PromptError` with the name of the file."""
    header, body = _split(path)
    role, situation = header["role"], header["situation"]
    if path.stem != f"{role}_{situation}":
        raise PromptError(f"{path.name}: its header says {role}/{situation}")
    if header["reply"] not in REPLIES:
        raise PromptError(f"{path.name}: reply {header['reply']!r} is none of {', '.join(REPLIES)}")
    declared = frozenset(name.strip() for name in header["variables"].split(",") if name.strip())
    system, user = _parse(body["System"], path.name), _parse(body["User"], path.name)
    used = _names(system) | _names(user)
    if used != declared:
        raise PromptError(f"{path.name}: declared but not used {sorted(declared - used)}, used but not declared {sorted(used - declared)}")
    return Prompt(role, situation, declared, header["reply"], system, user)


def _split(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    found = re.fullmatch(r"---\n(.*?)\n---\n(.*)", path.read_text(), re.DOTALL)
    if not found:
        raise PromptError(f"{path.name}: it does not begin with a header between two lines of ---")
    header = dict(re.findall(r"^(\w+):[ \t]*(.*)$", found[1], re.MULTILINE))
    if tuple(header) != HEADER:
        raise PromptError(f"{path.name}: the header has {', '.join(header)} instead of {', '.join(HEADER)}")
    sections = re.fullmatch(r"\s*# System\n(.*?)^# User\n(.*)", found[2], re.DOTALL | re.MULTILINE)
    if not sections:
        raise PromptError(f"{path.name}: after the header come `# System` and `# User`, in this order")
    return header, {"System": sections[1].strip(), "User": sections[2].strip()}


def _parse(text: str, name: str, inside: tuple[str, ...] = ()) -> tuple[Piece, ...]:
    """Split a text into pieces. `inside` lists the enclosing parts, so that no part can include itself."""
    stack: list[tuple[str, list[Piece]]] = [("", [])]
    at = 0
    for found in _PIECE.finditer(text):
        stack[-1][1].append(Text(text[at : found.start()]))
        at = found.end()
        mark, word = found[1], found[2]
        if mark == "":
            stack[-1][1].append(Variable(word))
        elif mark == ">":
            path = PARTS / f"{word}.md"
            if word in inside:
                raise PromptError(f"{name}: parts/{word}.md includes itself")
            if not path.is_file():
                raise PromptError(f"{name}: there is no parts/{word}.md to include")
            stack[-1][1].extend(_parse(path.read_text().strip(), f"parts/{word}.md", (*inside, word)))
        elif mark == "#":
            stack.append((word, []))
        elif stack[-1][0] == word:
            _, inner = stack.pop()
            stack[-1][1].append(Block(word, tuple(inner)))
        else:
            raise PromptError(f"{name}: {{{{/{word}}}}} closes no {{{{#{word}}}}}")
    if len(stack) > 1:
        raise PromptError(f"{name}: {{{{#{stack[-1][0]}}}}} is never closed")
    stack[0][1].append(Text(text[at:]))
    return tuple(stack[0][1])


def _names(pieces: tuple[Piece, ...]) -> set[str]:
    names: set[str] = set()
    for piece in pieces:
        if isinstance(piece, Variable):
            names.add(piece.name)
        elif isinstance(piece, Block):
            names |= {piece.name} | _names(piece.inner)
    return names


def _render(pieces: tuple[Piece, ...], values: Mapping[str, str]) -> str:
    said = []
    for piece in pieces:
        if isinstance(piece, Text):
            said.append(piece.text)
        elif isinstance(piece, Variable):
            said.append(values[piece.name])
        elif values[piece.name].strip():
            said.append(_render(piece.inner, values))
    return "".join(said)


def fenced(text: str, language: str = "") -> str:
    """Return the text enclosed in a fence that is so long that backticks in the text cannot close it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def check_all() -> list[Prompt]:
    """Return every prompt in the folder. Raises an error at the first invalid one."""
    return [read(path) for path in sorted(FOLDER.glob("*.md"))]
