"""Serves the environment over HTTP and websocket, with OpenEnv's messages (reset, step, state) and `/score` for whole batches.

A websocket is a session with one episode at a time. Over HTTP, an episode is identified by its id. If the pool is full, an HTTP request gets 503 with
`Retry-After`, and a websocket gets `CAPACITY_REACHED`; in both cases the episode is unchanged. If a caller disconnects, its running verification is
cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from agents.rl.environment import Action, BadAction, Environment, Episode, Observation
from agents.rl.pool import RETRY_SECONDS, Full
from agents.rl.rubric import Before, Skill
from verifier.report import Report

MOST_BYTES = 16 << 20
MOST_SESSIONS = 256
MOST_EPISODES = 4096  # maximum number of episodes over HTTP
EPISODE_SECONDS = 3600.0  # an episode over HTTP is discarded after this time without a step
MOST_BATCH = 256
ABOUT = {
    "name": "stitchwork",
    "description": "PyTorch tasks become fast CUDA programs; a verifier that refuses false speedups gives the reward.",
    "version": "1",
}


class Reset(BaseModel):
    """The request for a new episode. Other fields are ignored, because clients also send fields meant for other environments."""

    seed: int | None = Field(default=None, ge=0)
    episode_id: str | None = Field(default=None, max_length=255)
    problem: str | None = None


class Step(BaseModel):
    action: Action
    episode_id: str | None = None


class Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task: str
    program: str
    skill: Skill = "write"
    before: Report | None = None


class Batch(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[Wanted] = Field(max_length=MOST_BATCH)


class Server:
    """`token`: the token that a caller has to send as `Authorization: Bearer`; None means no authentication."""

    def __init__(self, environment: Environment, token: str | None = None, clock: Callable[[], float] = time.monotonic):
        self.environment, self.token, self.clock = environment, token, clock
        self.sessions = 0
        self.episodes: OrderedDict[str, tuple[float, Episode]] = OrderedDict()  # episodes over HTTP, ordered by last use

    def app(self) -> Starlette:
        """Returns the application, which closes its verifiers when it ends."""

        @contextlib.asynccontextmanager
        async def life(app: Starlette) -> AsyncIterator[None]:
            yield
            for client in self.environment.pool.clients:
                if hasattr(client, "close"):
                    await client.close()

        routes = [
            Route("/reset", self._answered(self.reset), methods=["POST"]),
            Route("/step", self._answered(self.step), methods=["POST"]),
            Route("/state", self._answered(self.state), methods=["GET"]),
            Route("/score", self._answered(self.score), methods=["POST"]),
            Route("/problems", self._answered(self.problems), methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metadata", self._answered(self.metadata), methods=["GET"]),
            Route("/schema", self._answered(self.schema), methods=["GET"]),
            WebSocketRoute("/ws", self.session),
        ]
        return Starlette(routes=routes, lifespan=life)

    def _answered(self, act: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            if not self._knows(request.headers.get("authorization", "")):
                return JSONResponse({"error": "send the server's token as Authorization: Bearer"}, 401)
            try:
                return JSONResponse(await act(request))
            except Full as full:
                return JSONResponse({"error": str(full)}, 503, {"Retry-After": str(RETRY_SECONDS)})
            except BadAction as error:
                return JSONResponse({"error": str(error)}, 422)
            except ValidationError as error:
                return JSONResponse({"error": _first(error)}, 422)

        return endpoint

    async def reset(self, request: Request) -> dict[str, Any]:
        asked = Reset.model_validate_json(await _body(request) or b"{}")
        episode = self._open(asked)
        self._forget()
        self.episodes[episode.id] = self.clock(), episode
        return told(episode.begin())

    async def step(self, request: Request) -> dict[str, Any]:
        asked = Step.model_validate_json(await _body(request))
        episode = self._episode(asked.episode_id)
        return told(await _unless_gone(request, episode.step(asked.action)))

    async def state(self, request: Request) -> dict[str, Any]:
        return self._episode(request.query_params.get("episode_id")).state()

    async def score(self, request: Request) -> dict[str, Any]:
        """Scores a whole batch in the given order. Items for which the pool had no free slot are marked, and the caller has to submit them again."""
        asked = Batch.model_validate_json(await _body(request))

        async def one(wanted: Wanted) -> dict[str, Any]:
            before = Before(wanted.before) if wanted.before is not None else None
            if wanted.skill == "improve" and before is None:
                raise BadAction("skill improve requires `before`, the report of the program from which it started")
            try:
                scored, _ = await self.environment.judge(wanted.task, wanted.program, wanted.skill, before)
            except Full:
                return {"reward": None, "no_sample": "full", "retry": RETRY_SECONDS}
            return {"reward": scored.reward, **scored.components}

        return {"scores": await _unless_gone(request, _all([one(wanted) for wanted in asked.items]))}

    async def problems(self, request: Request) -> dict[str, Any]:
        return {"problems": [{"id": problem.id, "skill": problem.skill} for problem in self.environment.problems.values()]}

    async def health(self, request: Request) -> Response:
        pool = self.environment.pool
        figures = {"verifiers": len(pool.clients), "at_work": pool.at_work, "waiting": pool.waiting, "done": pool.done, "refused": pool.refused}
        return JSONResponse({"status": "healthy", **figures, "sessions": self.sessions, "episodes": len(self.episodes)})

    async def metadata(self, request: Request) -> dict[str, Any]:
        return ABOUT

    async def schema(self, request: Request) -> dict[str, Any]:
        state = {"type": "object", "properties": {"episode_id": {"type": "string"}, "step_count": {"type": "integer"}}}
        return {"action": Action.model_json_schema(), "observation": Observation.model_json_schema(), "state": state}

    async def session(self, socket: WebSocket) -> None:
        if not self._knows(socket.headers.get("authorization", "")):
            await socket.close(1008, "send the server's token as Authorization: Bearer")
            return
        await socket.accept()
        if self.sessions >= MOST_SESSIONS:
            await socket.send_json(_error("CAPACITY_REACHED", f"{MOST_SESSIONS} sessions are open"))
            await socket.close(1013)
            return
        self.sessions += 1
        try:
            await self._talk(socket)
        except WebSocketDisconnect:
            pass
        finally:
            self.sessions -= 1

    async def _talk(self, socket: WebSocket) -> None:
        episode: Episode | None = None
        while True:
            text = await socket.receive_text()
            try:
                message = json.loads(text) if len(text) <= MOST_BYTES else None
            except ValueError:
                message = None
            if not isinstance(message, dict):
                await socket.send_json(_error("INVALID_JSON", f"a message is a JSON object of at most {MOST_BYTES} bytes"))
                continue
            kind, data = message.get("type"), message.get("data") or {}
            if kind == "close":
                await socket.close()
                return
            try:
                if kind == "reset":
                    episode = self._open(Reset.model_validate(data))
                    answer = {"type": "observation", "data": told(episode.begin())}
                elif kind in ("step", "state") and episode is None:
                    answer = _error("SESSION_ERROR", "reset comes first")
                elif kind == "step":
                    seen = await _while_connected(socket, episode.step(Action.model_validate(data)))  # type: ignore[union-attr]  # see above
                    answer = {"type": "observation", "data": told(seen)}
                elif kind == "state":
                    answer = {"type": "state", "data": episode.state()}  # type: ignore[union-attr]  # as above
                else:
                    answer = _error("UNKNOWN_TYPE", "a message has the type reset, step, state or close")
            except Full as full:
                answer = _error("CAPACITY_REACHED", str(full))
            except ValidationError as error:
                answer = _error("VALIDATION_ERROR", _first(error))
            except BadAction as error:
                answer = _error("EXECUTION_ERROR", str(error))
            await socket.send_json(answer)

    def _open(self, asked: Reset) -> Episode:
        problem = self.environment.choose(asked.seed, asked.problem)
        return Episode(self.environment, problem, id=asked.episode_id) if asked.episode_id else Episode(self.environment, problem)

    def _episode(self, name: str | None) -> Episode:
        if name is None or name not in self.episodes:
            raise BadAction("there is no such episode: reset answers with an `episode_id`, and each step sends it")
        _, episode = self.episodes[name]
        self.episodes[name] = self.clock(), episode
        self.episodes.move_to_end(name)
        return episode

    def _forget(self) -> None:
        """Discards abandoned episodes and, if there are too many, the oldest ones."""
        limit = self.clock() - EPISODE_SECONDS
        while self.episodes and (len(self.episodes) >= MOST_EPISODES or next(iter(self.episodes.values()))[0] < limit):
            self.episodes.popitem(last=False)

    def _knows(self, header: str) -> bool:
        return self.token is None or hmac.compare_digest(header.encode(), f"Bearer {self.token}".encode())


def told(seen: Observation) -> dict[str, Any]:
    """Returns the result in the form that OpenEnv's clients read, with the reward and the done flag next to the observation."""
    return {"observation": seen.model_dump(mode="json", exclude={"reward", "done"}), "reward": seen.reward, "done": seen.done}


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > MOST_BYTES:
            raise BadAction(f"a request has at most {MOST_BYTES} bytes")
    return bytes(found)


async def _all(waiting: list[Any]) -> list[Any]:
    """Awaits all the given awaitables concurrently. One failure cancels the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in waiting]
    return [task.result() for task in tasks]


async def _unless_gone(request: Request, work: Any) -> Any:
    """Returns the result of `work`, which is cancelled if the caller disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=0.5))[0]:
            if await request.is_disconnected():
                raise asyncio.CancelledError
        return _result(task)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


async def _while_connected(socket: WebSocket, work: Any) -> Any:
    """Does the same for a websocket. A message that arrives in the meantime is the sender's error and ends the session."""
    task, heard = asyncio.ensure_future(work), asyncio.ensure_future(socket.receive())
    try:
        await asyncio.wait([task, heard], return_when=asyncio.FIRST_COMPLETED)
        if heard.done():
            raise WebSocketDisconnect
        return _result(task)
    finally:
        for one in (task, heard):
            one.cancel()
        await asyncio.wait([task, heard])


def _result(task: asyncio.Future[Any]) -> Any:
    """Returns the task's result. If it failed with an exception group, raises the first error in it."""
    error = task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
    return task.result()


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the request'}: {first['msg']}"


def _error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code}}
