"""What a failed program teaches the author of the next one: what went wrong, what that looks like, and what the program had changed."""

from __future__ import annotations

import re

from agents.roles.situation import Attempt, Situation
from agents.roles.wrong_rows import choice_text, rows_text, shape_of
from verifier.profiling.diagnosing.defects import STATE, barely_over

SAID, CHANGED = 300, 200  # maximum number of characters of a message, and of a description of a change
END = re.compile(r"[.;!?](?=\s)|\n")  # the ends of sentences and clauses


def lesson_of(attempt: Attempt, message: str, situation: Situation) -> str:
    """Returns the message, cut at the end of a clause, with what the wrong elements look like and what the program had changed."""
    report = attempt.report
    if report is None or report.status != "wrong_result":
        return whole_clauses(message, SAID)
    trial = next((trial for trial in report.trials if not trial.ok), None)
    said, more = message, list[str]()
    if (over := barely_over(report)) is not None:
        said = said.replace(STATE, "is a little off")
        more.append(
            f"Its error is {over:.2g} times its bound, which was widened because rounding moves PyTorch's own value that far: read this as rounding "
            "that was amplified on the way, not as a missing update, and compute what leads to it in eager's order of arithmetic"
        )
    for part in trial.wrong[:1] if trial is not None else []:
        if rows := rows_text(part, shape_of(part, situation)):
            more.append(f"They are {rows}")
        more.append(choice_text(part, attempt, situation))
    more.append(changed_text(attempt))
    return ". ".join(text.rstrip(".") for text in (whole_clauses(said, SAID), *more) if text)


def changed_text(attempt: Attempt) -> str:
    """Says what a program had changed, and at which step of the plan. Returns "" if that is not known."""
    changes = " ".join(attempt.edit.changes.split())
    at = f", at step {attempt.edit.step}" if attempt.edit.step else ""
    return f"The change of candidate {attempt.number}{at}: {whole_clauses(changes, CHANGED, ',')}" if changes else ""


def whole_clauses(text: str, room: int, also: str = "") -> str:
    """Returns as much of a text as fits, up to the end of a sentence or clause (or a character of `also`), or of a word if there is none."""
    text = text.strip()
    if len(text) <= room:
        return text
    ends = [found.start() for found in END.finditer(text, 0, room + 1) if found.start() <= room]
    ends += [at for at in range(min(room, len(text))) if text[at] in also and text[at + 1 : at + 2].isspace()]
    if ends and max(ends) >= room // 4:
        return text[: max(ends)].rstrip()
    return text[:room].rpartition(" ")[0].rstrip() or text[:room]
