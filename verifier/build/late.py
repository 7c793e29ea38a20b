"""Builds that a program requests while it runs: in its constructor, in its first forward pass, or for a new shape.

Many programs compile on first use, but a compiler must never run concurrently with a program. Therefore, the runner writes its request as data and
exits. A builder that has not loaded the program compiles the request, and a fresh runner restarts from the first trial with the library in place. The
sources of such builds are inspected like the program's own text, and the report lists them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from verifier.build.artefacts import Artefacts, Asked, checked_asked, checked_index
from verifier.build.building import BuildFailed, failure_of
from verifier.build.headers import Headers
from verifier.build.request import BuildRequest
from verifier.build.store import Store
from verifier.channel import MAX_ARTEFACTS
from verifier.integrity.static import native_findings
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Cancelled, Pool
from verifier.program import Program
from verifier.report import BuildInfo, Finding, RequestedBuild, Status

MOST = 8
_DOING = {"import": "imported", "construct": "constructed"}


def asks_later(source: str) -> bool:
    """Returns whether a program's text could request a build anywhere other than at the module's top level."""
    names = {"load_inline", "load", "stitch_build"}
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))]
    inner = (node for function in functions if getattr(function, "name", "") != "stitch_build" for node in ast.walk(function))
    called = (node.func for node in inner if isinstance(node, ast.Call))
    return any((node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) in names for node in called)


def doing(request: str) -> str:
    """Returns what the program was doing when it made such a request."""
    return _DOING.get(request, "called")


@dataclass
class Built:
    """A program with its libraries: those requested at import, followed by those requested later."""

    pool: Pool
    store: Store
    headers: Headers | None
    program: Program
    artefacts: Artefacts
    tell: Callable[[str], None] = lambda text: None

    def answer(self, failure: PartyFailure) -> None:
        """Builds the library that a runner requested. Raises `BuildFailed`. If the runner ended for another reason, raises `failure` itself."""
        if failure.kind == "raised" and failure.error_class == "NotBuilt":
            raise self._unbuilt(failure) from None
        if failure.kind != "wanted" or failure.wish is None:
            raise failure
        self.pool.reap()
        try:
            request = BuildRequest.read(failure.wish.get("request"))
        except ValueError as error:
            raise BuildFailed("crashed", f"{error}: it ended while it was {doing(failure.request)}") from None
        line = failure.line
        where = f"line {line}: " if line else ""
        if len(self.artefacts.later) >= MOST:
            raise BuildFailed("build_failed", where + self._too_many(request))
        refused = [finding for finding in late_findings(request, line) if finding.severity == "refuse"]
        if refused:
            raise BuildFailed("rejected", f"{where}in a source that was assembled when it was {doing(failure.request)}: {refused[0].message}")
        self.tell(f"builds {request.name}, which it asked for when it was {doing(failure.request)}")
        more = self._made(request)
        asked = [replace(one, when=failure.request, line=line, request=request.data()) for one in more.asked]
        self.artefacts = self.artefacts.with_more(replace(more, asked=asked))
        self.store.put(self.program.sha, self.artefacts, anew=True)

    def findings(self) -> list[Finding]:
        """Returns the findings in the sources of later builds, and the failed builds that the program survived."""
        found: list[Finding] = []
        for one in self.artefacts.asked:
            if one.request is not None:
                found += late_findings(BuildRequest.read(one.request), one.line)
            if one.failure:
                message = f"its build of {one.name!r} fails, and it uses a fallback: {first_error(one.failure)}"
                found.append(Finding(rule="build-fails", severity="note", message=message, line=one.line))
        return list({(finding.rule, finding.line): finding for finding in found}.values())

    def _too_many(self, request: BuildRequest) -> str:
        names = [one.name for one in self.artefacts.later]
        message = f"it asks for {request.name!r}, its build number {MOST + 1} after it was imported, and may ask for {MOST}"
        if request.name in names:
            return (
                f"{message}: {names.count(request.name)} of them were {request.name!r} too, each with other sources or flags. "
                "Do they contain a time, an address or other random text? If not, pass sizes to the kernels as arguments, "
                "or request all variants when the module is imported"
            )
        return f"{message}: request them when the module is imported, or put several kernels into one source"

    def _unbuilt(self, failure: PartyFailure) -> BuildFailed:
        """Returns the error for a failed build in a program that has no fallback."""
        info = BuildInfo(seconds=self.artefacts.seconds, cached=False)
        missing = self.pool.device.missing_compiler()
        data = {"message": failure.message, "line": failure.line, "class": "RuntimeError"}
        return failure_of(data, "", missing, info, self.program.source)

    def _made(self, request: BuildRequest) -> Artefacts:
        """Takes the library from the store if it has already been built for any program."""
        known = self.store.get(request.digest)
        if known is not None:
            return known
        builder = self.pool.take("builder")
        try:
            artefacts = self._asked(builder, request)
        except PartyFailure as failure:
            if self.pool.cancelled:
                raise Cancelled from None
            if failure.request in ("start", "role"):
                raise
            status: Status = "timed_out" if failure.kind == "timed_out" else "crashed"
            raise BuildFailed(status, f"while {request.name} was built, {failure.message}") from None
        finally:
            self.pool.give_back(builder)
        if not artefacts.failed:
            self.store.put(request.digest, artefacts)
        return artefacts

    def _asked(self, builder: Party, request: BuildRequest) -> Artefacts:
        shown = self.headers.shown if self.headers is not None else ""
        message = {"variables": self.pool.device.variables("builder"), "headers": shown}
        data = json.dumps(request.data()).encode()
        frame = builder.ask("later", message, self.pool.limits.build, raw=data, max_raw=MAX_ARTEFACTS)
        if self.headers is not None:
            self.headers.want(frame.message.get("wanted"))
        try:
            index = checked_index(frame.message.get("artefacts"), len(frame.raw))
            asked = checked_asked(frame.message.get("asked"), 1)
        except ValueError as error:
            raise BuildFailed("crashed", str(error)) from None
        failed = frame.message.get("failure")
        text = str(failed.get("message", "")) if isinstance(failed, dict) else ""
        own = Asked(request.kind, request.name, request.key, request.digest, request.nbytes)
        own.seconds, own.failure = (asked[0].seconds if asked else 0.0), "" if index else text or "there is no library"
        if not index and self.pool.device.missing_compiler() and "No such file" in text:
            raise BuildFailed("infrastructure_error", self.pool.device.missing_compiler())
        return Artefacts(index, frame.raw, own.seconds, [own])


def requested(artefacts: Artefacts) -> list[RequestedBuild]:
    """Returns the requested builds for the report."""
    rows = []
    for one in artefacts.asked:
        row = one.row() | {"failure": first_error(one.failure)}
        rows.append(RequestedBuild(**{name: row[name] for name in RequestedBuild.model_fields}))
    return rows


def first_error(text: str) -> str:
    """Finds the line of compiler output that states the error."""
    lines = text.splitlines() or [""]
    return next((line for line in lines if re.search(r"\b(error|fatal)\b", line)), lines[0]).strip()[:300]


def late_findings(request: BuildRequest, line: int | None) -> list[Finding]:
    """Inspects the sources of late builds like the program's own text. Every finding is attributed to the line that requested the build."""
    return [finding for text in request.texts() for finding in native_findings(text, line or 0, spread=False)]
