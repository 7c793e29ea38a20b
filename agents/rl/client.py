"""A trainer's client for the environment server: episodes and batches over HTTP. It waits while the pool is full."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

PATIENCE_SECONDS = 1800.0  # how long to wait for a slot in the pool
ANSWER_SECONDS = 1800.0  # a verification in the full tier takes minutes on a busy host


class RequestRefused(RuntimeError):
    """Raised if the server refused the request and gave a reason; retrying would not help."""


class EnvironmentClient:
    """A synchronous client for trainers. One instance can handle several episodes. `transport`: an httpx transport, for tests."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        patience: float = PATIENCE_SECONDS,
    ):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=address.rstrip("/"), headers=headers, timeout=httpx.Timeout(ANSWER_SECONDS, connect=10), transport=transport
        )
        self._sleep, self.patience = sleep, patience

    def reset(self, problem: str | None = None, seed: int | None = None) -> dict[str, Any]:
        """Returns the first observation, whose `episode_id` must be passed to each `step`."""
        return dict(self._ask("POST", "/reset", {"problem": problem, "seed": seed})["observation"])

    def step(self, episode_id: str, *, program: str | None = None, reply: str | None = None) -> dict[str, Any]:
        """Returns `observation`, `reward` (None if this is not a sample) and `done`."""
        action = {"program": program} if program is not None else {"reply": reply}
        return self._ask("POST", "/step", {"episode_id": episode_id, "action": action})

    def score(self, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the programs' scores in the order given. Each item has `task` and `program`; for the `improve` skill, it also has `before`, a
        report."""
        scores: dict[int, dict[str, Any]] = {}
        waited = 0.0
        while missing := [at for at in range(len(items)) if at not in scores]:
            found = self._ask("POST", "/score", {"items": [items[at] for at in missing]})["scores"]
            scores |= {at: one for at, one in zip(missing, found, strict=True) if one.get("no_sample") != "full"}
            if len(scores) < len(items):
                waited += self._wait(waited, next(one["retry"] for one in found if one.get("no_sample") == "full"))
        return [scores[at] for at in range(len(items))]

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        waited = 0.0
        while True:
            try:
                answer = self._http.request(method, path, json=body)
            except httpx.HTTPError as error:
                raise RequestRefused(
                    f"the reward server at {self._http.base_url} does not answer ({type(error).__name__}): is `serve` running?"
                ) from None
            if answer.status_code != 503:
                break
            waited += self._wait(waited, float(answer.headers.get("Retry-After", "2")))
        if answer.status_code != 200:
            raise RequestRefused(_said(answer))
        return dict(answer.json())

    def _wait(self, waited: float, seconds: float) -> float:
        if waited + seconds > self.patience:
            raise RequestRefused(
                f"the reward server was full for {self.patience:.0f} s: start it with more verifiers, or send fewer requests at a time"
            )
        self._sleep(seconds)
        return seconds


def _said(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"the reward server answered {answer.status_code}"
