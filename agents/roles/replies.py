"""Models' replies: strict schemas, and the extraction of JSON from a reply. `UnusableReply` tells the model exactly what is wrong and where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from agents.llm.messages import Reply

MAX_STEPS = 12
PROBLEMS_SHOWN = 6
NEAR = 60  # number of characters shown around a JSON error


class UnusableReply(ValueError):
    """Raised if a reply cannot be used; the message is shown to the model that wrote the reply."""


class Strict(BaseModel):
    """Unknown keys are errors, because a misspelt key would otherwise be silently ignored."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


def cut(text: str, room: int) -> str:
    """Returns at most `room` characters, with a note if something was cut. Only the end of a long text is lost."""
    note = f" [cut here: {len(text):,} characters, room for {room:,}]"
    return text if len(text) <= room else text[: max(room - len(note), 0)] + note


def _cut(room: int) -> BeforeValidator:
    return BeforeValidator(lambda value: cut(value, room) if isinstance(value, str) else value)


def _first(count: int) -> BeforeValidator:
    return BeforeValidator(lambda value: value[:count] if isinstance(value, list) else value)


# Length limits, as stated in the prompts; longer text is cut, and a note says so.
Title = Annotated[str, _cut(200), Field(min_length=1)]
Sentence = Annotated[str, _cut(2000)]
Reason = Annotated[str, _cut(3000)]
Paragraph = Annotated[str, _cut(4000)]
Long = Annotated[str, _cut(6000)]
Names = Annotated[list[str], _first(12)]


class StepReply(Strict):
    id: str = Field(min_length=1, max_length=40, pattern=r"^[\w.-]+$")
    title: Title
    operators: Annotated[list[str], _first(200)] = []
    space: Literal["own kernel", "library", "pytorch"]
    strategies: Names = []
    contract: Long = ""
    expected: Sentence = ""
    risk: Sentence = ""
    reason: Paragraph = ""

    @field_validator("expected", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        """Accepts a gain that is given as a number, so "1.3" and 1.3 are equivalent."""
        return f"{value:g}x" if isinstance(value, int | float) and not isinstance(value, bool) else value


class PlanReply(Strict):
    summary: Annotated[Sentence, Field(min_length=1)]
    steps: list[StepReply] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _not_too_many(cls, value: Any) -> Any:
        """Leaves out steps beyond MAX_STEPS and mentions this in the summary."""
        steps = value.get("steps") if isinstance(value, dict) else None
        if not isinstance(steps, list) or len(steps) <= MAX_STEPS:
            return value
        left = len(steps) - MAX_STEPS
        return {**value, "steps": steps[:MAX_STEPS], "summary": f"{value.get('summary', '')} [{left} further steps were left out]"}

    @field_validator("steps")
    @classmethod
    def _unique(cls, steps: list[StepReply]) -> list[StepReply]:
        ids = [step.id for step in steps]
        twice = sorted({i for i in ids if ids.count(i) > 1})
        if twice:
            raise ValueError(f"two steps have the id {', '.join(twice)}")
        if all(step.space == "pytorch" for step in steps):
            raise ValueError('every step is left in "pytorch": at least one has to change something')
        return steps


class IdeaReply(Strict):
    title: Title
    text: Annotated[Long, Field(min_length=1)]
    strategies: Names = []
    expected: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)


class IdeasReply(Strict):
    ideas: Annotated[list[IdeaReply], _first(50)]


class DiagnosisReply(Strict):
    bottleneck: Annotated[Sentence, Field(min_length=1)]
    route: Literal["optimise", "next-step", "re-plan", "stop"]
    method: str | None = None
    change: Long = ""
    expected: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)
    documents: Names = []


class JudgementReply(Strict):
    defect: Annotated[Sentence, Field(min_length=1)]
    why: Reason = ""
    fix: Annotated[Long, Field(min_length=1)]
    route: Literal["repair", "next-step", "re-plan", "stop"]
    documents: Names = []


