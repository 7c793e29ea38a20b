"""Rate limits.

The buckets are kept in the web process's memory. The limit protects against runaway scripts and is not a quota, so it needs no query and applies to
each web process separately. The work itself is bounded by budgets and queues.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from django.http import HttpRequest

from webapp.accounts.access import grant_of
from webapp.api.calls.problems import CallRefused, retry_after

MOST_BUCKETS = 10_000  # above this number, the least recently used bucket is dropped


@dataclass(frozen=True)
class Rate:
    """A limit of `burst` calls in quick succession and `per_second` calls in the long run."""

    burst: float
    per_second: float


READING = Rate(burst=300, per_second=30)
CREATING = Rate(burst=30, per_second=1)


class Buckets:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name: (tokens left, time)
        self._lock = threading.Lock()

    def take(self, name: str, rate: Rate, now: float) -> float:
        """Return 0 if the call is allowed now, or else the seconds until it will be."""
        with self._lock:
            left, at = self._kept.pop(name, (rate.burst, now))
            left = min(rate.burst, left + (now - at) * rate.per_second)
            granted = left >= 1
            self._kept[name] = (left - 1 if granted else left, now)
            while len(self._kept) > MOST_BUCKETS:
                self._kept.popitem(last=False)
        return 0.0 if granted else (1 - left) / rate.per_second

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


BUCKETS = Buckets()


def limit(request: HttpRequest, *, creating: bool = False) -> None:
    """Refuse callers that exceed the rate, with 429 and Retry-After. Called once per request."""
    rate, kind = (CREATING, "create") if creating else (READING, "read")
    grant = grant_of(request)
    who = f"token {grant.token.pk}" if grant else f"user {request.user.pk}"
    name = hashlib.sha256(f"{kind} {who}".encode()).hexdigest()
    wait = BUCKETS.take(name, rate, time.monotonic())
    if wait:
        raise CallRefused(
            429,
            f"At most {rate.burst:g} such calls at once and {rate.per_second:g} a second in the long run.",
            f"Call again in {wait:.1f} s; to follow a run, use its event stream instead of polling.",
            headers=retry_after(wait),
        )
