"""A reply as it arrives: its text, reasoning, end and cost."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from agents.llm.messages import Delta, FinishReason, Usage

Kind = Literal["text", "reasoning"]
OPEN, CLOSE = "<think>", "</think>"
LOST = "\ufffd"
HALF = re.compile("[\ud800-\udfff]")  # half of a surrogate pair in a JSON escape; some servers split a stream in the middle of a pair


@dataclass
class Answer:
    """A reply that a dialect fills in piece by piece. `ended`: the protocol's own end marker has arrived, so nothing follows."""

    finish: FinishReason | None = None
    model: str = ""
    usage: Usage | None = None
    streamed: bool = False
    ended: bool = False
    _said: dict[str, list[str]] = field(default_factory=lambda: {"text": [], "reasoning": []})
    _half: dict[str, str] = field(default_factory=lambda: {"text": "", "reasoning": ""})  # first half of a surrogate pair that arrives in two pieces
    _thoughts: Thoughts = field(default_factory=lambda: Thoughts())

    @property
    def text(self) -> str:
        return "".join(self._said["text"])

    @property
    def reasoning(self) -> str:
        return "".join(self._said["reasoning"])

    def add(self, kind: Kind, text: str) -> list[Delta]:
        """Adds a piece of the reply and splits it into text and reasoning. Servers that do not separate the two put <think> tags in the text."""
        text = self._half[kind] + text
        self._half[kind] = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = whole(text[: len(text) - len(self._half[kind])])
        if not text:
            return []
        return self._keep([Delta(kind="reasoning", text=text)] if kind == "reasoning" else self._thoughts.split(text))

    def close(self) -> list[Delta]:
        """Ends the reply. Releases text that was held back because it might have been the start of a tag."""
        deltas = []
        for kind in ("text", "reasoning"):
            if self._half[kind]:
                self._half[kind] = ""
                deltas += self.add(kind, LOST)
        deltas += self._keep(self._thoughts.rest())
        before, tag, after = self.text.partition(CLOSE)
        if tag and OPEN not in before and "```" not in before:  # the chat template opened the tag inside the prompt
            self._said["reasoning"].append(before)
            self._said["text"] = [after.lstrip()]
        return deltas

    def _keep(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            self._said[delta.kind].append(delta.text)
        return deltas


def whole(text: str) -> str:
    """Joins matching surrogate halves into one character and replaces lone halves with U+FFFD, because UTF-8 cannot encode them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if HALF.search(text) else text


class Thoughts:
    """Separates a `<think>...</think>` section at the start of a text from the rest; later tags are left unchanged."""

    def __init__(self) -> None:
        self._state = "start"  # "start", "inside", "gap" (white space after the tag), "text"
        self._held = ""

    def split(self, piece: str) -> list[Delta]:
        held, self._held = self._held + piece, ""
        found: list[Delta] = []
        if self._state == "start":
            begun = held.lstrip()
            if begun.startswith(OPEN):
                self._state, held = "inside", begun[len(OPEN) :].lstrip("\n")
            elif OPEN.startswith(begun):
                self._held = held
                return []
            else:
                self._state = "text"
        if self._state == "inside":
            thought, tag, held = held.partition(CLOSE)
            if not tag:
                cut = _overlap(thought, CLOSE)
                thought, self._held = thought[: len(thought) - cut], thought[len(thought) - cut :]
            else:
                self._state = "gap"
            found += [Delta(kind="reasoning", text=thought)] if thought else []
        if self._state == "gap":
            held = held.lstrip()
            if held:
                self._state = "text"
        if self._state == "text" and held:
            found.append(Delta(text=held))
        return found

    def rest(self) -> list[Delta]:
        held, self._held = self._held, ""
        if not held:
            return []
        return [Delta(kind="reasoning" if self._state == "inside" else "text", text=held)]


def _overlap(text: str, tag: str) -> int:
    """Returns the number of characters at the end of `text` that could be the beginning of `tag`."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