T = TypeVar("T", bound=BaseModel)

FORMS = {  # the form of reply to request again, keyed by the prompt's `reply`
    "plan": 'Reply with one JSON object with the keys "summary" and "steps".',
    "ideas": 'Reply with one JSON object with the key "ideas".',
    "idea": 'Reply with one JSON object with the keys "title", "text", "strategies" and "expected".',
    "script": 'Reply with one JSON object with the keys "revision" and "ops".',
    "program": "Reply with the three lines TITLE, CHANGES and STRATEGY and then the whole program in one python fence, or SEARCH/REPLACE blocks.",
    "diagnosis": 'Reply with one JSON object with the keys "bottleneck", "route", "method", "change", "expected" and "documents".',
    "judgement": 'Reply with one JSON object with the keys "defect", "why", "fix", "route" and "documents".',
}


def parse(reply: Reply, schema: type[T]) -> T:
    """Returns the validated object in a reply. Raises `UnusableReply`, listing each problem and its location."""
    value = find_object(reply, tuple(schema.model_fields))
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise UnusableReply(f"The JSON does not fit:\n{said(error)}") from None


def find_object(reply: Reply, keys: tuple[str, ...]) -> dict[str, Any]:
    """Returns the JSON object in a reply, which may be in a fence or bare, with prose before and after it. If there are several objects, returns the
    last one that has any of `keys`."""
    text = reply.text
    if not text.strip():
        raise UnusableReply("The reply is empty." + cut_off(reply))
    found: list[dict[str, Any]] = []
    errors: list[str] = []
    for candidate in (*fences(text), text):
        for value, error in objects(candidate):
            if error:
                errors.append(error)
            elif any(key in value for key in keys):
                found.append(value)
        if found:
            return found[-1]
    if errors:
        raise UnusableReply(f"The JSON cannot be read: {errors[0]}{cut_off(reply)}")
    raise UnusableReply(f"There is no JSON object with the keys {', '.join(keys)} in the reply.{cut_off(reply)}")


def cut_off(reply: Reply) -> str:
    return " The reply was cut off at the maximum length: be shorter." if reply.finish == "length" else ""


def fences(text: str) -> list[str]:
    """Returns the contents of fenced blocks that may hold JSON, last one first, because the last one is usually the answer."""
    found = re.findall(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```[ \t]*$", text, re.DOTALL | re.MULTILINE)
    return [body for language, body in reversed(found) if language.lower() in ("", "json", "json5", "jsonc", "javascript")]


def objects(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the outermost JSON objects in a text, in order. If a line starts with an opening brace that begins no valid object, yields the error and
    its location."""
    decoder = json.JSONDecoder(strict=False)  # models write line breaks inside strings
    at = text.find("{")
    while at >= 0:
        try:
            value, length = decoder.raw_decode(text[at:])
        except json.JSONDecodeError as error:
            if text[:at].rpartition("\n")[2].strip() == "" or at == 0:
                yield {}, place(text[at:], error)
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict):
            yield value, ""
        at = text.find("{", at + length)


def place(text: str, error: json.JSONDecodeError) -> str:
    near = text[max(error.pos - NEAR, 0) : error.pos + NEAR].replace("\n", "\\n")
    return f"{error.msg} at line {error.lineno}, column {error.colno}, near `{near}`."


def said(error: ValidationError) -> str:
    """Returns Pydantic's findings as lines, each with the path of the key."""
    lines = []
    for found in error.errors()[:PROBLEMS_SHOWN]:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]).lstrip(".") or "the object"
        given = found.get("input")
        shown = f" (got {json.dumps(given, default=str)[:80]})" if found["type"] not in ("missing", "value_error") else ""
        message = found["msg"].removeprefix("Value error, ")
        lines.append(f"- {path}: {'this key does not exist here' if found['type'] == 'extra_forbidden' else message}{shown}")
    more = error.error_count() - len(lines)
    return "\n".join(lines + ([f"- and {more} more"] if more > 0 else []))
