"""The API as a whole: its resources, error handling and OpenAPI document."""

from __future__ import annotations

from typing import Any

from ninja import NinjaAPI

from webapp.api import candidates, comments, devices, events, leaderboard, me, runs, stored, tasks, verifications
from webapp.api.calls.caller import Session, Token
from webapp.api.calls.problems import MEDIA_TYPE, handle_errors
from webapp.api.calls.query import strict
from webapp.api.stream import STREAM_OPERATION

VERSION = "1.0.0"
DESCRIPTION = """Tasks, runs with their traces, candidates, reports, rankings, and a verifier that outside programs can ask.

Everything belongs to a team; you see what your team has and what other teams publish. Errors are problem details (RFC 9457): `detail` says what
happened, `errors` where, `hint` what to do. Lists have a cursor: pass `next` as `?cursor=`. A creating call may carry an `Idempotency-Key`. Who calls
too often gets 429 with `Retry-After`."""
TAGS = {
    "verifications": "Verify a program: is it correct, fast and honest?",
    "tasks": "Models in KernelBench's format.",
    "runs": "Searches for a faster program: start, follow, steer, fork.",
    "events": "The trace of a run: everything that happened, live.",
    "candidates": "The programs that a run proposed, with verdicts and reports.",
    "comments": "The team's comments on a run and on its events, programs and timelines.",
    "artefacts": "Bytes that the events refer to by hash; timelines.",
    "leaderboard": "Confirmed results, ranked.",
    "devices": "Devices to measure on.",
    "me": "The caller, and what the token allows.",
}
# The scopes for each method and path. One of the listed scopes is enough. The role's permissions apply in addition.
SECURITY_NOTE = "A personal token, made on the page Account, Tokens. Scopes: read (to look), submit (to start, steer and comment), verify, admin."


PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
UNAVAILABLE = {"description": "The database does not answer; `Retry-After` says when to try again.", "content": PROBLEM}


class Api(NinjaAPI):
    """Adds information to ninja's document that Python signatures cannot express."""

    def get_openapi_schema(self, **named: Any) -> Any:
        document = super().get_openapi_schema(**named)
        document["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
        document["paths"]["/api/v1/runs/{run_id}/events/stream"] = {"get": STREAM_OPERATION}
        for scheme in document["components"]["securitySchemes"].values():
            if scheme.get("scheme") == "bearer":
                scheme["description"] = SECURITY_NOTE
        for path in document["paths"].values():
            for operation in path.values():
                for parameter in operation.get("parameters", []):
                    parameter.pop("examples", None)  # a list, which the schema contains too; OpenAPI requires an object here
                operation["responses"].setdefault(503, UNAVAILABLE)
                for status, response in operation["responses"].items():
                    if int(status) >= 400 and "application/json" in response.get("content", {}):
                        response["content"] = {MEDIA_TYPE: response["content"]["application/json"]}
        return document


api = Api(
    title="Stitchwork", version=VERSION, description=DESCRIPTION, auth=[Token(), Session()], docs_url=None, openapi_url=None, urls_namespace="api"
)
handle_errors(api)
api.add_decorator(strict, mode="view")
for prefix, module in {
    "/verifications": verifications,
    "/tasks": tasks,
    "/runs": runs,
    "/leaderboard": leaderboard,
    "/devices": devices,
    "/me": me,
}.items():
    api.add_router(prefix, module.router)
for module in (events, candidates, comments, stored):
    api.add_router("/runs", module.router)
