"""An anchor is the place that a comment refers to. It is read from a request and checked against the run. Stored as JSON in `Thread.anchor`:

{"kind": "run"}
{"kind": "event", "seq": 41, "label": "candidate.proposed"}
{"kind": "candidate", "candidate": 4}
{"kind": "line", "candidate": 4, "side": "new" | "old", "of": 4 | null, "line": 12, "text": "…", "context": {"before": […], "after": […]},
 "against": "task" | "3", "view": "diff" | "source"}
{"kind": "range", "sha": "…", "candidate": 4 | null, "start_ns": 0, "end_ns": 900, "rows": ["Stream 7"]}

A line belongs to the program `of` (null: the reference). It was shown on the page of `candidate`, where the old side of a diff is another program.
The line's text and context are taken from the stored program, never from the request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from webapp.diffs.lines import lines_of
from webapp.review.placing import context_of
from webapp.runs import artefacts
from webapp.runs.models import Artefact, Candidate, Run
from webapp.runs.pages.views_artefact import belongs_to

Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
LONGEST_LINE = 400  # maximum number of characters of a line stored in an anchor


class AnchorRefused(ValueError):
    """Raised if no such place exists in the run. The message says what is wrong."""


class _Place(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class RunPlace(_Place):
    kind: Literal["run"]


class EventPlace(_Place):
    kind: Literal["event"]
    seq: Annotated[int, Field(ge=1, le=2**53)]


class CandidatePlace(_Place):
    kind: Literal["candidate"]
    candidate: Number


class LinePlace(_Place):
    kind: Literal["line"]
    candidate: Number
    line: Annotated[int, Field(ge=1, le=1_000_000)]
    side: Literal["new", "old"] = "new"
    against: Annotated[str, Field(pattern=r"^(parent|task|\d{1,9})$")] = "parent"  # the old side of the diff; used only if `side` is "old"
    view: Literal["diff", "source"] = "source"


class RangePlace(_Place):
    kind: Literal["range"]
    sha: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    start_ns: Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]
    end_ns: Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]
    rows: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=64)] = []

    @model_validator(mode="after")
    def forward(self) -> Self:
        if self.end_ns <= self.start_ns:
            raise ValueError("a range ends after it begins")
        return self


Place = RunPlace | EventPlace | CandidatePlace | LinePlace | RangePlace
_PLACE: TypeAdapter[Place] = TypeAdapter(Annotated[Place, Field(discriminator="kind")])


def read(run: Run, given: Any) -> dict[str, Any]:
    """Returns the anchor to store for the place named in a request. Raises `AnchorRefused`."""
    try:
        place = _PLACE.validate_json(given) if isinstance(given, str | bytes) else _PLACE.validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise AnchorRefused(f"This place cannot be commented on: {'.'.join(map(str, first['loc'])) or 'anchor'}: {first['msg']}.") from None
    match place:
        case RunPlace():
            return {"kind": "run"}
        case EventPlace():
            kind = run.events.filter(seq=place.seq).values_list("kind", flat=True).first()
            if kind is None:
                raise AnchorRefused(f"This run has no event {place.seq}.")
            return {"kind": "event", "seq": place.seq, "label": kind}
        case CandidatePlace():
            _candidate(run, place.candidate)
            return {"kind": "candidate", "candidate": place.candidate}
        case LinePlace():
            return _line(run, place)
        case RangePlace():
            return _range(run, place)


def _candidate(run: Run, number: int) -> Candidate:
    found = Candidate.objects.select_related("program").filter(run=run, number=number).first()
    if found is None:
        raise AnchorRefused(f"This run has no candidate {number}.")
    return found


def other_side(candidate: Candidate, against: str) -> int | None:
    """Returns the number of the program on the old side of a candidate's diff, or None for the reference."""
    if against == "parent":
        return candidate.parent_number
    return None if against == "task" else int(against)


def source_lines(run: Run, number: int | None) -> list[str]:
    """Returns the lines of a candidate's program or of the reference. Raises `AnchorRefused`."""
    if number is None:
        return lines_of(run.task.source)
    return lines_of(artefacts.read(_candidate(run, number).program).decode("utf-8", "replace"))


def _line(run: Run, place: LinePlace) -> dict[str, Any]:
    candidate = _candidate(run, place.candidate)
    other = other_side(candidate, place.against)
    of = place.candidate if place.side == "new" else other
    lines = source_lines(run, of)
    name = "the reference" if of is None else f"candidate {of}"
    if place.line > len(lines):
        raise AnchorRefused(f"Line {place.line} is past the end of {name}, which has {len(lines)} lines.")
    kept = [line[:LONGEST_LINE] for line in lines]
    anchor = {"kind": "line", "candidate": place.candidate, "side": place.side, "of": of, "line": place.line, "text": kept[place.line - 1]}
    return anchor | {"context": context_of(kept, place.line), "against": "task" if other is None else str(other), "view": place.view}


def _range(run: Run, place: RangePlace) -> dict[str, Any]:
    stored = Artefact.objects.filter(team=run.team_id, sha=place.sha).first()
    if stored is None or not belongs_to(run, place.sha):
        raise AnchorRefused("This run has no such timeline.")
    candidate = run.candidates.filter(timeline=stored).order_by("-number").values_list("number", flat=True).first()
    return {"kind": "range", "sha": place.sha, "candidate": candidate, "start_ns": place.start_ns, "end_ns": place.end_ns, "rows": place.rows}
