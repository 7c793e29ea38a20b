"""Ways in which an exchange can fail, and whether a retry may help in each case. The interpretation of statuses follows RFC 9110 and the
documentation of the two protocols."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agents.llm.errors import FailureKind

AGAIN = frozenset({408, 409, 425, 429})  # and every 5xx
BUSY = frozenset({429, 503, 529})
SHOWN = 400  # maximum length of a server's own text in a message, in characters
# Anthropic's error types, and the names that OpenAI-compatible servers use for them inside a stream, with the equivalent HTTP status.
TYPES = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404,
    "request_too_large": 413, "rate_limit_error": 429, "timeout_error": 504, "api_error": 500, "overloaded_error": 529,
    "badrequesterror": 400, "authenticationerror": 401, "permissiondeniederror": 403, "notfounderror": 404, "ratelimiterror": 429,
    "rate_limit_exceeded": 429, "insufficient_quota": 402, "context_length_exceeded": 413, "server_error": 500, "internalservererror": 500,
    "requests": 429, "tokens": 429, "overloaded": 529, "invalid_api_key": 401, "model_not_found": 404,
}  # fmt: skip
TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|input is too long|too many (input )?tokens|exceeds? .{0,40}context|"
    r"max_model_len|context_length_exceeded|request too large",
    re.IGNORECASE,
)


class Fault(Exception):
    """One failed exchange. `again`: the same request may succeed later. `wait`: the number of seconds that the server asks us to wait."""

    def __init__(self, kind: FailureKind, message: str, hint: str = "", *, again: bool = False, wait: float | None = None, status: int = 0):
        super().__init__(message)
        self.kind, self.message, self.hint, self.again, self.wait, self.status = kind, message, hint, again, wait, status


def broken(message: str) -> Fault:
    """Returns the fault for a stream or connection that ended prematurely; nothing but time was lost."""
    return Fault("unreachable", message, "check that the server is up and reachable from here", again=True)


def of_status(status: int, error: Mapping[str, Any] | str, headers: Mapping[str, str], key_env: str | None) -> Fault:
    """Returns the fault that corresponds to an HTTP status and the error object in its body."""
    words, code = words_of(error)
    status = _meant(status, words, code)
    said = f"HTTP {status}" + (f": {words}" if words else "")
    if status == 413 or (status in (400, 422) and TOO_LONG.search(f"{words} {code}")):
        return Fault("too-long", said, "set context_tokens in the profile, lower max_tokens, or choose a model with a longer context", status=status)
    if status == 402 or code in ("insufficient_quota", "billing_error"):
        return Fault("refused", said, "the account has no credit left: add some, then resume", status=status)
    if status in (401, 403):
        where = f"the environment variable {key_env}" if key_env else "api_key_env, which the profile does not have"
        return Fault("refused", said, f"check the key in {where}", status=status)
    if status == 404:
        return Fault("refused", said, "check base_url and model in the profile", status=status)
    if 300 <= status < 400:
        target = headers.get("location", "")[:200]
        return Fault("refused", f"HTTP {status}: the server redirects to {target or 'another address'}", "set base_url to it", status=status)
    if status in AGAIN or status >= 500:
        kind: FailureKind = "busy" if status in BUSY else "unreachable"
        hint = "wait and resume, or lower the profile's limits" if kind == "busy" else "the server has a problem: resume later"
        return Fault(kind, said, hint, again=True, wait=retry_after(headers), status=status)
    return Fault("refused", said, "the server rejects this request: check model and body in the profile", status=status)


def _meant(status: int, words: str, code: str) -> int:
    """Returns the effective status. Within a stream, the HTTP status is always 200, so the error's own code or type determines the fault."""
    if status == 429 and (code == "insufficient_quota" or "exceeded your current quota" in words):
        return 402
    if status >= 300:
        return status
    if code.isdigit() and 400 <= int(code) < 600:
        return int(code)
    return TYPES.get(code.lower(), 500)


def words_of(error: Mapping[str, Any] | str) -> tuple[str, str]:
    """Returns the server's own text and error code. Errors may have these forms: {"error": {...}}, {"error": "..."}, {"message"}, {"detail"},
    text."""
    if isinstance(error, str):
        return shorten(error), ""
    inner = error.get("error", error)
    if isinstance(inner, str):
        return shorten(inner), ""
    if not isinstance(inner, Mapping):
        return shorten(str(inner)), ""
    words = inner.get("message") or inner.get("detail") or inner.get("type") or ""
    candidates = [inner.get("code"), inner.get("type"), inner.get("status")]
    known = [str(c) for c in candidates if c is not None and (str(c).isdigit() or str(c).lower() in TYPES)]
    return shorten(str(words)), known[0] if known else ""


def shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the number of seconds that the server asks us to wait, from `retry-after-ms` or from `Retry-After`, which contains seconds or a date
    (according to the server's own clock)."""
    try:
        return max(float(headers["retry-after-ms"]) / 1000, 0.0)
    except (KeyError, ValueError):
        pass
    value = headers.get("retry-after", "").strip()
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        then = parsedate_to_datetime(value)
        now = parsedate_to_datetime(headers["date"]) if headers.get("date") else datetime.now(UTC)
        return max((then.replace(tzinfo=then.tzinfo or UTC) - now.replace(tzinfo=now.tzinfo or UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
