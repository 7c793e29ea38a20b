"""Rankings from the common ranking query: a suite's entries, and the individual results behind them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.db import transaction
from django.http import HttpResponse
from django.urls import reverse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from webapp.accounts.access import require
from webapp.accounts.signed_in import Request
from webapp.api.calls.caller import needs
from webapp.api.calls.fields import Text
from webapp.api.calls.idempotency import HEADER_PARAMETER, once
from webapp.api.calls.problems import refusals
from webapp.api.run_schemas import Asked
from webapp.api.verifications import NewProgram, VerificationResult, prepared, result_of
from webapp.leaderboard.exports import BoardFile, ResultRow, board_file
from webapp.leaderboard.filters import LEAST_P, MOST_P, Filters
from webapp.leaderboard.listing import Place, found
from webapp.leaderboard.ranking import board
from webapp.leaderboard.result_rows import rows
from webapp.leaderboard.visibility import set_visibility

Visibility = Literal["private", "team", "everyone"]

router = Router(tags=["leaderboard"])
ERRORS = refusals(401, 403, 422, 429)


class Selected(Asked):
    """Filters. Empty values select the defaults, which are the device, precision and mode with the most results."""

    suite: Text = Field(default="", max_length=140, description="Slug of a suite.")
    device: Text = Field(default="", max_length=140, description="Device model.", examples=["h200"])
    precision: Literal["", "fp32-strict", "tf32", "bf16", "fp16"] = ""
    mode: Literal["", "train", "eval"] = ""
    program_class: Literal["", "custom", "mixed", "any"] = Field(default="", description='"": custom and mixed.')
    workflow: Text = Field(default="", max_length=140)
    llm: Text = Field(default="", max_length=140, description='A profile in any role, or "built-in" in all of them.')
    planner: Text = Field(default="", max_length=140)
    coder: Text = Field(default="", max_length=140)
    language: Text = Field(default="", max_length=140)
    whose: Literal["", "ours", "published"] = Field(default="", description='"": both.')
    clock: Text = Field(
        default="",
        max_length=4,
        pattern=r"^\d*$",
        description="An earlier version of the verifier's clock; empty: a ranking by today's, results by any.",
    )

    def filters(self, **more: Any) -> Filters:
        names = set(Filters.__dataclass_fields__)
        return Filters(**{name: value for name, value in self.model_dump().items() if name in names}, **more)


class BoardAsked(Selected):
    against: Literal["", "best"] = Field(default="", description='"": PyTorch eager; "best": the fastest baseline of each task.')
    p: float = Field(default=1.0, ge=LEAST_P, le=MOST_P, description="fast_p: the share of tasks that are more than p times as fast.")


class ResultsAsked(Selected):
    state: Literal["", "confirmed", "unsolved", "left_out"] = Field(default="confirmed", description="left_out: by a verdict.")
    task: Text = Field(
        default="", max_length=140, description="Id of a task, or the hash of its source: then ranked by the lower bound of the interval."
    )
    entry: Text = Field(default="", max_length=20, description="`entry_id` of the ranking.")
    q: Text = Field(default="", max_length=140, description="Words of the task, its suite or the entry.")
    offset: Annotated[int, Field(ge=0, le=10**6)] = 0
    limit: Annotated[int, Field(ge=1, le=500)] = 50


class Results(Schema):
    interval: str = Field(default="95 %: bootstrap over blocks of interleaved measurements", description="What the bounds are.")
    total: int
    results: list[ResultRow]


@router.get("", response={200: BoardFile, **ERRORS}, operation_id="get_leaderboard", summary="The ranking")
def get_leaderboard(request: Request, asked: Query[BoardAsked]) -> Any:
    """Returns the entries (workflow and models) over a suite's tasks: tasks solved, geometric means with intervals, fast_p, cost and time. Baselines
    appear as rows."""
    needs(request, "read")
    return board_file(board(request, asked.filters()))


@router.get("/results", response={200: Results, **ERRORS}, operation_id="list_results", summary="Single results")
def list_results(request: Request, asked: Query[ResultsAsked]) -> Any:
    """Returns the results, one per finished run, newest first or, for a single task, by rank."""
    needs(request, "read")
    results = found(request, asked.filters(), Place(state=asked.state, task=asked.task, entry=asked.entry, text=asked.q))
    return {"total": results.count(), "results": list(rows(results[asked.offset : asked.offset + asked.limit]))}


class NewResult(NewProgram):
    """A program for a task, which is verified in full and ranked."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"task_source": "class Model(nn.Module): …", "program_source": "class ModelNew(nn.Module): …", "visibility": "team"}]
        }
    )

    visibility: Visibility | None = Field(
        default=None, description="Who sees the result: only you, the team, or everyone (only owners can publish). Null: as the team prefers."
    )


class SubmittedResult(Schema):
    verification: VerificationResult = Field(description="Poll GET /verifications/{id} until `done`: a result is ranked once it has passed.")
    page: str = Field(description="Permanent address of the result, once there is one.")
    badge: str = Field(description="The result as an SVG picture, for a README. Public where the result is published and its team opened.")


@router.post(
    "/results",
    response={201: SubmittedResult, **refusals(400, 401, 403, 404, 409, 422, 429)},
    operation_id="submit_result",
    summary="Submit a result",
    openapi_extra={"parameters": [HEADER_PARAMETER]},
)
def submit_result(request: Request, given: NewResult) -> HttpResponse:
    """Requests the verification of a program against every baseline. The result is ranked among your team's own programs. Measurements that you made
    yourself are not used."""
    needs(request, "verify")
    team, begin = prepared(request, given, "full")
    if given.visibility == "everyone":
        require(request, team, "own")

    def create() -> tuple[int, SubmittedResult]:
        with transaction.atomic():
            run = begin()
            if given.visibility is not None:
                set_visibility(run, given.visibility)
        page, badge = (request.build_absolute_uri(reverse(f"leaderboard:{name}", args=[run.pk])) for name in ("shown", "badge"))
        return 201, SubmittedResult(verification=result_of(run, request), page=page, badge=badge)

    return once(request, team, create)
