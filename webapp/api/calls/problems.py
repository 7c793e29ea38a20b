"""Reports errors as problem details (RFC 9457): what happened, where, and what to do about it."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import Field

from verifier.source import Problem as SourceProblem

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Fault(Schema):
    """One error in the request."""

    where: str = Field(description="Place of the field: `body.device`, `query.after`, `path.run_id`.", examples=["body.precision"])
    message: str = Field(description="What is wrong there.", examples=["Input should be 'fp32-strict', 'tf32', 'bf16' or 'fp16'"])
    hint: str = Field(default="", description="What to do about it.")
    line: int | None = Field(default=None, description="Line of a source that was sent, from 1.")
    column: int | None = Field(default=None, description="Column of a source that was sent, from 1.")


class ProblemDetails(Schema):
    """Every error has this form."""

    type: str = Field(default="about:blank", description="Kind of the problem; `about:blank`: the status says it all.")
    title: str = Field(description="The kind of problem in a few words.", examples=["Not found"])
    status: int = Field(description="The HTTP status once more.", examples=[404])
    detail: str = Field(description="What happened, as a sentence.", examples=["There is no such run, or this token may not see it."])
    hint: str = Field(default="", description="What to do about it.", examples=["GET /api/v1/runs lists the runs that you can see."])
    errors: list[Fault] = Field(default=[], description="Fields that are wrong, each with its place.")


def refusals(*statuses: int) -> dict[int, type[ProblemDetails]]:
    """Return the error responses of an operation."""
    return dict.fromkeys(statuses, ProblemDetails)


TITLES = {
    400: "Bad request",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "No such method here",
    409: "Not possible now",
    413: "Too large",
    422: "Not valid",
    429: "Too many requests",
    503: "Not available now",
}
TOKEN_HINT = "Send `Authorization: Bearer sw_…`; create one on the page Account, Tokens; each belongs to one team."


class CallRefused(Exception):
    """An error response that can be raised anywhere in the API's call stack."""

    def __init__(self, status: int, detail: str, hint: str = "", errors: list[Fault] | None = None, headers: dict[str, str] | None = None):
        super().__init__(detail)
        self.problem = ProblemDetails(title=TITLES[status], status=status, detail=detail, hint=hint, errors=errors or [])
        self.headers = headers or {}


def wrong(where: str, message: str, hint: str = "") -> CallRefused:
    """Return a 422 for one field."""
    return CallRefused(422, f"{where}: {message}", hint, [Fault(where=where, message=message, hint=hint)])


def bad_source(where: str, problems: list[SourceProblem]) -> CallRefused:
    """Return a 422 for a source that cannot be parsed, with the lines at fault."""
    faults = [Fault(where=where, message=p.message, hint=p.hint, line=p.line, column=p.column) for p in problems]
    said = "; ".join(f"line {p.line}: {p.message}" if p.line else p.message for p in problems)
    return CallRefused(422, f"{where}: {said}"[:2000], problems[0].hint if problems else "", faults)


def answer(problem: ProblemDetails, headers: dict[str, str] | None = None) -> HttpResponse:
    response = HttpResponse(json.dumps(problem.model_dump()), status=problem.status, content_type=MEDIA_TYPE, headers=headers)
    response["Cache-Control"] = "no-store"
    return response


def plain(status: int, detail: str, hint: str = "", **headers: str) -> HttpResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return answer(ProblemDetails(title=TITLES[status], status=status, detail=detail, hint=hint), named)


def handle_errors(api: NinjaAPI) -> None:
    """Convert every error that a view can raise into problem details."""

    @api.exception_handler(CallRefused)
    def refused(request: HttpRequest, error: CallRefused) -> HttpResponse:
        return answer(error.problem, error.headers)

    @api.exception_handler(AuthenticationError)
    def unauthenticated(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
        return plain(401, "This needs a token, or a session of the pages.", TOKEN_HINT, WWW_Authenticate='Bearer realm="stitchwork"')

    @api.exception_handler(HttpError)
    def unreadable(request: HttpRequest, error: HttpError) -> HttpResponse:
        if error.status_code == 403:  # from the session's authentication
            return plain(403, "The request carries a session but no CSRF token.", "Send the header X-CSRFToken, or use a token of the API.")
        return plain(400, f"The request cannot be read: {error}.", "Send JSON in UTF-8 with `Content-Type: application/json`.")

    @api.exception_handler(Http404)
    def unknown(request: HttpRequest, error: Http404) -> HttpResponse:
        return plain(404, f"There is {error}, or you may not see it." if str(error) else "Not found.", "Lists show what you can see.")

    @api.exception_handler(PermissionDenied)
    def denied(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
        return plain(403, str(error) or "Your role in this team does not allow that.", "GET /api/v1/me says what you may do.")

    @api.exception_handler(RequestDataTooBig)
    def too_large(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
        return plain(413, "The request is larger than 4 MiB.", "A source has at most 512 KiB; send one Python module without data in it.")

    @api.exception_handler(ValidationError)
    def invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        faults = [fault_of(entry) for entry in error.errors]
        said = "; ".join(f"{fault.where}: {fault.message}" for fault in faults)
        return answer(ProblemDetails(title=TITLES[422], status=422, detail=said[:2000], errors=faults[:50]))


def fault_of(entry: dict[str, Any]) -> Fault:
    """Convert a pydantic error: `("body", "given", "budget", "calls")` becomes `body.budget.calls`."""
    place = [str(part) for part in entry.get("loc", ())]
    if len(place) > 1 and place[0] in ("body", "query", "path", "header"):
        place = [place[0], *place[2:]] if place[0] == "body" else place
    message = str(entry.get("msg", "is not valid")).removeprefix("Value error, ")
    return Fault(where=".".join(place) or "body", message=message, hint=HINTS.get(entry.get("type", ""), ""))


HINTS = {
    "missing": "Send this field.",
    "extra_forbidden": "No such field; the reference lists all fields.",
    "json_invalid": "Send JSON in UTF-8.",
    "uuid_parsing": "Ids look like 2f1c6a52-53a4-4c0b-8d2e-0b6c8f3f9f11.",
}


def retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
