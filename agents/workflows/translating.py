"""Turns an idea into a program: translates it, then repairs it based on the verifier's findings until it is correct. Used by populations and
branches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from agents.payloads import Failure, IdeaProposed
from agents.roles.situation import Advice, Attempt, Edit, Idea, Roles, Situation, Unusable
from agents.run import Engine
from agents.span import Span
from agents.workflows.attempting import try_edit, unusable
from verifier.profiling.diagnosing.diagnosis import defect

Writing = Callable[[Span], Awaitable[Edit | None]]


async def translate(
    run: Engine, situation: Situation, roles: Roles, path: str, idea: Idea, parent: Attempt | None, *, seen: Sequence[Attempt], repairs: int
) -> list[Attempt]:
    """Returns the programs derived from the idea, starting from its parent's program: the translation and up to `repairs` repairs. The last program
    counts.

    Workers call this concurrently. The coder sees only this worker's own attempts and those that had ended before any worker began (`seen`), so the
    coder's output does not depend on which worker is faster.
    """
    view = replace(situation, attempts=list(seen), refusals=[])
    own: list[Attempt] = []
    title, start = idea.title, parent

    async def write(span: Span) -> Edit | None:
        if not own or start is None:
            return await realise(span, view, roles, idea, start)
        return await roles.coder.write(span, view, start, to_repair(start))

    while len(own) <= repairs:
        attempt = await _candidate(run, situation, view, f"{path}/attempt-{len(own) + 1}", title, start, write)
        if attempt is None:
            break
        own.append(attempt)
        if attempt.passed or attempt.verdict.status == "inconclusive":  # the program may not be wrong
            break
        title, start = f"Repair candidate {attempt.number}", attempt
    return own


async def realise(span: Span, situation: Situation, roles: Roles, idea: Idea, parent: Attempt | None) -> Edit | None:
    """Returns the idea as a program that has not been measured yet, or None."""
    edit = await roles.coder.realise(span, situation, idea, parent)
    if edit is None or any(edit.source == attempt.edit.source for attempt in situation.attempts):
        return None
    return replace(edit, idea=idea)


async def _candidate(
    run: Engine, situation: Situation, view: Situation, path: str, title: str, parent: Attempt | None, write: Writing
) -> Attempt | None:
    async with run.span(path, title[:200], "coder") as span:
        try:
            edit = await write(span)
        except Unusable as refused:
            await unusable(span, view, refused, None, None)
            return None
        if edit is None:
            span.skip("no new program")
            return None
        attempt = await try_edit(run, span, situation, edit, parent)
    view.attempts.append(attempt)
    view.refusals.clear()
    return attempt


def to_repair(attempt: Attempt) -> Advice:
    """Returns advice for an error fixer: the report's text, without a judgement."""
    return Advice(defect(attempt.verdict), "repair", f"Candidate {attempt.number} did not pass.")


class Ideas:
    """All ideas of a run. Parallel workers get their numbers before they begin, so a resumed run assigns the same numbers."""

    def __init__(self) -> None:
        self._known: dict[int, Idea] = {}
        self._last = 0

    @property
    def known(self) -> list[Idea]:
        return [self._known[number] for number in sorted(self._known)]

    def number(self) -> int:
        self._last += 1
        return self._last

    async def add(self, span: Span, situation: str, idea: Idea, number: int, candidate: int | None = None) -> Idea:
        """Records an idea. `situation` is the origin of the idea: "ideas", "cross" or "align" (with the number of the idea that it corrects)."""
        idea = self._known[number] = replace(idea, number=number)
        payload = IdeaProposed(
            situation=situation, idea=number, parents=list(idea.parents), title=idea.title[:300], text=idea.text[:4000],
            strategies=list(idea.strategies)[:24], expected=idea.expected, candidate=candidate,
        )  # fmt: skip
        await span.emit(payload, agent="planner")
        return idea


async def new_ideas(span: Span, situation: Situation, roles: Roles, ideas: Ideas, wanted: int) -> Sequence[Idea]:
    """Returns up to `wanted` ideas that differ from all known ones, or none if the planner has no more."""
    try:
        found = await roles.planner.ideas(span, situation, wanted, ideas.known)
    except Unusable as refused:
        await span.emit(Failure(message=f"no usable ideas: {refused.reason}"[:4000], where=span.path, kept="everything up to here"))
        return []
    added = [await ideas.add(span, "ideas", idea, ideas.number()) for idea in found[:wanted]]
    if added:
        await span.say("planner", *(f"Idea {idea.number}: {idea.title}. {idea.text}\n" for idea in added))
    return added
